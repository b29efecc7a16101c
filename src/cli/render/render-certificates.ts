import type { CertificateStatus, StatusOfCertificate } from "../../certs/certificate-status.ts";
import { renderTable } from "./render-table.ts";

/** The text of `ksvm certs status`, without a line break at its end. */
export function renderCertificates(status: CertificateStatus): string {
  const rows: readonly (readonly [string, StatusOfCertificate | undefined])[] = [
    ["CA", status.ca],
    ["next CA", status.nextCa],
    ["serving", status.serving],
  ];
  const table = renderTable([
    ["CERTIFICATE", "EXPIRES", "RENEWAL", "FINGERPRINT"],
    ...rows.flatMap(([name, certificate]) => (certificate === undefined ? [] : [rowOf(name, certificate)])),
  ]);
  const lines = [
    `phase: ${status.phase}`,
    `CAs in the bundle: ${status.bundle.length}`,
    `caBundle of the webhook configuration: ${status.caBundle}`,
    ...(status.serving === undefined ? [] : [`valid for: ${status.serving.names}`]),
  ];
  return [table, "", ...lines].join("\n");
}

function rowOf(name: string, { notAfter, renewal, fingerprint }: StatusOfCertificate): readonly string[] {
  return [name, notAfter, renewal, fingerprint.replaceAll(":", "").slice(0, 16).toLowerCase()];
}
