import type { Projection } from "../old/json/json-projection.ts";

type ProjectedFields = Readonly<Record<string, Projection>>;

/**
 * What is read of CRDs where there may be thousands: their names and versions and these fields of their metadata. The
 * schemas, which are nearly all of a CRD, are left out.
 * @param besides further fields of each version and of the status. @default none
 */
export function crdProjection(
  metadata: ProjectedFields,
  besides: { readonly version?: ProjectedFields; readonly status?: ProjectedFields } = {},
): Projection {
  return {
    fields: {
      metadata: { fields: metadata },
      spec: {
        fields: {
          group: "all",
          conversion: { fields: { strategy: "scalar" } },
          names: { fields: { plural: "all", kind: "all" } },
          versions: { items: { fields: { name: "all", served: "all", storage: "all", ...besides.version } } },
        },
      },
      status: { fields: { storedVersions: "all", ...besides.status } },
    },
  };
}
