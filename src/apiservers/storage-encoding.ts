/** In which encodings an API server writes custom resources to etcd; it reads both, whichever it writes. */
export const STORAGE_ENCODINGS = ["json", "cbor"] as const;

/**
 * `cbor` with the feature gate CBORServingAndStorage, which API servers have since Kubernetes 1.32. CRDs and built-in resources are
 * stored as they are without it, and no storageVersionHash tells of it.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiextensions-apiserver/pkg/cmd/server/options/options.go
 */
export type StorageEncoding = (typeof STORAGE_ENCODINGS)[number];

const GATE = /^kubernetes_feature_enabled\{(?:[^}]*,)?name="CBORServingAndStorage"[^}]*\} ([01])$/;

/** What one line of the /metrics of an API server says of its encoding; `undefined` on any other line. */
export function encodingIn(line: string): StorageEncoding | undefined {
  const value = GATE.exec(line)?.[1];
  if (value === undefined) {
    return undefined;
  }
  return value === "1" ? "cbor" : "json";
}

/** The encoding as it is written in text. */
export function encodingText(encoding: StorageEncoding): string {
  return encoding.toUpperCase();
}
