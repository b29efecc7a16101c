import { generateKeyPair } from "node:crypto";
import { promisify } from "node:util";

import forge from "node-forge";

/** A key pair as PEM texts. */
export interface KeyPair {
  readonly publicKey: string;
  readonly privateKey: string;
}

/** What an apiserver needs to serve TLS, and its clients to check it; all PEM. */
export interface ServingCertificate {
  readonly ca: string;
  readonly certificate: string;
  readonly privateKey: string;
}

const DAY_MS = 24 * 60 * 60 * 1000;

/** Makes an RSA key of 2048 bits, off the main thread. */
export function makeKeyPair(): Promise<KeyPair> {
  return promisify(generateKeyPair)("rsa", {
    modulusLength: 2048,
    publicKeyEncoding: { type: "spki", format: "pem" },
    privateKeyEncoding: { type: "pkcs8", format: "pem" },
  });
}

/** Makes a CA and a serving certificate for 127.0.0.1, localhost and kubernetes.default.svc, valid for ten years. */
export async function makeServingCertificate(): Promise<ServingCertificate> {
  const [caKeys, keys] = await Promise.all([makeKeyPair(), makeKeyPair()]);
  const issuer = [{ name: "commonName", value: "ksvm test control plane CA" }];
  const ca = makeCertificate(caKeys, caKeys, { subject: issuer, issuer, serial: "01" }, [
    { name: "basicConstraints", cA: true, critical: true },
    { name: "keyUsage", keyCertSign: true, digitalSignature: true, critical: true },
    { name: "subjectKeyIdentifier" },
  ]);
  const subject = [{ name: "commonName", value: "kube-apiserver" }];
  const certificate = makeCertificate(keys, caKeys, { subject, issuer, serial: "02" }, [
    { name: "basicConstraints", cA: false, critical: true },
    { name: "keyUsage", digitalSignature: true, keyEncipherment: true, critical: true },
    { name: "extKeyUsage", serverAuth: true },
    { name: "subjectAltName", altNames: ALT_NAMES },
  ]);
  return { ca, certificate, privateKey: keys.privateKey };
}

// forge's types: 2 is a DNS name, 7 an IP address.
const ALT_NAMES = [
  { type: 7, ip: "127.0.0.1" },
  { type: 2, value: "localhost" },
  { type: 2, value: "kubernetes.default.svc" },
];

interface Names {
  readonly subject: forge.pki.CertificateField[];
  readonly issuer: forge.pki.CertificateField[];
  readonly serial: string;
}

function makeCertificate(keys: KeyPair, signer: KeyPair, names: Names, extensions: unknown[]): string {
  const certificate = forge.pki.createCertificate();
  certificate.publicKey = forge.pki.publicKeyFromPem(keys.publicKey);
  certificate.serialNumber = names.serial;
  certificate.validity.notBefore = new Date(Date.now() - DAY_MS);
  certificate.validity.notAfter = new Date(Date.now() + 3650 * DAY_MS);
  certificate.setSubject(names.subject);
  certificate.setIssuer(names.issuer);
  certificate.setExtensions(extensions);
  certificate.sign(forge.pki.privateKeyFromPem(signer.privateKey), forge.md.sha256.create());
  return forge.pki.certificateToPem(certificate);
}
