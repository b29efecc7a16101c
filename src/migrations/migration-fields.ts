import {
  ATTEMPT_ANNOTATION,
  CREATED_BY_LABEL,
  FORCE_ANNOTATION,
  HASH_ANNOTATION,
  PRIORITY_ANNOTATION,
  REENCRYPT_ANNOTATION,
  STORAGE_VERSION_ANNOTATION,
  STORED_VERSIONS_ANNOTATION,
} from "../api/names.ts";
import type { Projection } from "../old/json/json-projection.ts";

const ANNOTATIONS = [
  ATTEMPT_ANNOTATION,
  FORCE_ANNOTATION,
  HASH_ANNOTATION,
  PRIORITY_ANNOTATION,
  REENCRYPT_ANNOTATION,
  STORAGE_VERSION_ANNOTATION,
  STORED_VERSIONS_ANNOTATION,
] as const;

/**
 * Characters of an annotation, beyond which it counts as absent: then a migration proves nothing. Those that the trigger
 * writes are shorter, and everybody who may create migrations may write a quarter of a megabyte into each.
 */
export const MAX_ANNOTATION_LENGTH = 1_024;

/** Of what is read for people alone. This program writes no longer one. */
const TEXT: Projection = { maxLength: 4_096 };

/**
 * What is read of a StorageVersionMigration by those that follow all of them: some hundred bytes of an object that may be a
 * megabyte with its managedFields, its failures and the annotations of others. The rest is there where one is read by its name.
 */
export const MIGRATION_FIELDS: Projection = fields({
  metadata: fields({
    name: "all",
    uid: "all",
    resourceVersion: "all",
    generation: "all",
    creationTimestamp: "all",
    deletionTimestamp: "all",
    labels: fields({ [CREATED_BY_LABEL]: "all" }),
    annotations: fields(Object.fromEntries(ANNOTATIONS.map((name) => [name, { maxLength: MAX_ANNOTATION_LENGTH }]))),
  }),
  spec: fields({
    resource: fields({ group: "all", version: "all", resource: "all" }),
    suspend: "all",
    ttlSecondsAfterFinished: "all",
  }),
  status: fields({
    observedGeneration: "all",
    conditions: {
      items: fields({ type: "all", status: "all", reason: TEXT, message: TEXT, lastUpdateTime: "all" }),
    },
    crd: { maxLength: MAX_ANNOTATION_LENGTH },
    progress: { maxLength: MAX_ANNOTATION_LENGTH },
    completionTime: "all",
  }),
});

function fields(of: Readonly<Record<string, Projection>>): Projection {
  return { fields: of };
}
