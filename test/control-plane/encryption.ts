import { createHash } from "node:crypto";

/** What is encrypted where a test does not say. */
const ENCRYPTED = ["secrets", "*.example.com"];

/**
 * The text of an EncryptionConfiguration: the API server writes with the first key and reads with all of them. A key's
 * bytes follow from its name, so that every configuration of a test means the same key by the same name.
 *
 * https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/
 */
export function encryptionConfig(keys: readonly string[], resources: readonly string[] = ENCRYPTED): string {
  const named = keys.map((name) => ({ name, secret: createHash("sha256").update(name).digest("base64") }));
  return JSON.stringify({
    apiVersion: "apiserver.config.k8s.io/v1",
    kind: "EncryptionConfiguration",
    // Without `identity`: what no key opens cannot be read.
    resources: [{ resources, providers: [{ aescbc: { keys: named } }] }],
  });
}

/** What etcd's stored value of an object begins with, after it was written with this key. */
export function storedWith(key: string): string {
  return `k8s:enc:aescbc:v1:${key}`;
}
