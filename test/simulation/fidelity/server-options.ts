import type { ApiserverOptions } from "../../control-plane/apiserver.ts";
import { encryptionConfig } from "../../control-plane/encryption.ts";
import type { ServerVariant } from "./line.ts";

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

/** What an API server of the script is restarted as. */
export const VARIANTS: Readonly<Record<ServerVariant, ApiserverOptions>> = {
  "1.33": { emulatedVersion: "1.33" },
  "with StorageVersions and the in-tree migrator": {
    featureGates: {
      ...SERVED.featureGates,
      StorageVersionAPI: true,
      APIServerIdentity: true,
      StorageVersionMigrator: true,
    },
    runtimeConfig: {
      ...SERVED.runtimeConfig,
      "internal.apiserver.k8s.io/v1alpha1": true,
      "storagemigration.k8s.io/v1beta1": true,
    },
  },
};
