import { type CustomResourceDefinition, fieldsLostThrough, requestVersionOf, storageVersionOf } from "../api/crd.ts";
import { KsvmError } from "../errors.ts";
import type { Resource } from "../old/kube/resources.ts";
import { StartAgain } from "../old/retry/start-again.ts";
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

/** The first fields of `fieldsLostThrough()` and how many more there are, in words; `undefined` where there are none. */
export function namedFieldsLost(crd: CustomResourceDefinition, version: string): string | undefined {
  const lost = fieldsLostThrough(crd, version);
  const rest = lost.length > MAX_NAMED_FIELDS ? ` and ${lost.length - MAX_NAMED_FIELDS} more` : "";
  return lost.length === 0 ? undefined : `${lost.slice(0, MAX_NAMED_FIELDS).join(", ")}${rest}`;
}

/**
 * Why nothing may be written in a version of a CRD; `undefined` where nothing speaks against it. An object in the storage version would lose
 * the fields that this version lacks. {@link StartAgain} where the CRD serves a version that has them; where it serves none, no client could tell.
 */
export function droppingWrites(crd: CustomResourceDefinition, version: string): KsvmError | undefined {
  const named = namedFieldsLost(crd, version);
  if (named === undefined) {
    return undefined;
  }
  const requested = requestVersionOf(crd);
  if (requested !== undefined && fieldsLostThrough(crd, requested).length === 0) {
    return new StartAgain(
      "NotConverged",
      `Cannot continue with "${crd.metadata.name}": version "${version}", in which this run writes objects, lacks ${named} now, ` +
        `and "${requested}" does not; run again`,
    );
  }
  const storage = storageVersionOf(crd);
  return new KsvmError(
    "ResourceNotMigratable",
    `Cannot write objects of "${crd.metadata.name}": its storage version "${storage}" is not served, and version "${version}" lacks ${named}, ` +
      `which each write would drop; set served: true on "${storage}" for as long as it takes, then run again`,
  );
}

/**
 * The same, with what a run is told of the CRD.
 * @throws as {@link crdResourceOf}
 */
export function servedByCrd(crd: CustomResourceDefinition): ServedResource {
  const { names, scope } = crd.spec;
  return { ...crdResourceOf(crd), kind: names.kind, scope };
}

/**
 * Where the objects of a CRD are written.
 * @throws as {@link crdResourceOf}; {KsvmError} ResourceNotMigratable as {@link droppingWrites}
 */
export function writtenByCrd(crd: CustomResourceDefinition): ServedResource {
  const resource = servedByCrd(crd);
  const problem = droppingWrites(crd, resource.version);
  if (problem !== undefined) {
    throw problem;
  }
  return resource;
}
