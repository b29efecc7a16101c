import { spawnSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { type ConnectionOptions, connect, createServer } from "node:tls";
import tap from "tap";
import { issueCa, issueServing } from "../../src/certs/issue.ts";
import { BACKDATE_MS } from "../../src/certs/rotation-plan.ts";
import { type SelfSignedOptions, issueSelfSigned } from "./self-signed.ts";
import { dnsNamesOf, ipAddressesOf, serverNameOf } from "../../src/certs/service-names.ts";

const NOW = new Date(Math.floor(Date.now() / 1000) * 1000);
const DAY_MS = 86_400_000;
const OPTIONS: SelfSignedOptions = {
  dnsNames: ["ksvm-webhook.ksvm-system.svc", "localhost"],
  ipAddresses: ["127.0.0.1", "::1"],
  now: NOW,
  lifetimeMs: DAY_MS,
};

const issued = await issueSelfSigned(OPTIONS);
const ca = new X509Certificate(issued.caPem);
const cert = new X509Certificate(issued.certPem);

await tap.test("issueSelfSigned() issues a serving certificate that its CA signed", (t) => {
  t.ok(cert.verify(ca.publicKey));
  t.ok(cert.checkIssued(ca));
  t.equal(cert.ca, false);
  t.equal(
    cert.subjectAltName,
    "DNS:ksvm-webhook.ksvm-system.svc, DNS:localhost, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1",
  );
  t.same(cert.keyUsage, ["1.3.6.1.5.5.7.3.1"]);
  t.equal(cert.publicKey.asymmetricKeyDetails?.modulusLength, 2048);
  t.ok(ca.verify(ca.publicKey));
  t.equal(ca.ca, true);
  t.not(ca.publicKey.export({ format: "pem", type: "spki" }), cert.publicKey.export({ format: "pem", type: "spki" }));
  t.end();
});

await tap.test("issueSelfSigned() is valid from a little before now to the end of the lifetime", (t) => {
  for (const { validFromDate, validToDate } of [ca, cert]) {
    t.equal(validFromDate.getTime(), NOW.getTime() - BACKDATE_MS);
    t.equal(validToDate.getTime(), NOW.getTime() + DAY_MS);
  }
  t.end();
});

await tap.test("issueSelfSigned() is accepted by node:tls under each name, and under no other", async (t) => {
  const server = createServer({ cert: issued.certPem, key: issued.keyPem }, (socket) => socket.end());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  for (const servername of OPTIONS.dnsNames) {
    t.equal(await handshake({ port, host: "127.0.0.1", servername, ca: issued.caPem }), "authorized", servername);
  }
  t.equal(await handshake({ port, host: "127.0.0.1", ca: issued.caPem }), "authorized", "127.0.0.1");
  t.equal(
    await handshake({ port, host: "127.0.0.1", servername: "other.svc", ca: issued.caPem }),
    "ERR_TLS_CERT_ALTNAME_INVALID",
  );
  const { caPem } = await issueSelfSigned(OPTIONS);
  t.equal(
    await handshake({ port, host: "127.0.0.1", servername: "localhost", ca: caPem }),
    "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
    "another CA of the same name",
  );
});

const hasOpenssl = spawnSync("openssl", ["version"]).error === undefined;

await tap.test(
  "issueSelfSigned() passes the strict checks of OpenSSL",
  { skip: hasOpenssl ? false : "openssl is not installed" },
  (t) => {
    const dir = t.testdir();
    const [caFile, certFile] = [join(dir, "ca.pem"), join(dir, "cert.pem")];
    writeFileSync(caFile, issued.caPem);
    writeFileSync(certFile, issued.certPem);
    const verify = ["verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", caFile];
    t.equal(openssl(...verify, "-verify_hostname", "localhost", certFile).trim(), `${certFile}: OK`);
    t.equal(openssl(...verify, "-verify_ip", "127.0.0.1", certFile).trim(), `${certFile}: OK`);
    const caText = openssl("x509", "-in", caFile, "-noout", "-text");
    t.match(caText, /Signature Algorithm: sha256WithRSAEncryption/);
    t.match(caText, /Basic Constraints: critical\s+CA:TRUE, pathlen:0/);
    t.match(caText, /Key Usage: critical\s+Certificate Sign, CRL Sign/);
    const certText = openssl("x509", "-in", certFile, "-noout", "-text");
    t.match(certText, /Signature Algorithm: sha256WithRSAEncryption/);
    t.match(certText, /Basic Constraints: critical\s+CA:FALSE/);
    t.match(certText, /Key Usage: critical\s+Digital Signature, Key Encipherment/);
    t.match(certText, /Extended Key Usage:\s+TLS Web Server Authentication/);
    t.equal(keyId(certText, "Authority"), keyId(caText, "Subject"));
    t.not(keyId(certText, "Subject"), keyId(caText, "Subject"));
    t.end();
  },
);

async function handshake(options: ConnectionOptions): Promise<string | undefined> {
  const socket = connect(options);
  try {
    await once(socket, "secureConnect");
    return "authorized";
  } catch (error) {
    return (error as NodeJS.ErrnoException).code;
  } finally {
    socket.destroy();
  }
}

function openssl(...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync("openssl", args, { encoding: "utf8" });
  if (status !== 0) {
    throw new Error(`openssl ${args[0]} failed: ${stderr}`);
  }
  return stdout;
}

function keyId(certificateText: string, whose: string): string | undefined {
  return new RegExp(`${whose} Key Identifier:\\s+(?:keyid:)?([0-9A-F:]+)`).exec(certificateText)?.[1];
}

const NAMES = { namespace: "ns", service: "hook", extraNames: ["hook.example.com", "192.0.2.7", "fd00::7"] };
const names = { dnsNames: dnsNamesOf(NAMES), ipAddresses: ipAddressesOf(NAMES) };

const [old, next] = await Promise.all([
  issueCa({ now: NOW, lifetimeMs: 10 * DAY_MS }),
  issueCa({ now: NOW, lifetimeMs: 10 * DAY_MS }),
]);
const serving = await issueServing({ ca: next, now: NOW, lifetimeMs: DAY_MS, ...names });

await tap.test("dnsNamesOf() has every name that DNS gives a Service", (t) => {
  t.same(dnsNamesOf({ namespace: "ns", service: "hook" }), [
    "hook.ns.svc",
    "hook.ns.svc.cluster.local",
    "hook.ns",
    "hook",
  ]);
  t.equal(serverNameOf(NAMES), "hook.ns.svc");
  t.end();
});

await tap.test("issueServing() is valid for every name of the Service and no other", (t) => {
  const certificate = new X509Certificate(serving.certPem);
  for (const name of names.dnsNames) t.equal(certificate.checkHost(name), name);
  for (const ip of names.ipAddresses) t.ok(certificate.checkIP(ip), ip);
  t.equal(certificate.checkHost("other.ns.svc"), undefined);
  t.equal(certificate.checkHost("ksvm-webhook"), undefined, "the common name counts for nothing");
  t.end();
});

await tap.test("issueServing() never outlives its CA", async (t) => {
  const { certPem } = await issueServing({ ca: next, now: NOW, lifetimeMs: 100 * DAY_MS, ...names });
  t.equal(new X509Certificate(certPem).validToDate.getTime(), NOW.getTime() + 10 * DAY_MS);
  const late = new Date(NOW.getTime() + 11 * DAY_MS);
  await t.rejects(
    issueServing({ ca: next, now: late, lifetimeMs: DAY_MS, ...names }),
    /its CA cannot sign: it expired at/,
  );
  const early = new Date(NOW.getTime() - DAY_MS);
  await t.rejects(
    issueServing({ ca: next, now: early, lifetimeMs: DAY_MS, ...names }),
    /its CA cannot sign: it is not valid before/,
  );
});

await tap.test("issueCa() gives every CA a name, a key and a serial number of its own", (t) => {
  const [one, other] = [new X509Certificate(old.certPem), new X509Certificate(next.certPem)];
  t.not(one.subject, other.subject);
  t.not(one.serialNumber, other.serialNumber);
  t.not(old.keyPem, next.keyPem);
  t.end();
});

await tap.test(
  "a bundle of two CAs passes the strict checks of OpenSSL, the CA that did not sign does not",
  { skip: hasOpenssl ? false : "openssl is not installed" },
  (t) => {
    const dir = t.testdir();
    const verify = (caText: string, ...args: readonly string[]): string => {
      writeFileSync(join(dir, "ca.crt"), caText);
      writeFileSync(join(dir, "tls.crt"), serving.certPem);
      const all = ["verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", "ca.crt", ...args, "tls.crt"];
      const { stdout, stderr } = spawnSync("openssl", all, { cwd: dir, encoding: "utf8" });
      return `${stdout}${stderr}`;
    };
    const bundle = old.certPem + next.certPem;
    t.equal(verify(bundle, "-verify_hostname", "hook.ns.svc"), "tls.crt: OK\n");
    t.equal(verify(bundle, "-verify_ip", "192.0.2.7"), "tls.crt: OK\n");
    t.match(verify(bundle, "-verify_hostname", "other.ns.svc"), /hostname mismatch/i);
    t.match(verify(old.certPem), /unable to get local issuer certificate/);
    t.end();
  },
);
