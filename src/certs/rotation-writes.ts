import type { X509Certificate } from "node:crypto";
import { isValidBy, pemOf } from "./ca-bundle.ts";
import { issueCa, issueServing, type KeySource, type Validity } from "./issue.ts";
import type { TwoClocks } from "./rotation-plan.ts";
import {
  type CaPair,
  factsOf,
  isIssuedBy,
  KEYS,
  type SecretContents,
  SEEN_ANNOTATION,
  SWITCHED_ANNOTATION,
} from "./secret-contents.ts";
import type { SecretChange } from "./secret-store.ts";
import { dnsNamesOf, ipAddressesOf, isOfAnotherNamespace, namesIn, type ServiceNames } from "./service-names.ts";

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
  /**
   * CAs that the Secret does not have and replicas may go on serving certificates of: they are trusted until that is
   * over.
   */
  readonly kept: readonly X509Certificate[];
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
  const { kept } = options;
  const keeping = keepingIn(bundle, kept);
  const validity = validityOf(options.caLifetimeMs, options);
  switch (step) {
    case "create": {
      const ca = await issueCa(validity);
      const trusted = `${ca.certPem}${pemOf([...trustedBefore(contents, options), ...kept])}`;
      const data = { [KEYS.bundle]: trusted, [KEYS.caKey]: ca.keyPem, ...NO_NEXT };
      return { data: { ...data, ...(await servingData(ca, options)) }, annotations: NO_STAMPS };
    }
    case "introduceCa": {
      const ca = await issueCa(validity);
      const data = { [KEYS.bundle]: `${pemOf(bundle)}${ca.certPem}` };
      return { data: { ...data, [KEYS.nextCa]: ca.certPem, [KEYS.nextCaKey]: ca.keyPem }, annotations: NO_STAMPS };
    }
    case "switchCa": {
      const ca = required(next);
      const data = { ...keeping, [KEYS.caKey]: ca.keyPem, ...NO_NEXT, ...(await servingData(ca, options)) };
      return { data, annotations: NO_STAMPS };
    }
    case "renewServing": {
      const extraNames = withNamesOf(contents, options);
      const data = { ...keeping, ...(await servingData(required(signer), { ...options, extraNames })) };
      return { data, annotations: isSameCa(contents) && kept.length === 0 ? {} : { [SWITCHED_ANNOTATION]: undefined } };
    }
    case "dropOldCas":
      return { data: { [KEYS.bundle]: required(signer).certPem }, annotations: NO_STAMPS };
  }
}

/** The CAs that a new one joins; none of another installation, by whose pair API servers call no replica. */
function trustedBefore(
  { bundle = [], serving }: Partial<SecretContents> = {},
  { namespace, now, otherNow = now }: IssueOptions & Issuing,
): readonly X509Certificate[] {
  const isForeign = serving !== undefined && isOfAnotherNamespace(serving, namespace);
  return isForeign ? [] : bundle.filter((one) => isValidBy([now, otherNow], one));
}

/** Whether the CA that signs now has signed what is there, too. */
function isSameCa({ signer, serving }: Partial<SecretContents> = {}): boolean {
  return signer !== undefined && serving !== undefined && isIssuedBy(serving, signer.certificate);
}

function keepingIn(bundle: readonly X509Certificate[], kept: readonly X509Certificate[]): Record<string, string> {
  return kept.length === 0 ? {} : { [KEYS.bundle]: pemOf([...bundle, ...kept]) };
}

/**
 * The further names. Where the certificate that is there lacks one, those that it has stay until it is renewed for
 * another reason: another process may need them, as during a rollout of another URL.
 */
function withNamesOf(contents: SecretContents | undefined, names: ServiceNames): readonly string[] {
  const { extraNames = [] } = names;
  const facts = contents && factsOf(contents, [...dnsNamesOf(names), ...ipAddressesOf(names)]);
  const isNameLacking = facts?.serving?.coversNames === false && facts.serving.issuer === facts.signer?.fingerprint;
  return isNameLacking ? [...extraNames, ...namesIn(contents?.serving ?? {})] : extraNames;
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
 * It has to be valid by both clocks, where there are two. One by which nothing is in force now is followed for a
 * lifetime at most, so that a clock that is decades ahead makes no certificate that is valid for decades, and one that
 * is decades behind none that is due as soon as it is issued.
 */
export function validityOf(lifetimeMs: number, options: Omit<Issuing, "kept">): Validity {
  const { keys, now, otherNow = now, isOtherInForce = true } = options;
  const nearest = Math.min(Math.max(otherNow, now - lifetimeMs), now + lifetimeMs);
  return { now: new Date(now), otherNow: new Date(isOtherInForce ? otherNow : nearest), lifetimeMs, keys };
}

function required(ca: CaPair | undefined): CaPair {
  if (ca === undefined) {
    throw new TypeError("Cannot issue a certificate: the plan chose a step that needs a CA, and there is none");
  }
  return ca;
}
