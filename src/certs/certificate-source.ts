import type { Logger } from "pino";
import type { Metrics } from "../observability/metrics.ts";
import type { ServingCertificate, ServingPair } from "../webhook/serving-certificate.ts";

/** Where serving certificates come from: it offers every pair that it sees to the server. */
export interface CertificateSource {
  /** Runs until the signal is aborted; whatever fails in between is waited out. */
  run(signal: AbortSignal): Promise<void>;
}

/** What every source needs. */
export interface SourceOptions {
  readonly certificate: Pick<ServingCertificate, "offer">;
  readonly logger: Logger;
}

/** Offers a pair unless the one before was the same: a bad one is turned down once, not at every look. */
export class Offers {
  readonly #options: SourceOptions;
  #last: ServingPair | undefined;

  constructor(options: SourceOptions) {
    this.#options = options;
  }

  offer(pair: ServingPair): void {
    if (this.#last?.certPem === pair.certPem && this.#last.keyPem === pair.keyPem) {
      return;
    }
    this.#last = pair;
    const reason = this.#options.certificate.offer(pair);
    if (reason !== undefined) {
      this.#options.logger.warn({ reason }, "Turned down a serving certificate; the last good one stays in use");
    }
  }
}

/**
 * Counts the pairs that are taken into use or turned down, and shows when the one in use expires.
 * @returns what ends that
 */
export function measureCertificate(
  certificate: ServingCertificate,
  { certificateExpiry, certificateReloads }: Pick<Metrics, "certificateExpiry" | "certificateReloads">,
): () => void {
  return certificate.subscribe((outcome) => {
    certificateReloads.inc({ result: outcome.result });
    if (outcome.result === "loaded") {
      certificateExpiry.set(outcome.expiresAt.getTime() / 1_000);
    }
  });
}
