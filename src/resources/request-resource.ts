import { type CustomResourceDefinition, requestVersionOf } from "../api/crd.ts";
import { KsvmError } from "../errors.ts";
import type { Resource } from "../kube/resources.ts";
import type { ServedResource } from "./migratable.ts";

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

/**
 * The same, with what a run without a freeze is told of the CRD.
 * @throws as {@link crdResourceOf}
 */
export function servedByCrd(crd: CustomResourceDefinition): ServedResource {
  const { names, scope } = crd.spec;
  return { ...crdResourceOf(crd), kind: names.kind, scope };
}
