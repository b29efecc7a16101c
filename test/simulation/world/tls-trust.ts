import { X509Certificate } from "node:crypto";

/** Parsed once: the same ones are looked at again and again. */
const bundles = new Map<string, readonly X509Certificate[]>();
const served = new Map<string, X509Certificate>();
/** Whether one of a bundle signed a certificate, by both texts. */
const signed = new WeakMap<X509Certificate, Map<string, readonly X509Certificate[]>>();
/** In milliseconds since the Unix epoch: each of its dates is parsed anew when it is asked for. */
const validities = new WeakMap<X509Certificate, { readonly from: number; readonly to: number }>();
const MAX_KNOWN = 64;

/**
 * Whether a client that trusts a `caBundle` takes a certificate, as Go's crypto/tls decides where no intermediate CAs are sent.
 * @param caBundle base64 of PEM
 * @param now milliseconds since the Unix epoch
 */
export function isTrusted(caBundle: string, certPem: string, now: number): boolean {
  const certificate = remembered(served, certPem, () => new X509Certificate(certPem));
  if (!isValid(certificate, now)) return false;
  return signersOf(certificate, caBundle).some((ca) => isValid(ca, now));
}

/** The certificates of a `caBundle`. */
export function certificatesOf(caBundle: string): readonly X509Certificate[] {
  return remembered(bundles, caBundle, () => {
    const text = Buffer.from(caBundle, "base64").toString("utf8");
    const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
    return blocks.map((block) => new X509Certificate(block));
  });
}

function signersOf(certificate: X509Certificate, caBundle: string): readonly X509Certificate[] {
  const known = signed.get(certificate) ?? new Map<string, readonly X509Certificate[]>();
  signed.set(certificate, known);
  return remembered(known, caBundle, () =>
    certificatesOf(caBundle).filter((ca) => ca.subject === certificate.issuer && certificate.verify(ca.publicKey)),
  );
}

function isValid(certificate: X509Certificate, now: number): boolean {
  let validity = validities.get(certificate);
  if (validity === undefined) {
    const { validFromDate, validToDate } = certificate;
    validities.set(certificate, (validity = { from: validFromDate.getTime(), to: validToDate.getTime() }));
  }
  return validity.from <= now && now < validity.to;
}

function remembered<T>(known: Map<string, T>, key: string, make: () => T): T {
  let found = known.get(key);
  if (found === undefined) {
    found = make();
    if (known.size >= MAX_KNOWN) known.clear();
    known.set(key, found);
  }
  return found;
}
