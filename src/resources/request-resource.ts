import { type CustomResourceDefinition, fieldsLostThrough, requestVersionOf } from "../api/crd.ts";
import { KsvmError } from "../errors.ts";
import type { Resource } from "../old/kube/resources.ts";

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
