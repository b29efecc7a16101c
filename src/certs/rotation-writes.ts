import type { X509Certificate } from "node:crypto";
import { issueCa, issueServing, type KeySource, type Validity } from "./issue.ts";
import { type CaPair, KEYS, type SecretContents, SEEN_ANNOTATION, SWITCHED_ANNOTATION } from "./secret-contents.ts";
import type { TwoClocks } from "./rotation-step.ts";
import type { SecretChange } from "./secret-store.ts";
import { dnsNamesOf, ipAddressesOf, type ServiceNames } from "./service-names.ts";

/** What certificates are issued with. */
export interface IssueOptions extends ServiceNames {
  /** Milliseconds. */
  readonly caLifetimeMs: number;
  /** Milliseconds. */
  readonly servingLifetimeMs: number;
}

/** When and with what it is issued. */
interface Issuing extends Partial<Omit<TwoClocks, "now">> {
  readonly now: number;
  readonly keys?: KeySource | undefined;
}

/** The steps that issue certificates or leave some out. */
export type WritingStep = "create" | "introduceCa" | "switchCa" | "renewServing" | "dropOldCas";

/** What a step did, for a user. */
export const DONE: Readonly<Record<WritingStep, string>> = {
  create: "created a CA and a serving certificate",
  introduceCa: "added a new CA to the bundle",
  switchCa: "issued the serving certificate from the new CA",
  renewServing: "renewed the serving certificate",
  dropOldCas: "dropped the old CA from the bundle",
};

const NO_NEXT = { [KEYS.nextCa]: undefined, [KEYS.nextCaKey]: undefined };
const NO_STAMPS = { [SEEN_ANNOTATION]: undefined, [SWITCHED_ANNOTATION]: undefined };

/** What a step changes in the Secret; it issues what the step asks for. */
export async function changeOf(
  step: WritingStep,
  contents: SecretContents | undefined,
  options: IssueOptions & Issuing,
): Promise<SecretChange> {
  const { signer, next, bundle = [] } = contents ?? {};
  const validity = validityOf(options.caLifetimeMs, options);
  switch (step) {
    case "create": {
      const ca = await issueCa(validity);
      const data = { [KEYS.bundle]: ca.certPem, [KEYS.caKey]: ca.keyPem, ...NO_NEXT };
      return { data: { ...data, ...(await servingData(ca, options)) }, annotations: NO_STAMPS };
    }
    case "introduceCa": {
      const ca = await issueCa(validity);
      const data = { [KEYS.bundle]: `${pemOf(bundle)}${ca.certPem}` };
      return { data: { ...data, [KEYS.nextCa]: ca.certPem, [KEYS.nextCaKey]: ca.keyPem }, annotations: NO_STAMPS };
    }
    case "switchCa": {
      const ca = required(next);
      const data = { [KEYS.caKey]: ca.keyPem, ...NO_NEXT, ...(await servingData(ca, options)) };
      return { data, annotations: NO_STAMPS };
    }
    case "renewServing":
      return { data: await servingData(required(signer), options) };
    case "dropOldCas":
      return { data: { [KEYS.bundle]: required(signer).certPem }, annotations: NO_STAMPS };
  }
}

async function servingData(
  ca: Pick<CaPair, "certPem" | "keyPem">,
  options: IssueOptions & Issuing,
): Promise<Record<string, string>> {
  const { certPem, keyPem } = await issueServing({
    ca,
    ...validityOf(options.servingLifetimeMs, options),
    dnsNames: dnsNamesOf(options),
    ipAddresses: ipAddressesOf(options),
  });
  return { [KEYS.certificate]: certPem, [KEYS.key]: keyPem };
}

/**
 * It has to be valid by both clocks, where there are two. One by which nothing is in force now is followed for a lifetime at most, so
 * that a clock that is decades ahead makes no certificate that is valid for decades, and one that is decades behind none that is due
 * as soon as it is issued.
 */
export function validityOf(lifetimeMs: number, options: Issuing): Validity {
  const { keys, now, otherNow = now, isOtherInForce = true } = options;
  const nearest = Math.min(Math.max(otherNow, now - lifetimeMs), now + lifetimeMs);
  return { now: new Date(now), otherNow: new Date(isOtherInForce ? otherNow : nearest), lifetimeMs, keys };
}

function pemOf(certificates: readonly X509Certificate[]): string {
  return certificates.map((certificate) => certificate.toString()).join("");
}

function required(ca: CaPair | undefined): CaPair {
  if (ca === undefined) {
    throw new TypeError("Cannot issue a certificate: the plan chose a step that needs a CA, and there is none");
  }
  return ca;
}
