import { randomBytes, sign } from "node:crypto";
import { isIP } from "node:net";
import { promisify } from "node:util";
import forge from "node-forge";
import { type ValidityPeriod, whyInvalidAt } from "../serving/certificates.ts";
import { BACKDATE_MS } from "./rotation-plan.ts";

/** PEM texts of a certificate and its key. */
export interface IssuedPair {
  readonly certPem: string;
  readonly keyPem: string;
}

/** Where keys and random numbers come from. */
export interface KeySource {
  /** RSA, 2048 bits. */
  readonly generateKeyPair: () => Promise<forge.pki.rsa.KeyPair>;
  readonly randomBytes: (length: number) => Buffer;
}

// The callback form leaves the work to OpenSSL, off the event loop; the plain one is slow JavaScript.
const generateKeyPair = promisify<{ bits: number }, forge.pki.rsa.KeyPair>(forge.pki.rsa.generateKeyPair);

/** Those of this machine. */
const SYSTEM_KEYS: KeySource = { generateKeyPair: () => generateKeyPair({ bits: 2048 }), randomBytes };

/** From when and for how long a certificate is valid, and with which keys it is made. */
export interface Validity {
  /** The moment of issue. */
  readonly now: Date;
  /** The same moment by another clock, where it is not known which of the two is right. @default there is none */
  readonly otherNow?: Date | undefined;
  /** Milliseconds that it is valid, from `now`. */
  readonly lifetimeMs: number;
  /** @default {@link SYSTEM_KEYS} */
  readonly keys?: KeySource | undefined;
}

/** What a serving certificate is for, and who signs it. */
export interface ServingOptions extends Validity {
  /** The CA that signs; the certificate never outlives it. */
  readonly ca: IssuedPair;
  readonly dnsNames: readonly string[];
  readonly ipAddresses: readonly string[];
}

type Extension = Readonly<Record<string, unknown>>;

/**
 * Issues a CA that signs itself: RSA 2048, SHA-256, with what RFC 5280 asks of it (section 4.2.1: basic constraints,
 * key usage, subject and authority key identifiers). It may sign no further CA (path length 0). Its name is its own, so
 * that a bundle of two CAs leaves no verifier in doubt which of them signed.
 * @throws {RangeError} where the lifetime is not positive.
 */
export async function issueCa(validity: Validity): Promise<IssuedPair> {
  assertLifetime(validity);
  const source = validity.keys ?? SYSTEM_KEYS;
  const keys = await source.generateKeyPair();
  const serialNumber = randomSerialNumber(source);
  const cert = draft(keys.publicKey, serialNumber, `ksvm-webhook-ca-${serialNumber.slice(-8)}`);
  setValidity(cert, validity, undefined);
  return finish(cert, {
    issuer: cert,
    keys,
    extensions: [
      { name: "basicConstraints", critical: true, cA: true, pathLenConstraint: 0 },
      { name: "keyUsage", critical: true, keyCertSign: true, cRLSign: true },
    ],
  });
}

/**
 * Issues a serving certificate: RSA 2048, SHA-256, for TLS servers only, valid no longer than its CA.
 * @throws {RangeError} where the lifetime is not positive, no name is given, or the CA has expired or is not valid yet
 *   by both clocks.
 * @throws {Error} of node-forge or node:crypto where the CA cannot be read.
 */
export async function issueServing(options: ServingOptions): Promise<IssuedPair> {
  const { ca, dnsNames, ipAddresses } = options;
  assertLifetime(options);
  if (dnsNames.length + ipAddresses.length === 0) {
    throw new RangeError("Cannot issue a certificate: it needs a DNS name or an IP address");
  }
  const issuer = forge.pki.certificateFromPem(ca.certPem);
  const period = { notBefore: issuer.validity.notBefore.getTime(), notAfter: issuer.validity.notAfter.getTime() };
  const { now, otherNow = now } = options;
  const [whyInvalid, whyInvalidByOther] = [now, otherNow].map((time) => whyInvalidAt(period, time.getTime()));
  if (whyInvalid !== undefined && whyInvalidByOther !== undefined) {
    throw new RangeError(`Cannot issue a certificate: its CA cannot sign: ${whyInvalid}`);
  }
  const source = options.keys ?? SYSTEM_KEYS;
  const keys = await source.generateKeyPair();
  const cert = draft(keys.publicKey, randomSerialNumber(source), "ksvm-webhook");
  setValidity(cert, options, issuer.validity.notAfter);
  return finish(cert, {
    issuer,
    keys,
    signingKeyPem: ca.keyPem,
    extensions: [
      { name: "basicConstraints", critical: true, cA: false },
      { name: "keyUsage", critical: true, digitalSignature: true, keyEncipherment: true },
      { name: "extKeyUsage", serverAuth: true },
      { name: "subjectAltName", altNames: altNamesOf(options) },
    ],
  });
}

