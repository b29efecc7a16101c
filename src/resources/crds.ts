import { type CustomResourceDefinition, fieldsLostThrough, requestVersionOf } from "../api/crd.ts";
import { KsvmError } from "../errors.ts";
import type { Projection } from "../old/json/json-projection.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { CRDS, type Resource } from "../old/kube/resources.ts";
import type { CallContext } from "../old/retry/call-context.ts";

/**
 * Reads a CRD as it is now, however long the API server takes to answer.
 * @throws {ApiError} NotFound where it does not exist; {KsvmError} RetryBudgetExceeded.
 */
export function readCrd({ client, retrier, signal }: CallContext, name: string): Promise<CustomResourceDefinition> {
  return retrier.run(() => client.get<CustomResourceDefinition>(CRDS, { name }, { signal }), signal);
}

/**
 * Finds the CRD of a resource by its name; `undefined` where there is none. A name without a group is never a CRD's.
 * @throws {ApiError}
 */
export async function findCrd(
  client: ApiClient,
  name: string,
  options: CallOptions = {},
): Promise<CustomResourceDefinition | undefined> {
  return name.includes(".") ? client.find<CustomResourceDefinition>(CRDS, { name }, options) : undefined;
}

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

/**
 * Where the requests for a CRD's objects go.
 * @throws {KsvmError} ResourceNotMigratable where no version is served, so that no object can be read or written.
 */
export function crdResourceOf(crd: CustomResourceDefinition): Resource {
  const version = requestVersionOf(crd);
  if (version === undefined) {
    throw new KsvmError(
      "ResourceNotMigratable",
      `Cannot migrate "${crd.metadata.name}": the CRD serves no version; set served: true on one of them first`,
    );
  }
  return { group: crd.spec.group, version, resource: crd.spec.names.plural };
}

/** So many fields of a schema are named. */
const MAX_NAMED_FIELDS = 5;

/** The first fields of `fieldsLostThrough()` and how many more there are; `undefined` where there are none. */
export function namedFieldsLost(crd: CustomResourceDefinition, version: string): string | undefined {
  const lost = fieldsLostThrough(crd, version);
  const rest = lost.length > MAX_NAMED_FIELDS ? ` and ${lost.length - MAX_NAMED_FIELDS} more` : "";
  return lost.length === 0 ? undefined : `${lost.slice(0, MAX_NAMED_FIELDS).join(", ")}${rest}`;
}
