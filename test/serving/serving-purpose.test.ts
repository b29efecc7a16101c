import forge from "node-forge";
import tap from "tap";
import { purposeProblemOf } from "../../src/serving/serving-purpose.ts";

const keys = forge.pki.rsa.generateKeyPair({ bits: 2048, e: 0x10001 });

/** A certificate with these extensions. Its common name counts for nothing. */
function certificate(...extensions: readonly object[]): string {
  const cert = forge.pki.createCertificate();
  cert.publicKey = keys.publicKey;
  cert.serialNumber = "01";
  cert.setSubject([{ name: "commonName", value: "webhook.ksvm.svc" }]);
  cert.setIssuer([{ name: "commonName", value: "ca" }]);
  cert.setExtensions([...extensions]);
  cert.sign(keys.privateKey, forge.md.sha256.create());
  return forge.pki.certificateToPem(cert);
}

const DNS = (value: string) => ({ type: 2, value });
const NAMES = (...altNames: readonly object[]) => ({ name: "subjectAltName", altNames });
const SERVER = { name: "extKeyUsage", serverAuth: true };

const good: readonly [name: string, pem: string, serverName: string][] = [
  ["its name", certificate(NAMES(DNS("webhook.ksvm.svc")), SERVER), "webhook.ksvm.svc"],
  ["one of its names", certificate(NAMES(DNS("a"), DNS("webhook.ksvm.svc")), SERVER), "webhook.ksvm.svc"],
  ["a wildcard", certificate(NAMES(DNS("*.ksvm.svc")), SERVER), "webhook.ksvm.svc"],
  ["its address", certificate(NAMES({ type: 7, ip: "10.0.0.1" }), SERVER), "10.0.0.1"],
  ["no usages, which means all", certificate(NAMES(DNS("webhook.ksvm.svc"))), "webhook.ksvm.svc"],
  [
    "any usage",
    certificate(NAMES(DNS("webhook.ksvm.svc")), { name: "extKeyUsage", "2.5.29.37.0": true }),
    "webhook.ksvm.svc",
  ],
];

for (const [name, pem, serverName] of good) {
  await tap.test(`purposeProblemOf() takes a certificate with ${name}`, async (t) => {
    t.equal(purposeProblemOf(pem, serverName), undefined);
  });
}

const bad: readonly [name: string, pem: string, problem: RegExp][] = [
  [
    "another name",
    certificate(NAMES(DNS("other.ksvm.svc")), SERVER),
    /not valid for webhook.ksvm.svc.*DNS:other.ksvm.svc$/,
  ],
  ["a common name alone", certificate(SERVER), /not valid for webhook.ksvm.svc.*its names: none$/],
  ["an address alone", certificate(NAMES({ type: 7, ip: "10.0.0.1" }), SERVER), /not valid for webhook.ksvm.svc/],
  [
    "the usage of clients",
    certificate(NAMES(DNS("webhook.ksvm.svc")), { name: "extKeyUsage", clientAuth: true }),
    /its extended key usage lacks serverAuth$/,
  ],
];

for (const [name, pem, problem] of bad) {
  await tap.test(`purposeProblemOf() refuses a certificate with ${name}`, async (t) => {
    t.match(purposeProblemOf(pem, "webhook.ksvm.svc"), problem);
  });
}
