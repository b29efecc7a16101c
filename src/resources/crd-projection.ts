import type { Projection } from "../json/json-projection.ts";

/**
 * What is read of CRDs where there may be thousands: their names and versions and these fields of their metadata. The
 * schemas, which are nearly all of a CRD, are left out.
 */
export function crdProjection(metadata: Readonly<Record<string, Projection>>): Projection {
  return {
    fields: {
      metadata: { fields: metadata },
      spec: {
        fields: {
          group: "all",
          names: { fields: { plural: "all", kind: "all" } },
          versions: { items: { fields: { name: "all", served: "all", storage: "all" } } },
        },
      },
      status: { fields: { storedVersions: "all" } },
    },
  };
}
