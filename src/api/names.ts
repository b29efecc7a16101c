/** Name of the Service that API servers call the webhook by, unless a flag names another one. */
export const WEBHOOK_SERVICE = "ksvm-webhook";

/** Name of the Secret in which ksvm keeps the certificates of the webhook, unless a flag names another one. */
export const CERTIFICATE_SECRET = "ksvm-webhook-certificates";

/** Owns what `ksvm migrate -f` writes of a CRD, until it hands that over. */
export const UPGRADE_FIELD_MANAGER = "ksvm-upgrade";

/** The field manager of the no-op writes to objects. It owns no field. */
export const REWRITE_FIELD_MANAGER = "ksvm-rewrite";

/** The label on everything this program creates in a cluster, so that it can be found and swept. */
export const MANAGED_BY_LABEL = "app.kubernetes.io/managed-by";

/** The value of {@link MANAGED_BY_LABEL}. */
export const MANAGED_BY = "ksvm";

/** On a StorageVersionMigration, with the value `true`: objects of a CRD that is clean are rewritten all the same. */
export const FORCE_ANNOTATION = "ksvm.sigs.k8s.io/force";

/**
 * On a StorageVersionMigration, with the value `true` or the digest of an EncryptionConfiguration: every object is
 * written again with evidence that all API servers encrypt alike. src/api/reencryption.ts reads it.
 */
export const REENCRYPT_ANNOTATION = "ksvm.sigs.k8s.io/reencrypt";

/** On a CRD, with the value `off`: the trigger leaves it alone. */
export const TRIGGER_ANNOTATION = "ksvm.sigs.k8s.io/trigger";

/** The label on a StorageVersionMigration that says which part of this program created it. */
export const CREATED_BY_LABEL = "ksvm.sigs.k8s.io/created-by";

/** The value of {@link CREATED_BY_LABEL} on migrations of the trigger. */
export const CREATED_BY_TRIGGER = "trigger";

/** The value of {@link CREATED_BY_LABEL} on migrations of `ksvm init`, so that the next one finds them. */
export const CREATED_BY_INIT = "init";

/** On a StorageVersionMigration: the storageVersionHash that it migrates to. */
export const HASH_ANNOTATION = "ksvm.sigs.k8s.io/storage-version-hash";

/** On a StorageVersionMigration of the trigger: how many there were for the same hash, this one included. */
export const ATTEMPT_ANNOTATION = "ksvm.sigs.k8s.io/attempt";

/** On a StorageVersionMigration, with the value `low`: it waits until no other one is pending. */
export const PRIORITY_ANNOTATION = "ksvm.sigs.k8s.io/priority";

/** On a StorageState of a custom resource: `uid/generation/storedVersions` of its CRD when it was last looked at. */
export const CRD_ANNOTATION = "ksvm.sigs.k8s.io/crd";
