import { caBundleOf, trustingPart, withOwnCas } from "../certs/ca-bundle.ts";
import { certificatesIn, decoded, KEYS, type SecretObject } from "../certs/secret-contents.ts";
import { purposeProblemOf } from "../serving/serving-purpose.ts";
import { distrustOf } from "../certs/trust-chain.ts";
import type { ServingCertificate } from "../webhook/serving-certificate.ts";

/** What a {@link ServedSecret} is told. */
export interface ServedSecretOptions {
  /** What the replica serves. */
  readonly certificate: Pick<ServingCertificate, "current">;
  /** The DNS name or IP address by which API servers call. */
  readonly serverName: string;
  /** The same moment by every clock that is known, in milliseconds since the Unix epoch. */
  readonly times: () => readonly number[];
}

/**
 * The Secret that ksvm keeps, as a replica reads it, beside what the replica serves. Both are the same as a rule. They are not while the Secret is
 * empty or broken, or has a pair that the replica turns down: then the replica goes on serving what it had, and API servers have to go on
 * trusting the CA of that.
 */
export class ServedSecret {
  readonly #options: ServedSecretOptions;
  /** That of the Secret as it was read last with a CA; base64, as the configuration has it. */
  #caBundle: string | undefined;
  /** The certificate of the Secret as it was read last; empty where it has none. */
  #certPem = "";
  /** The last one of a Secret by which API servers can call what is served. */
  #trusting = "";

  constructor(options: ServedSecretOptions) {
    this.#options = options;
  }

  /**
   * Takes note of the Secret, once its pair was offered.
   * @returns whether its CAs are others than before
   */
  saw(secret: SecretObject | undefined): boolean {
    const caBundle = caBundleOf(secret);
    this.#certPem = secret === undefined ? "" : decoded(secret, KEYS.certificate);
    const isOther = caBundle !== undefined && caBundle !== this.#caBundle;
    this.#caBundle = caBundle ?? this.#caBundle;
    this.loaded();
    return isOther;
  }

  /** Takes note of another pair in use. */
  loaded(): void {
    if (this.#caBundle !== undefined && this.#isTrustedBy(this.#caBundle)) {
      this.#trusting = this.#caBundle;
    }
  }

  /** Whether API servers cannot call by the name that they use what the Secret holds; where it holds no certificate, what is served. */
  get lacksName(): boolean {
    const [certificate] = certificatesIn(this.#certPem || (this.#options.certificate.current?.certPem ?? ""));
    return (
      certificate !== undefined && purposeProblemOf(certificate.toString(), this.#options.serverName) !== undefined
    );
  }

  /**
   * The `caBundle` to publish. While what is served is not what the Secret holds, or API servers cannot call that, no CA is taken away: other replicas
   * may serve what it signed. That of what is served is added.
   *
   * @param published `undefined` where the configuration has no webhook of ours
   * @returns `undefined` as long as no CA was read
   */
  bundleFor(published: string | undefined): string | undefined {
    const own = this.#caBundle;
    const isServed = this.#options.certificate.current?.certPem === this.#certPem;
    if (own === undefined || (isServed && !this.lacksName && this.#isTrustedBy(own))) {
      return own;
    }
    const isNeeded = (caBundle: string): boolean => this.#isTrustedBy(caBundle);
    return [own, trustingPart(this.#trusting, isNeeded)].reduce(withOwnCas, published ?? "");
  }

  /** Whether API servers with this caBundle can call what is served, by any of the clocks. */
  #isTrustedBy(caBundle: string): boolean {
    const { certificate, times } = this.#options;
    const { current } = certificate;
    return (
      current !== undefined &&
      times().some((now) => distrustOf({ caBundle, certPem: current.certPem, now }) === undefined)
    );
  }
}