function draft(publicKey: forge.pki.rsa.PublicKey, serialNumber: string, commonName: string): forge.pki.Certificate {
  const cert = forge.pki.createCertificate();
  cert.publicKey = publicKey;
  cert.serialNumber = serialNumber;
  cert.setSubject([{ name: "commonName", value: commonName }]);
  return cert;
}

function setValidity(cert: forge.pki.Certificate, validity: Validity, latest: Date | undefined): void {
  const { notBefore, notAfter } = issuePeriodOf(validity);
  cert.validity.notBefore = new Date(notBefore);
  cert.validity.notAfter = new Date(Math.min(notAfter, latest?.getTime() ?? Number.POSITIVE_INFINITY));
}

/** When what is issued is valid: by both clocks, where there are two. */
export function issuePeriodOf({ now, otherNow = now, lifetimeMs }: Validity): ValidityPeriod {
  const times = [now.getTime(), otherNow.getTime()];
  return { notBefore: Math.min(...times) - BACKDATE_MS, notAfter: Math.max(...times) + lifetimeMs };
}

interface Signing {
  readonly issuer: forge.pki.Certificate;
  readonly keys: forge.pki.rsa.KeyPair;
  /** @default its own */
  readonly signingKeyPem?: string;
  readonly extensions: readonly Extension[];
}

function finish(cert: forge.pki.Certificate, { issuer, keys, signingKeyPem, extensions }: Signing): IssuedPair {
  const keyPem = pemText(forge.pki.privateKeyToPem(keys.privateKey));
  cert.setIssuer(issuer.subject.attributes);
  cert.setExtensions([
    ...extensions,
    { name: "subjectKeyIdentifier" },
    { name: "authorityKeyIdentifier", keyIdentifier: issuer.generateSubjectKeyIdentifier().getBytes() },
  ]);
  const signingKey = { sign: () => signed(cert, signingKeyPem ?? keyPem) } as unknown as forge.pki.rsa.PrivateKey;
  cert.sign(signingKey, forge.md.sha256.create());
  return { certPem: pemText(forge.pki.certificateToPem(cert)), keyPem };
}

/** The signature, by OpenSSL: node-forge computes it in JavaScript, which keeps the event loop busy for 30 ms. */
function signed({ tbsCertificate }: forge.pki.Certificate, keyPem: string): string {
  const der = forge.asn1.toDer(tbsCertificate).getBytes();
  return sign("sha256", Buffer.from(der, "latin1"), keyPem).toString("latin1");
}

/** node-forge ends lines as Windows does, which a YAML of the Secret shows as one long escaped line. */
function pemText(text: string): string {
  return text.replaceAll("\r\n", "\n");
}

/** 126 random bits behind 01: the zero keeps the number positive, the one keeps it from starting with a zero byte. */
function randomSerialNumber({ randomBytes: random }: KeySource): string {
  const bytes = random(16);
  bytes.writeUInt8((bytes.readUInt8(0) & 0x7f) | 0x40);
  return bytes.toString("hex");
}

/** The GeneralName choices of RFC 5280, section 4.2.1.6: 2 is dNSName, 7 iPAddress. */
function altNamesOf({ dnsNames, ipAddresses }: ServingOptions): readonly Extension[] {
  const wrong = ipAddresses.find((ip) => isIP(ip) === 0);
  if (wrong !== undefined) {
    throw new RangeError(`Cannot issue a certificate: "${wrong}" is no IP address`);
  }
  return [...dnsNames.map((value) => ({ type: 2, value })), ...ipAddresses.map((ip) => ({ type: 7, ip }))];
}

function assertLifetime({ lifetimeMs }: Validity): void {
  if (!(lifetimeMs > 0)) {
    throw new RangeError(`Cannot issue a certificate: lifetimeMs is ${lifetimeMs}, which must be positive`);
  }
}
