import type { ApiserverOptions } from "../../control-plane/apiserver.ts";
import { encryptionConfig } from "../../control-plane/encryption.ts";

/** The keys of both API servers of the script, the one that each writes with first. */
export const KEYS = [
  ["key1", "key2"],
  ["key2", "key1"],
] as const;

/** As trigger-upgrade.test.ts: with it the storage version of a built-in resource differs between 1.33 and 1.36. */
export const SERVED: ApiserverOptions = {
  featureGates: { VolumeAttributesClass: true },
  runtimeConfig: { "storage.k8s.io/v1beta1": true },
};

/** What differs between the real API servers of the script: keys, and a host name and so an identity Lease each. */
export const OVERRIDES: readonly ApiserverOptions[] = KEYS.map((keys, index) => ({
  encryptionConfig: encryptionConfig(keys, ["secrets"]),
  hostname: `apiserver-${index}`,
}));
