import { issueSelfSigned } from "../certs/self-signed.ts";
import { ServingCertificate, type ServingPair } from "../../src/webhook/serving-certificate.ts";

/** A serving certificate of this machine in use, and what a client needs to trust it. */
export interface IssuedServing {
  readonly caPem: string;
  /** The CA as `caBundle` has it. */
  readonly caBundle: string;
  readonly pair: ServingPair;
  readonly certificate: ServingCertificate;
}

/** Issues a CA and a serving certificate for localhost, and further names, and takes it into use. */
export async function issueServing(...names: readonly string[]): Promise<IssuedServing> {
  const { caPem, ...pair } = await issueSelfSigned({
    dnsNames: ["localhost", ...names],
    ipAddresses: ["127.0.0.1"],
    now: new Date(),
    lifetimeMs: 3_600_000,
  });
  const certificate = new ServingCertificate();
  const problem = certificate.offer(pair);
  if (problem !== undefined) {
    throw new Error(problem);
  }
  return { caPem, caBundle: Buffer.from(caPem).toString("base64"), pair, certificate };
}
