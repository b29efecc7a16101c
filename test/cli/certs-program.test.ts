import { InvalidArgumentError } from "commander";
import tap from "tap";
import type { CertificateStatus } from "../../src/certs/certificate-status.ts";
import { parseAddresses, parseNames, parseShare } from "../../src/cli/certs-program.ts";
import { renderCertificates } from "../../src/cli/render/render-certificates.ts";

await tap.test("parseShare() reads decimals and fractions between 0 and 1", (t) => {
  t.equal(parseShare("1/3"), 1 / 3);
  t.equal(parseShare("0.25"), 0.25);
  for (const text of ["", "0", "1", "1.5", "-0.1", "3/2", "1/0", "0/3", "a", ".5", "1/3/5", "33%"]) {
    t.throws(() => parseShare(text), InvalidArgumentError, text);
  }
  t.end();
});

await tap.test("parseAddresses() reads HOST:PORT, IPv6 in brackets", (t) => {
  t.same(parseAddresses("10.0.0.1:8443, [fd00::1]:443,pod.example:1"), [
    { host: "10.0.0.1", port: 8443 },
    { host: "fd00::1", port: 443 },
    { host: "pod.example", port: 1 },
  ]);
  for (const text of ["", "10.0.0.1", ":8443", "10.0.0.1:0", "10.0.0.1:65536", "fd00::1:443", "a:1,", "https://a:1"]) {
    t.throws(() => parseAddresses(text), InvalidArgumentError, text);
  }
  t.end();
});

await tap.test("parseNames() reads names and addresses with commas between", (t) => {
  t.same(parseNames("a.example.com, 192.0.2.1,fd00::1"), ["a.example.com", "192.0.2.1", "fd00::1"]);
  for (const text of ["", "a,,b", "a b", 'a"b']) {
    t.throws(() => parseNames(text), InvalidArgumentError, text);
  }
  t.end();
});

await tap.test("renderCertificates() shows what there is, with a line for each certificate", (t) => {
  const certificate = {
    subject: "CN=ksvm-webhook-ca",
    fingerprint: "AB:CD:EF:01:23:45:67:89:AB",
    serialNumber: "01",
    notBefore: "2026-01-01T00:00:00.000Z",
    notAfter: "2027-01-01T00:00:00.000Z",
    renewal: "2026-09-01T00:00:00.000Z",
    expired: false,
  };
  const status: CertificateStatus = {
    phase: "new CA introduced",
    ca: certificate,
    nextCa: certificate,
    serving: { ...certificate, names: "DNS:a.b.svc" },
    bundle: ["a", "b"],
    caBundle: "published",
  };
  const row = "2027-01-01T00:00:00.000Z   2026-09-01T00:00:00.000Z   abcdef0123456789";
  t.same(renderCertificates(status).split("\n"), [
    "CERTIFICATE   EXPIRES                    RENEWAL                    FINGERPRINT",
    `CA            ${row}`,
    `next CA       ${row}`,
    `serving       ${row}`,
    "",
    "phase: new CA introduced",
    "CAs in the bundle: 2",
    "caBundle of the webhook configuration: published",
    "valid for: DNS:a.b.svc",
  ]);
  const none = { ...status, ca: undefined, nextCa: undefined, serving: undefined, phase: "unusable" } as const;
  t.equal(renderCertificates(none).split("\n")[0], "CERTIFICATE   EXPIRES   RENEWAL   FINGERPRINT");
  t.end();
});
