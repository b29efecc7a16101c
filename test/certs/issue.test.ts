import { spawnSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import tap from "tap";
import { issueCa, issueServing } from "../../src/certs/issue.ts";
import { dnsNamesOf, ipAddressesOf, serverNameOf } from "../../src/certs/service-names.ts";

const NOW = new Date(Math.floor(Date.now() / 1000) * 1000);
const DAY_MS = 86_400_000;
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

const hasOpenssl = spawnSync("openssl", ["version"]).error === undefined;

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
