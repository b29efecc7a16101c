import type { X509Certificate } from "node:crypto";
import { isValidAt, periodOf } from "../serving/certificates.ts";
import { certificatesIn } from "./secret-contents.ts";

/** What {@link distrustOf} looks at. */
export interface TrustInput {
  /** Base64 of PEM, as a webhook configuration has it; not empty. */
  readonly caBundle: string;
  /** PEM of the certificate that is served, with its chain behind it. */
  readonly certPem: string;
  /** Milliseconds since the Unix epoch. */
  readonly now: number;
}

/**
 * Why an API server with this caBundle refuses the certificate; `undefined` where it accepts it. As Go's x509.Verify
 * has it, any certificate of the bundle ends a chain, whether it signed itself or not and the served one included, and
 * all of a chain must be valid. Names are not looked at.
 */
export function distrustOf({ caBundle, certPem, now }: TrustInput): string | undefined {
  const trusted = certificatesIn(Buffer.from(caBundle, "base64").toString("utf8"));
  if (trusted.length === 0) {
    return "it holds no certificate that can be read";
  }
  const [served, ...sent] = certificatesIn(certPem);
  if (served === undefined) {
    return "there is no serving certificate that can be read";
  }
  const outdated: X509Certificate[] = [];
  if (isTrusted(served, { trusted, sent, now, outdated }, [])) {
    return undefined;
  }
  const [first] = outdated;
  return first === undefined
    ? `none of its CAs signed the serving certificate, whose issuer is ${nameOf(served.issuer)}`
    : `${nameOf(first.subject)} is valid from ${first.validFromDate.toISOString()} to ${first.validToDate.toISOString()}`;
}

interface Search {
  readonly trusted: readonly X509Certificate[];
  /** Sent beside the served one: they lead to one that is trusted, and are not trusted by themselves. */
  readonly sent: readonly X509Certificate[];
  readonly now: number;
  /** Gets those that would do, were they valid. */
  readonly outdated: X509Certificate[];
}

/** @param below what led here, so that CAs that signed each other do not make it loop */
function isTrusted(certificate: X509Certificate, search: Search, below: readonly X509Certificate[]): boolean {
  const { trusted, sent, now, outdated } = search;
  if (!isValidAt(periodOf(certificate), now)) {
    outdated.push(certificate);
    return false;
  }
  const isSame = (other: X509Certificate): boolean => other.fingerprint256 === certificate.fingerprint256;
  if (trusted.some(isSame)) {
    return true;
  }
  const path = [...below, certificate];
  return [...trusted, ...sent].some(
    (ca) => !path.includes(ca) && isSignedBy(certificate, ca) && isTrusted(ca, search, path),
  );
}

/**
 * By name and signature alone, as Go has it. X509Certificate.checkIssued() also compares the authority key identifier,
 * which names the serial number of a CA that was renewed since in some PKIs.
 */
function isSignedBy(certificate: X509Certificate, ca: X509Certificate): boolean {
  try {
    return certificate.issuer === ca.subject && certificate.verify(ca.publicKey);
  } catch {
    // A key of a kind that OpenSSL does not know has signed nothing that it could check.
    return false;
  }
}

/**
 * A name in quotes, on one line: node:crypto gives it a line for each of its parts, and nothing where it is empty, as
 * cert-manager leaves the subject.
 */
function nameOf(name: string | undefined): string {
  return name === undefined ? "a certificate without a name" : `"${name.replaceAll("\n", ", ")}"`;
}
