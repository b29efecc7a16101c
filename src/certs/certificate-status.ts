import type { X509Certificate } from "node:crypto";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { findConfiguration, publishedBundleOf, trustsAll } from "./ca-bundle.ts";
import { periodOf } from "../serving/certificates.ts";
import { brokenReason, renewalTimeOf } from "./rotation-plan.ts";
import { contentsOf, factsOf, type SecretContents } from "./secret-contents.ts";
import { readSecret } from "./secret-store.ts";

/** One certificate, for a user. Times are RFC 3339. */
export interface StatusOfCertificate {
  readonly subject: string;
  readonly fingerprint: string;
  readonly serialNumber: string;
  readonly notBefore: string;
  readonly notAfter: string;
  /** When it is to be renewed. */
  readonly renewal: string;
  /** By the API server's clock. */
  readonly expired: boolean;
  readonly notYetValid: boolean;
}

/** The certificates of a Secret and how far a rotation is, for a user; no key is among it. */
export interface CertificateStatus {
  /** `unusable`: API servers refuse what is served. */
  readonly phase: "steady" | "new CA introduced" | "old CA still trusted" | "unusable";
  readonly ca: StatusOfCertificate | undefined;
  readonly nextCa: StatusOfCertificate | undefined;
  readonly serving: (StatusOfCertificate & { readonly names: string }) | undefined;
  /** Fingerprints of the CAs that are trusted. */
  readonly bundle: readonly string[];
  /** What the webhook configuration makes of it. */
  readonly caBundle: "published" | "differs" | "not installed";
}

/**
 * Reads how the certificates are.
 * @throws {KsvmError} NotFound where there is no Secret, CertificateSecretUnusable if it belongs to another owner.
 */
export async function certificateStatus(
  client: Client,
  options: {
    readonly namespace: string;
    readonly secret: string;
    readonly webhookConfiguration: string;
    readonly renewBefore: number;
    readonly clock: Clock;
    readonly signal: AbortSignal;
  },
): Promise<CertificateStatus> {
  const { namespace, secret: name, webhookConfiguration, renewBefore, clock, signal } = options;
  const { secret, serverTime } = await readSecret(client, { namespace, name }, signal);
  if (secret === undefined) {
    throw new KsvmError("NotFound", `Cannot find Secret "${namespace}/${name}": run ksvm certs ensure`);
  }
  const now = serverTime ?? clock.now();
  const contents = contentsOf(secret);
  const published = publishedBundleOf(await findConfiguration(client, webhookConfiguration, signal));
  const statusOf = (certificate: X509Certificate | undefined): StatusOfCertificate | undefined =>
    certificate && statusOfCertificate(certificate, renewBefore, now);
  const serving = statusOf(contents.serving);
  return {
    phase: phaseOf(contents, now),
    ca: statusOf(contents.signer?.certificate),
    nextCa: statusOf(contents.next?.certificate),
    serving: serving && { ...serving, names: contents.serving?.subjectAltName ?? "" },
    bundle: contents.bundle.map(({ fingerprint256 }) => fingerprint256),
    caBundle:
      published === undefined ? "not installed" : trustsAll(published, contents.bundle) ? "published" : "differs",
  };
}

function phaseOf(contents: SecretContents, now: number): CertificateStatus["phase"] {
  if (brokenReason(factsOf(contents, []), now) !== undefined) {
    return "unusable";
  }
  if (contents.next !== undefined) {
    return "new CA introduced";
  }
  return contents.bundle.length > 1 ? "old CA still trusted" : "steady";
}

function statusOfCertificate(certificate: X509Certificate, renewBefore: number, now: number): StatusOfCertificate {
  const { subject, fingerprint256, serialNumber, validFromDate, validToDate } = certificate;
  const facts = { fingerprint: fingerprint256, ...periodOf(certificate) };
  return {
    subject,
    fingerprint: fingerprint256,
    serialNumber,
    notBefore: validFromDate.toISOString(),
    notAfter: validToDate.toISOString(),
    renewal: new Date(renewalTimeOf(facts, renewBefore)).toISOString(),
    expired: facts.notAfter <= now,
    notYetValid: facts.notBefore > now,
  };
}
