import { type CustomResourceDefinition, fieldsLostThrough, requestVersionOf, storageVersionOf } from "../api/crd.ts";
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

/** So many fields of a schema are named. */
const MAX_NAMED_FIELDS = 5;

/**
 * Why nothing may be written in a version of a CRD; `undefined` where nothing speaks against it. An object in the storage version would lose
 * the fields that this version lacks, although no client could tell: no version that has them is served.
 */
export function droppingWrites(crd: CustomResourceDefinition, version: string): KsvmError | undefined {
  const lost = fieldsLostThrough(crd, version);
  if (lost.length === 0) {
    return undefined;
  }
  const storage = storageVersionOf(crd);
  const rest = lost.length > MAX_NAMED_FIELDS ? ` and ${lost.length - MAX_NAMED_FIELDS} more` : "";
  const named = `${lost.slice(0, MAX_NAMED_FIELDS).join(", ")}${rest}`;
  return new KsvmError(
    "ResourceNotMigratable",
    `Cannot write objects of "${crd.metadata.name}": its storage version "${storage}" is not served, and version "${version}" lacks ${named}, ` +
      `which each write would drop; set served: true on "${storage}" for as long as it takes, then run again`,
  );
}

/**
 * Where the objects of a CRD are written.
 * @throws as {@link crdResourceOf}; {KsvmError} ResourceNotMigratable as {@link droppingWrites}
 */
export function writtenResourceOf(crd: CustomResourceDefinition): Resource {
  const resource = crdResourceOf(crd);
  const problem = droppingWrites(crd, resource.version);
  if (problem !== undefined) {
    throw problem;
  }
  return resource;
}

/**
 * The same, with what a run without a freeze is told of the CRD.
 * @throws as {@link writtenResourceOf}
 */
export function servedByCrd(crd: CustomResourceDefinition): ServedResource {
  const { names, scope } = crd.spec;
  return { ...writtenResourceOf(crd), kind: names.kind, scope };
}
