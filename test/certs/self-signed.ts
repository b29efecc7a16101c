import { issueCa, issueServing, type Validity } from "../../src/certs/issue.ts";

/** What the serving certificate is for. */
export interface SelfSignedOptions extends Validity {
  readonly dnsNames: readonly string[];
  readonly ipAddresses: readonly string[];
}

/** PEM texts. The CA's key is not among them: it is forgotten once it has signed. */
export interface SelfSigned {
  readonly caPem: string;
  readonly certPem: string;
  readonly keyPem: string;
}

/**
 * Issues a CA and a serving certificate that it signed, both for the same time.
 * @throws {RangeError} where the lifetime is not positive or no name is given.
 */
export async function issueSelfSigned(options: SelfSignedOptions): Promise<SelfSigned> {
  const ca = await issueCa(options);
  return { caPem: ca.certPem, ...(await issueServing({ ...options, ca })) };
}
