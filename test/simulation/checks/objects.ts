import { type EtcdEntry, type Fields, isFields, isSame, type ModelObject, without } from "../model/etcd.ts";
import { type FieldSet, union } from "../model/fields.ts";
import { CRD_PREFIX } from "../model/kinds.ts";
import { crdNameOf, objectsPrefixOf } from "../world/kinds.ts";
import { isByKsvm, type World } from "../world/world.ts";

/** What webhooks of the simulation change with each write that they see, from any client: annotations that begin so, and this field. */
export const WEBHOOK_ANNOTATION = "webhooks.sim.example.com/";
const WEBHOOK_FIELD = "mutated";
/** How ksvm's own annotations of a CRD begin. */
const OWN_ANNOTATIONS = "ksvm.sigs.k8s.io/";

/**
 * A write by ksvm changes nothing of an object that users see: all but its version, its encryption, and its resourceVersion is as
 * it was, apart from what a webhook made of it, and from the versions that managedFields name. It never creates or deletes one.
 * Of a CRD ksvm changes its own annotations, and prunes `status.storedVersions`.
 */
export function checkObjects(world: World): void {
  const prefixes = world.plan.kinds.map(objectsPrefixOf);
  const crds = new Set(world.plan.kinds.map((kind) => `${CRD_PREFIX}${crdNameOf(kind)}`));
  world.cluster.etcd.onRevision((entry) => {
    const isCrd = crds.has(entry.key);
    if (!isByKsvm() || (!isCrd && !prefixes.some((prefix) => entry.key.startsWith(prefix)))) return;
    const problem = problemOf(entry, isCrd);
    if (problem !== undefined) {
      world.violate(`changed: a write by ksvm ${problem} of ${entry.key} at revision ${entry.modRevision}`);
    }
  });
}

function problemOf({ before, isDeleted, object }: EtcdEntry, isCrd: boolean): string | undefined {
  // The last finalizer may be gone before the write: then any write of the object lets it go.
  if (isDeleted) return "deleted one";
  if (before === undefined || before.isDeleted) return "created one";
  const problem = isCrd
    ? crdProblem(before.object, object)
    : (objectProblem(before.object, object) ?? managersProblem(before.object, object));
  return problem === undefined ? undefined : `changed ${problem}`;
}

/** Who owns which field stays what it was, also where a webhook changes the object: the API server enters nothing for that. */
function managersProblem(before: ModelObject, after: ModelObject): string | undefined {
  const [left, right] = [ownersOf(before), ownersOf(after)];
  const changed = [...new Set([...left.keys(), ...right.keys()])].find((key) => !isSame(left.get(key), right.get(key)));
  return changed === undefined ? undefined : `managedFields (${changed})`;
}

/** The fields of each manager, by its name, its operation and the subresource. */
function ownersOf({ metadata: { managedFields = [] } }: ModelObject): ReadonlyMap<string, FieldSet> {
  const owners = new Map<string, FieldSet>();
  for (const { fieldsV1, manager, operation, subresource = "" } of managedFields) {
    const key = `${manager} ${operation} ${subresource}`;
    owners.set(key, union(owners.get(key), fieldsV1));
  }
  return owners;
}

function objectProblem(before: ModelObject, after: ModelObject): string | undefined {
  const [left, right] = [withoutWebhooks(before), withoutWebhooks(after)];
  const counted = isSame(before["spec"], after["spec"]) ? [] : ["generation"];
  return (
    differenceOf(left, right, ["apiVersion", "metadata"]) ??
    differenceOf(left.metadata, right.metadata, ["managedFields", "resourceVersion", ...counted])
  );
}

function withoutWebhooks(object: ModelObject): ModelObject {
  const annotations = object.metadata.annotations ?? {};
  const own = Object.fromEntries(Object.entries(annotations).filter(([name]) => !name.startsWith(WEBHOOK_ANNOTATION)));
  const { spec } = object;
  const metadata =
    Object.keys(own).length === 0 ? without(object.metadata, "annotations") : { ...object.metadata, annotations: own };
  return { ...object, metadata, ...(isFields(spec) ? { spec: without(spec, WEBHOOK_FIELD) } : {}) };
}

interface CrdStatus extends Fields {
  readonly storedVersions?: readonly string[] | null;
}

function crdProblem(before: ModelObject, after: ModelObject): string | undefined {
  const [left, right] = [before, after].map(({ metadata }) => metadata.annotations ?? {}) as [Fields, Fields];
  const own = [...Object.keys(left), ...Object.keys(right)].filter((name) => name.startsWith(OWN_ANNOTATIONS));
  const [was, is] = [before, after].map(({ status }) => status ?? {}) as [CrdStatus, CrdStatus];
  return (
    differenceOf(before, after, ["metadata", "status"]) ??
    differenceOf(before.metadata, after.metadata, ["annotations", "managedFields", "resourceVersion"]) ??
    differenceOf(left, right, own) ??
    differenceOf(was, is, ["storedVersions"]) ??
    storedVersionsProblem(was, is, after)
  );
}

/** The API server adds the storage version with each write of a CRD where another client took it away. */
function storedVersionsProblem(was: CrdStatus, is: CrdStatus, { spec }: ModelObject): string | undefined {
  const added = (is.storedVersions ?? []).filter((version) => was.storedVersions?.includes(version) !== true);
  const { versions = [] } = spec as { versions?: readonly { name: string; storage?: boolean }[] };
  const isStorage = (version: string): boolean => versions.some(({ name, storage }) => name === version && storage);
  return added.every(isStorage) ? undefined : "storedVersions (it adds a version)";
}

/** The name of the first field that is not the same, of those that count. */
function differenceOf(before: Fields, after: Fields, left: readonly string[]): string | undefined {
  const fields = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...fields].find((field) => !left.includes(field) && !isSame(before[field], after[field]));
}
