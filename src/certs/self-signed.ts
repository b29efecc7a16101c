import { randomBytes } from "node:crypto";
import { promisify } from "node:util";
import forge from "node-forge";

/** What the serving certificate is for. */
export interface SelfSignedOptions {
  readonly dnsNames: readonly string[];
  readonly ipAddresses: readonly string[];
  /** The moment of issue. */
  readonly now: Date;
  /** Milliseconds that both certificates are valid, from `now`. */
  readonly lifetimeMs: number;
}

/** PEM texts. The CA's key is not among them: it is forgotten once it has signed. */
export interface SelfSigned {
  readonly caPem: string;
  readonly certPem: string;
  readonly keyPem: string;
}

/** Certificates are valid from this many milliseconds before `now`, for machines whose clocks lag behind. */
export const BACKDATE_MS = 5 * 60_000;

type Extension = Readonly<Record<string, unknown>>;

// The callback form leaves the work to OpenSSL, off the event loop; the plain one is slow JavaScript.
const generateKeyPair = promisify<{ bits: number }, forge.pki.rsa.KeyPair>(forge.pki.rsa.generateKeyPair);

/**
 * Issues a CA and a serving certificate that it signed: RSA 2048, SHA-256, with what RFC 5280 asks of both (section
 * 4.2.1: basic constraints, key usage, subject and authority key identifiers).
 * @throws {RangeError} where the lifetime is not positive or no name is given.
 */
export async function issueSelfSigned(options: SelfSignedOptions): Promise<SelfSigned> {
  assertIssuable(options);
  const [caKeys, keys] = await Promise.all([generateKeyPair({ bits: 2048 }), generateKeyPair({ bits: 2048 })]);
  const ca = issue(options, {
    commonName: "ksvm-webhook-ca",
    publicKey: caKeys.publicKey,
    issuer: "itself",
    signingKey: caKeys.privateKey,
    extensions: [
      { name: "basicConstraints", critical: true, cA: true, pathLenConstraint: 0 },
      { name: "keyUsage", critical: true, keyCertSign: true, cRLSign: true },
    ],
  });
  const cert = issue(options, {
    commonName: "ksvm-webhook",
    publicKey: keys.publicKey,
    issuer: ca,
    signingKey: caKeys.privateKey,
    extensions: [
      { name: "basicConstraints", critical: true, cA: false },
      { name: "keyUsage", critical: true, digitalSignature: true, keyEncipherment: true },
      { name: "extKeyUsage", serverAuth: true },
      { name: "subjectAltName", altNames: altNamesOf(options) },
    ],
  });
  return {
    caPem: forge.pki.certificateToPem(ca),
    certPem: forge.pki.certificateToPem(cert),
    keyPem: forge.pki.privateKeyToPem(keys.privateKey),
  };
}

interface Template {
  readonly commonName: string;
  readonly publicKey: forge.pki.rsa.PublicKey;
  readonly issuer: forge.pki.Certificate | "itself";
  readonly signingKey: forge.pki.rsa.PrivateKey;
  readonly extensions: readonly Extension[];
}

function issue({ now, lifetimeMs }: SelfSignedOptions, template: Template): forge.pki.Certificate {
  const cert = forge.pki.createCertificate();
  const issuer = template.issuer === "itself" ? cert : template.issuer;
  cert.publicKey = template.publicKey;
  cert.serialNumber = randomSerialNumber();
  cert.validity.notBefore = new Date(now.getTime() - BACKDATE_MS);
  cert.validity.notAfter = new Date(now.getTime() + lifetimeMs);
  cert.setSubject([{ name: "commonName", value: template.commonName }]);
  cert.setIssuer(issuer.subject.attributes);
  cert.setExtensions([
    ...template.extensions,
    { name: "subjectKeyIdentifier" },
    { name: "authorityKeyIdentifier", keyIdentifier: issuer.generateSubjectKeyIdentifier().getBytes() },
  ]);
  cert.sign(template.signingKey, forge.md.sha256.create());
  return cert;
}

/** 126 random bits behind 01: the zero keeps the number positive, the one keeps it from starting with a zero byte. */
function randomSerialNumber(): string {
  const bytes = randomBytes(16);
  bytes.writeUInt8((bytes.readUInt8(0) & 0x7f) | 0x40);
  return bytes.toString("hex");
}

/** The GeneralName choices of RFC 5280, section 4.2.1.6: 2 is dNSName, 7 iPAddress. */
function altNamesOf({ dnsNames, ipAddresses }: SelfSignedOptions): readonly Extension[] {
  return [...dnsNames.map((value) => ({ type: 2, value })), ...ipAddresses.map((ip) => ({ type: 7, ip }))];
}

function assertIssuable({ dnsNames, ipAddresses, lifetimeMs }: SelfSignedOptions): void {
  if (!(lifetimeMs > 0)) {
    throw new RangeError(`Cannot issue a certificate: lifetimeMs is ${lifetimeMs}, which must be positive`);
  }
  if (dnsNames.length + ipAddresses.length === 0) {
    throw new RangeError("Cannot issue a certificate: it needs a DNS name or an IP address");
  }
}
