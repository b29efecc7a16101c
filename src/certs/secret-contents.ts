import { createPrivateKey, X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import { isOurs } from "../api/ours.ts";
import { KsvmError } from "../errors.ts";
import type { KubeObject } from "../kube/objects.ts";
import { isForServers, periodOf } from "../serving/certificates.ts";
import type { IssuedPair } from "./issue.ts";
import type { CertificateFacts, StoredFacts } from "./rotation-plan.ts";
import { isOfAnotherNamespace } from "./service-names.ts";

/** A Secret of the core group; `data` is in base64. */
export interface SecretObject extends KubeObject {
  readonly type?: string;
  readonly data?: Readonly<Record<string, string>>;
}

/** The type of a Secret that is created: one that may be empty, so that the manifests can hold it. */
export const SECRET_TYPE = "Opaque";
/** Types that a Secret of a user may have, too. */
const KNOWN_TYPES: readonly (string | undefined)[] = [SECRET_TYPE, "kubernetes.io/tls"];

/** The keys: those of `kubernetes.io/tls`, which cert-manager fills as well, and those of our own. */
export const KEYS = {
  certificate: "tls.crt",
  key: "tls.key",
  /** Every CA that must be trusted now. */
  bundle: "ca.crt",
  caKey: "ca.key",
  nextCa: "next-ca.crt",
  nextCaKey: "next-ca.key",
} as const;

/** Since when every API server has shown the bundle that the next CA is in; RFC 3339, the API server's clock. */
export const SEEN_ANNOTATION = "ksvm.sigs.k8s.io/ca-seen-at";
/** When the serving certificate of a new CA had been written for certain; RFC 3339, the API server's clock. */
export const SWITCHED_ANNOTATION = "ksvm.sigs.k8s.io/serving-switched-at";

/** A CA with the key that signs for it. */
export interface CaPair extends IssuedPair {
  readonly certificate: X509Certificate;
}

/** What a Secret holds, as far as it can be used. */
export interface SecretContents {
  /** The CA that signs now: the one of the bundle that `ca.key` belongs to. */
  readonly signer: CaPair | undefined;
  /** The CA that will sign; it is in the bundle already. */
  readonly next: CaPair | undefined;
  readonly bundle: readonly X509Certificate[];
  /** The first one, only where the key belongs to it and all others can be read: else replicas turn the pair down. */
  readonly serving: X509Certificate | undefined;
  readonly seenAt: number | undefined;
  readonly switchedAt: number | undefined;
}

/**
 * Reads what a Secret holds; what is damaged counts as missing.
 * @throws {KsvmError} CertificateSecretUnusable if the Secret belongs to another owner or is of another type.
 */
export function contentsOf(secret: SecretObject): SecretContents {
  assertOurs(secret);
  const text = (key: string): string => decoded(secret, key);
  const bundle = certificatesIn(text(KEYS.bundle));
  const annotations = secret.metadata.annotations ?? {};
  const next = caPairOf(certificatesIn(text(KEYS.nextCa)), text(KEYS.nextCaKey));
  return {
    bundle,
    signer: caPairOf(bundle, text(KEYS.caKey)),
    next: bundle.some(({ fingerprint256 }) => fingerprint256 === next?.certificate.fingerprint256) ? next : undefined,
    serving: servingOf(text(KEYS.certificate), text(KEYS.key)),
    seenAt: timeOf(annotations[SEEN_ANNOTATION]),
    switchedAt: timeOf(annotations[SWITCHED_ANNOTATION]),
  };
}

/**
 * The input of the rotation plan.
 * @param names that the serving certificate must be valid for
 * @param namespace of the installation. @default it may be any
 */
export function factsOf(contents: SecretContents, names: readonly string[], namespace?: string): StoredFacts {
  const { signer, next, bundle, serving, seenAt, switchedAt } = contents;
  return {
    signer: signer && factsOfCertificate(signer.certificate),
    next: next && factsOfCertificate(next.certificate),
    bundle: bundle.map(factsOfCertificate),
    serving: serving && {
      ...factsOfCertificate(serving),
      issuer: bundle.find((ca) => isIssuedBy(serving, ca))?.fingerprint256,
      coversNames: names.every((name) => isCovered(serving, name)),
      flaw: flawOf(serving, namespace),
    },
    seenAt,
    switchedAt,
  };
}

/** Whether `ca` signed the certificate. */
export function isIssuedBy(certificate: X509Certificate, ca: X509Certificate): boolean {
  return certificate.checkIssued(ca) && certificate.verify(ca.publicKey);
}

/** The certificates of a PEM text, in order; those that do not parse are left out. */
export function certificatesIn(pemText: string): readonly X509Certificate[] {
  const blocks = pemText.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return blocks.flatMap((block) => unlessBroken(() => new X509Certificate(block)) ?? []);
}

/** The text of one key of a Secret; empty where it is missing. */
export function decoded(secret: Pick<SecretObject, "data"> | undefined, key: string): string {
  return Buffer.from(secret?.data?.[key] ?? "", "base64").toString("utf8");
}

/** Whether another owner filled the Secret. */
export function isFilledByAnother(secret: SecretObject): boolean {
  return !isKeptByUs(secret) && Object.values(KEYS).some((key) => decoded(secret, key).trim() !== "");
}

/**
 * Whether a Secret holds a certificate that one of its own CAs signed for an installation in its namespace; `true`
 * where that cannot be read.
 */
export function isPairOfItsOwn(secret: SecretObject): boolean {
  const [serving] = certificatesIn(decoded(secret, KEYS.certificate));
  const { namespace } = secret.metadata;
  const isForeign = serving !== undefined && namespace !== undefined && isOfAnotherNamespace(serving, namespace);
  const cas = certificatesIn(decoded(secret, KEYS.bundle));
  return serving === undefined || (!isForeign && cas.some((ca) => isIssuedBy(serving, ca)));
}

/** Whether ksvm filled the Secret. */
function isKeptByUs({ metadata }: SecretObject): boolean {
  return isOurs(metadata.labels);
}

function assertOurs(secret: SecretObject): void {
  const { metadata, type } = secret;
  const name = `Secret "${metadata.namespace}/${metadata.name}"`;
  if (!KNOWN_TYPES.includes(type)) {
    throw new KsvmError(
      "CertificateSecretUnusable",
      `Cannot keep certificates in ${name}: its type is ${type ?? "missing"} and must be ${KNOWN_TYPES.join(" or ")}; ` +
        "delete it or name another",
    );
  }
  if (isFilledByAnother(secret)) {
    throw new KsvmError(
      "CertificateSecretUnusable",
      `Cannot keep certificates in ${name}: another owner filled it (it has no label ${MANAGED_BY_LABEL}=${MANAGED_BY}); ` +
        "delete it or name another",
    );
  }
}

function factsOfCertificate(certificate: X509Certificate): CertificateFacts {
  return { fingerprint: certificate.fingerprint256, ...periodOf(certificate) };
}

function flawOf(serving: X509Certificate, namespace: string | undefined): NonNullable<StoredFacts["serving"]>["flaw"] {
  if (namespace !== undefined && isOfAnotherNamespace(serving, namespace)) {
    return "another installation";
  }
  return isForServers(serving) ? undefined : "not for servers";
}

function isCovered(certificate: X509Certificate, name: string): boolean {
  const match = isIP(name) === 0 ? certificate.checkHost(name, { subject: "never" }) : certificate.checkIP(name);
  return match !== undefined;
}

function caPairOf(certificates: readonly X509Certificate[], keyPem: string): CaPair | undefined {
  const certificate = ownerOf(
    certificates.filter(({ ca }) => ca),
    keyPem,
  );
  return certificate && { certificate, certPem: certificate.toString(), keyPem };
}

function servingOf(certPem: string, keyPem: string): X509Certificate | undefined {
  const chain = certificatesIn(certPem);
  const isWhole = certPem.split("-----BEGIN CERTIFICATE-----").length === chain.length + 1;
  return isWhole ? ownerOf(chain.slice(0, 1), keyPem) : undefined;
}

/** The certificate that a key belongs to. */
function ownerOf(certificates: readonly X509Certificate[], keyPem: string): X509Certificate | undefined {
  const key = unlessBroken(() => createPrivateKey(keyPem));
  return key && certificates.find((certificate) => certificate.checkPrivateKey(key));
}

function timeOf(text: string | undefined): number | undefined {
  const time = Date.parse(text ?? "");
  return Number.isNaN(time) ? undefined : time;
}

function unlessBroken<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    // node:crypto throws for whatever is no PEM of the kind; the plan replaces what is missing.
    return undefined;
  }
}
