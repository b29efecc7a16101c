/** The version of everything that commands print with `-o json` and `-o yaml`. */
const DOCUMENT_API_VERSION = "cli.ksvm.sigs.k8s.io/v1alpha1";

/** What one document is; `RunEvent` is one line of many. */
type DocumentKind =
  | "CertificateStatus"
  | "Check"
  | "Diagnosis"
  | "Initialization"
  | "Plan"
  | "RunEvent"
  | "Status"
  | "Version";

/**
 * What a program reads, as Kubernetes prints its objects: with apiVersion and kind, by which a reader knows the fields.
 */
export function documentOf(kind: DocumentKind, content: object): object {
  return { apiVersion: DOCUMENT_API_VERSION, kind, ...content };
}

/** One line of JSON, without the line break. @param time milliseconds since the Unix epoch */
export function eventLine(time: number, content: object): string {
  return JSON.stringify(documentOf("RunEvent", { time: new Date(time).toISOString(), ...content }));
}
