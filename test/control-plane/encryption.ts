import { createHash } from "node:crypto";

/** What is encrypted where a test does not say. */
const ENCRYPTED = ["secrets", "*.example.com"];

/** Stands for "not encrypted" among the names of keys. */
export const IDENTITY = "identity";

/**
 * The text of an EncryptionConfiguration: the API server writes with the first key and reads with all of them. A key's
 * bytes follow from its name, so that every configuration of a test means the same key by the same name.
 *
 * {@link IDENTITY} is allowed as the first name or the last one.
 *
 * https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/
 */
export function encryptionConfig(keys: readonly string[], resources: readonly string[] = ENCRYPTED): string {
  const named = keys.filter((name) => name !== IDENTITY).map(keyOf);
  const [aescbc, identity] = [named.length === 0 ? [] : [{ aescbc: { keys: named } }], { identity: {} }];
  const withIdentity = keys[0] === IDENTITY ? [identity, ...aescbc] : [...aescbc, identity];
  return JSON.stringify({
    apiVersion: "apiserver.config.k8s.io/v1",
    kind: "EncryptionConfiguration",
    // Without `identity` what no key opens cannot be read.
    resources: [{ resources, providers: keys.includes(IDENTITY) ? withIdentity : aescbc }],
  });
}

/** What etcd's stored value of an object begins with, after it was written with this key. */
export function storedWith(key: string): string {
  return `k8s:enc:aescbc:v1:${key}`;
}

/**
 * The text of an EncryptionConfiguration with a KMS v2 plugin. Its socket is one of the working directory of each API server: so two
 * API servers on one machine use one and the same configuration and each its own plugin, as two machines do.
 */
export function kmsConfig(provider: string, resources: readonly string[] = ENCRYPTED): string {
  return JSON.stringify({
    apiVersion: "apiserver.config.k8s.io/v1",
    kind: "EncryptionConfiguration",
    // Without `identity`: what the plugin cannot decrypt cannot be read.
    resources: [
      { resources, providers: [{ kms: { apiVersion: "v2", name: provider, endpoint: KMS_ENDPOINT, timeout: "10s" } }] },
    ],
  });
}

/** The name of the socket in the working directory of an API server. */
export const KMS_SOCKET = "kms.sock";
const KMS_ENDPOINT = `unix:///proc/self/cwd/${KMS_SOCKET}`;

/** As {@link storedWith}, with the key of a KMS v2 plugin. */
export function storedWithKms(provider: string, keyId: string): string {
  return `k8s:enc:kms:v2:${provider}:${keyId}`;
}

function keyOf(name: string): { readonly name: string; readonly secret: string } {
  return { name, secret: createHash("sha256").update(name).digest("base64") };
}
