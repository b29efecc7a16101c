import { MIGRATION_API_VERSION, resourceNameOf } from "../api/migration.ts";
import type { ObjectMeta } from "../api/meta.ts";
import type { NewObject } from "../old/kube/client.ts";
import type { Resource } from "../old/kube/resources.ts";

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
