import type { Logger } from "pino";
import type { ServingCertificate } from "../webhook/serving-certificate.ts";

/** Where serving certificates come from: it offers every pair that it finds to the server. */
export interface CertificateSource {
  /** Runs until the signal is aborted; whatever fails in between is waited out. */
  run(signal: AbortSignal): Promise<void>;
  /** Looks at once, where that shows what others wrote. @throws what a request ends in. */
  look?(signal: AbortSignal): Promise<void>;
}

/** What every source needs. */
export interface SourceOptions {
  /**
   * Offered at every look what is there then: one that was turned down may be good by now, where a clock was corrected. It warns and
   * counts (ServingCertificate.subscribe()).
   */
  readonly certificate: Pick<ServingCertificate, "offer">;
  readonly logger: Logger;
}
