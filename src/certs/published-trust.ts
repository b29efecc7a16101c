import type { Logger } from "pino";
import { NewestSeen } from "../api/newest-seen.ts";
import { WEBHOOK_NAME } from "../freeze/rule.ts";
import type { ServingCertificate } from "../webhook/serving-certificate.ts";
import { type BundleHolder, publishedBundleOf } from "./ca-bundle.ts";
import { purposeProblemOf } from "../serving/certificates.ts";
import { distrustOf } from "./trust-chain.ts";

/** What a {@link PublishedTrust} needs. */
export interface PublishedTrustOptions {
  readonly certificate: Pick<ServingCertificate, "current">;
  /**
   * Whether a configuration without a caBundle may be meant so: API servers then trust the roots of their own machines,
   * which cannot be read from here.
   */
  readonly isBundleOptional: boolean;
  /** The DNS name or IP address by which API servers call. */
  readonly serverName: string;
  /**
   * The same moment by every clock that is known, in milliseconds since the Unix epoch: where one is wrong, no replica
   * is to be lost.
   */
  readonly times: () => readonly number[];
  readonly logger: Logger;
}

const CONFIGURATION = `ValidatingWebhookConfiguration "${WEBHOOK_NAME}"`;

/**
 * Whether a webhook configuration was read from the API server whose caBundle trusts the certificate that is served,
 * which has to be valid for the name by which API servers call. Once that was so it stays so: if every replica took
 * itself out of the Service because another client emptied the caBundle, or while a rotation is under way, that would
 * be an outage of its own.
 */
export class PublishedTrust {
  readonly #options: PublishedTrustOptions;
  readonly #newest = new NewestSeen();
  #isProven = false;
  /** The caBundle, empty where it is not set; or why there can be none. */
  #published: string | { readonly problem: string } = { problem: `${CONFIGURATION} has not been read yet` };
  #told: string | undefined;

  constructor(options: PublishedTrustOptions) {
    this.#options = options;
  }

  /** The newest resourceVersion of the configuration that was seen. */
  get resourceVersion(): string | undefined {
    return this.#newest.resourceVersion;
  }

  /**
   * Takes note of the configuration as it was read; `undefined` where there is none.
   *
   * @param sentAfter as in {@link NewestSeen.take}: where etcd was restored from a backup, what is read from it is
   *   older
   */
  saw(configuration: BundleHolder | undefined, sentAfter?: string): void {
    if (!this.#newest.take(configuration?.metadata.resourceVersion, sentAfter)) {
      return;
    }
    const missing = configuration === undefined ? "does not exist" : "has no webhook of this name";
    this.#published = publishedBundleOf(configuration) ?? { problem: `${CONFIGURATION} ${missing}` };
    // At once: something may be about to empty it again.
    this.lacking();
  }

  /** What is still to be so; `undefined` for good once nothing was. */
  lacking(): string | undefined {
    if (this.#isProven) {
      return undefined;
    }
    const problem = this.#problem();
    this.#isProven = problem === undefined;
    this.#tell(problem);
    return problem;
  }

  #problem(): string | undefined {
    const { certificate, isBundleOptional, serverName, times } = this.#options;
    const caBundle = this.#published;
    if (typeof caBundle !== "string") {
      return caBundle.problem;
    }
    if (certificate.current === undefined) {
      return "there is no serving certificate yet";
    }
    const { certPem } = certificate.current;
    const purposeProblem = purposeProblemOf(certPem, serverName);
    if (purposeProblem !== undefined) {
      return purposeProblem;
    }
    if (caBundle === "") {
      return isBundleOptional ? undefined : `the caBundle of ${CONFIGURATION} is empty`;
    }
    const distrusts = times().map((now) => distrustOf({ caBundle, certPem, now }));
    const distrust = distrusts.includes(undefined) ? undefined : distrusts[0];
    return distrust && `the caBundle of ${CONFIGURATION} does not trust the serving certificate: ${distrust}`;
  }

  #tell(problem: string | undefined): void {
    const { logger } = this.#options;
    if (problem === undefined) {
      logger.info("The webhook configuration trusts the serving certificate");
    } else if (problem !== this.#told) {
      logger.info({ reason: problem }, "Not ready for reviews yet");
    }
    this.#told = problem;
  }
}
