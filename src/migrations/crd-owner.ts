import type { ObjectMeta, OwnerReference } from "../api/meta.ts";
import { apiVersionOf, CRDS } from "../old/kube/resources.ts";

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
