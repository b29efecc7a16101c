import { MIGRATION_API_VERSION, resourceNameOf } from "../api/migration.ts";
import type { ObjectMeta, OwnerReference } from "../api/meta.ts";
import type { NewObject } from "../old/kube/client.ts";
import { apiVersionOf, CRDS, type Resource } from "../old/kube/resources.ts";

/** The StorageVersionMigration of a resource as it is created: the API server adds to the name what makes it unique. */
export function manifestOf(
  { group, version, resource }: Resource,
  metadata: Pick<ObjectMeta, "annotations" | "labels" | "ownerReferences"> = {},
): NewObject {
  return {
    apiVersion: MIGRATION_API_VERSION,
    kind: "StorageVersionMigration",
    metadata: { generateName: `${resourceNameOf({ group, resource })}-`, ...metadata },
    spec: { resource: { group, version, resource } },
  };
}

/**
 * The owner of a migration: the CRD of its kind, with which it goes in any case. The garbage collector deletes what has no
 * owner left, a migration that runs, too, so that the owner must be nothing that a user may replace.
 *
 * https://kubernetes.io/docs/concepts/architecture/garbage-collection/#owners-dependents
 * @param crd the metadata of the CRD of StorageVersionMigrations
 */
export function crdOwnerOf({ name, uid }: Pick<ObjectMeta, "name" | "uid">): OwnerReference {
  return { apiVersion: apiVersionOf(CRDS.group, CRDS.version), kind: "CustomResourceDefinition", name, uid };
}
