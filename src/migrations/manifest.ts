import { type GroupVersionResource, MIGRATION_API_VERSION, resourceNameOf } from "../api/migration.ts";
import type { ObjectMeta, OwnerReference } from "../api/meta.ts";

type Marks = Pick<ObjectMeta, "annotations" | "labels" | "ownerReferences">;

/** The StorageVersionMigration of a resource as it is created: the API server adds to the name what makes it unique. */
export function manifestOf(
  { group = "", version, resource }: GroupVersionResource,
  metadata: Marks = {},
): {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: Marks & { readonly generateName: string };
  readonly spec: { readonly resource: GroupVersionResource };
} {
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
  return { apiVersion: "apiextensions.k8s.io/v1", kind: "CustomResourceDefinition", name, uid };
}
