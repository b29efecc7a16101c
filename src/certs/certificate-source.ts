import type { Logger } from "pino";
import type { ServingCertificate, ServingPair } from "../webhook/serving-certificate.ts";

/** Where serving certificates come from: it offers every pair that it finds to the server. */
export interface CertificateSource {
  /** Runs until the signal is aborted; whatever fails in between is waited out. */
  run(signal: AbortSignal): Promise<void>;
  /** Looks at once, where that shows what others wrote. @throws what a request ends in. */
  look?(signal: AbortSignal): Promise<void>;
}

/** What every source needs. */
export interface SourceOptions {
  readonly certificate: Pick<ServingCertificate, "offer">;
  readonly logger: Logger;
}

/** Offers a pair unless the one before was the same: a bad one is turned down once, not at every look. */
export class Offers {
  readonly #certificate: SourceOptions["certificate"];
  #last: ServingPair | undefined;

  constructor({ certificate }: SourceOptions) {
    this.#certificate = certificate;
  }

  offer(pair: ServingPair): void {
    if (this.#last?.certPem === pair.certPem && this.#last.keyPem === pair.keyPem) {
      return;
    }
    this.#last = pair;
    // The server is told what became of it, warns and counts (ServingCertificate.subscribe()).
    this.#certificate.offer(pair);
  }
}
