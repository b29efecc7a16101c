import tap from "tap";
import type { CertificateStatus } from "../../src/certs/certificate-status.ts";
import { renderCertificates } from "../../src/cli/render/render-certificates.ts";

await tap.test("renderCertificates() shows what there is, with a line for each certificate", (t) => {
  const certificate = {
    subject: "CN=ksvm-webhook-ca",
    fingerprint: "AB:CD:EF:01:23:45:67:89:AB",
    serialNumber: "01",
    notBefore: "2026-01-01T00:00:00.000Z",
    notAfter: "2027-01-01T00:00:00.000Z",
    renewal: "2026-09-01T00:00:00.000Z",
    expired: false,
    notYetValid: false,
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
