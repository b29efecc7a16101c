import { badRequest, invalid, type InvalidField } from "./answers.ts";
import { type Fields, isFields, isSame, type ModelMeta, type ModelObject, without } from "./model-object.ts";
import type { ServedKind } from "./served-kinds.ts";
import { type FieldWriter } from "./managed-fields.ts";
import { type ServerContext, timeText } from "./server-context.ts";

/** Parts of metadata that are left out where they are empty, as Go's `omitempty` has it. */
const OMITTED_WHEN_EMPTY = ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"] as const;

/** The metadata that a writer sent, without what says nothing. `managedFields: []` stays: it clears them. */
export function cleaned<T extends ModelObject>(object: T): T {
  const { metadata } = object;
  let rest: ModelMeta | undefined;
  for (const field in metadata) {
    if (isOmitted(field, metadata[field])) rest = without(rest ?? metadata, field);
  }
  return rest === undefined ? object : { ...object, metadata: rest };
}

function isOmitted(field: string, value: unknown): boolean {
  if (value === undefined || value === null || value === "") return true;
  if (field === "managedFields" || !(OMITTED_WHEN_EMPTY as readonly string[]).includes(field)) return false;
  return Object.keys(value).length === 0;
}

/** An object without managedFields where there are none. */
export function withManaged(object: ModelObject, managedFields: ModelMeta["managedFields"]): ModelObject {
  if (object.metadata.managedFields === managedFields) return object;
  const metadata = without(object.metadata, "managedFields");
  const isEmpty = managedFields === undefined || managedFields.length === 0;
  return { ...object, metadata: isEmpty ? metadata : { ...metadata, managedFields } };
}

/** Who writes, for managedFields. */
export function writerOf(
  { clock }: ServerContext,
  kind: ServedKind,
  { manager, subresource }: { readonly manager: string; readonly subresource: string | undefined },
): FieldWriter {
  return {
    manager,
    subresource,
    apiVersion: kind.apiVersion,
    time: timeText(clock.now()),
    ignored: ignoredFields(kind, subresource),
  };
}

/** `GetResetFields` of the strategies. */
function ignoredFields({ crd, hasStatus }: ServedKind, subresource: string | undefined): readonly string[] {
  if (subresource === "status") return crd === undefined ? ["spec"] : ["metadata", "spec"];
  return hasStatus ? ["status"] : [];
}

/** What a create fills in. A writer cannot choose it. */
export function asCreated(context: ServerContext, kind: ServedKind, object: ModelObject): ModelObject {
  const { generateName = "" } = object.metadata;
  const name = object.metadata.name ?? `${generateName.slice(0, 58)}${suffixOf(context.etcd.nextId())}`;
  const metadata = without(object.metadata, "resourceVersion", "selfLink", "deletionTimestamp", "generation");
  const system = { name, uid: context.etcd.nextId(), creationTimestamp: timeText(context.clock.now()) };
  const fresh = { ...metadata, ...system, ...(kind.hasGeneration ? { generation: 1 } : {}) };
  const created = { ...object, metadata: fresh };
  return kind.hasStatus ? without(created, "status") : created;
}

/** The letters of k8s.io/apimachinery/pkg/util/rand. */
const LETTERS = "bcdfghjklmnpqrstvwxz2456789";

function suffixOf(id: string): string {
  let number = Number.parseInt(id.slice(-12), 16);
  let suffix = "";
  while (suffix.length < 5) {
    suffix += LETTERS.charAt(number % LETTERS.length);
    number = Math.floor(number / LETTERS.length);
  }
  return suffix;
}

/** @throws {Refusal} 400 where the object names another namespace, or another name, than the path */
export function placed(object: ModelObject, namespace: string | undefined, name?: string): ModelObject {
  const given = object.metadata.namespace ?? "";
  if (namespace !== undefined && given !== "" && given !== namespace) {
    throw badRequest("the namespace of the provided object does not match the namespace sent on the request");
  }
  const { name: own = "" } = object.metadata;
  if (name !== undefined && own !== name) {
    throw badRequest(`the name of the object (${own}) does not match the name on the URL (${name})`);
  }
  if (given === (namespace ?? "")) return object;
  const metadata = namespace === undefined ? without(object.metadata, "namespace") : { ...object.metadata, namespace };
  return { ...object, metadata };
}

/**
 * What an update may not change stays, and what changes with it is changed (`BeforeUpdate` and the strategies).
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/registry/rest/update.go
 * @throws {Refusal} 422 where what cannot be changed is changed.
 */
export function asUpdated(
  kind: ServedKind,
  before: ModelObject,
  after: ModelObject,
  subresource: string | undefined,
): ModelObject {
  const kept = subresource === "status" ? statusUpdated(kind, before, after) : mainUpdated(kind, before, after);
  const { creationTimestamp, deletionTimestamp, generation, uid = "" } = before.metadata;
  const metadata: ModelMeta = {
    ...kept.metadata,
    uid: kept.metadata.uid ?? uid,
    ...(creationTimestamp === undefined ? {} : { creationTimestamp }),
    ...(deletionTimestamp === undefined ? {} : { deletionTimestamp }),
  };
  assertImmutable(kind, before, metadata);
  const isCounted = kind.hasGeneration && subresource === undefined && isSpecChanged(kind, before, kept);
  const next = isCounted ? (generation ?? 0) + 1 : generation;
  const { generation: _generation, ...others } = metadata;
  const rest: ModelMeta = deletionTimestamp === undefined ? without(others, "deletionTimestamp") : others;
  const fresh = next === undefined ? rest : { ...rest, generation: next };
  return { ...kept, metadata: isSame(fresh, before.metadata) ? before.metadata : fresh };
}

function mainUpdated({ hasStatus }: ServedKind, before: ModelObject, after: ModelObject): ModelObject {
  if (!hasStatus || after["status"] === before["status"]) return after;
  return before["status"] === undefined ? without(after, "status") : { ...after, status: before["status"] };
}

/** Of a custom resource only the status changes; of a built-in one metadata may change as well. */
function statusUpdated({ crd }: ServedKind, before: ModelObject, after: ModelObject): ModelObject {
  const { managedFields, resourceVersion } = after.metadata;
  const owned = withManaged(before, managedFields);
  const metadata =
    crd === undefined
      ? after.metadata
      : { ...owned.metadata, ...(resourceVersion === undefined ? {} : { resourceVersion }) };
  const base = without({ ...before, metadata }, "status");
  return after["status"] === undefined ? base : { ...base, status: after["status"] };
}

function assertImmutable({ group, kind }: ServedKind, before: ModelObject, metadata: ModelMeta): void {
  const causes: InvalidField[] = [];
  for (const field of ["name", "namespace", "uid"] as const) {
    if ((metadata[field] ?? "") !== (before.metadata[field] ?? "")) {
      causes.push({
        field: `metadata.${field}`,
        body: `Invalid value: ${JSON.stringify(metadata[field] ?? "")}: field is immutable`,
      });
    }
  }
  const known = before.metadata.finalizers ?? [];
  const added = (metadata.finalizers ?? []).filter((name) => !known.includes(name));
  if (before.metadata.deletionTimestamp !== undefined && added.length > 0) {
    const found = `[]string{${added.map((name) => JSON.stringify(name)).join(", ")}}`;
    const why = `no new finalizers can be added if the object is being deleted, found new finalizers ${found}`;
    causes.push({ field: "metadata.finalizers", body: `Forbidden: ${why}`, reason: "FieldValueForbidden" });
  }
  // Common validation and that of the strategy both say it.
  if (causes.length > 0) throw invalid({ group, kind }, before.metadata.name ?? "", [...causes, ...causes]);
}

function isSpecChanged({ crd, hasStatus }: ServedKind, before: ModelObject, after: ModelObject): boolean {
  const fields = hasStatus ? ["metadata", "apiVersion", "kind", "status"] : ["metadata", "apiVersion", "kind"];
  // Of a custom resource everything counts but metadata.
  const left = crd === undefined ? without(before, ...fields) : without(before, "metadata");
  const right = crd === undefined ? without(after, ...fields) : without(after, "metadata");
  return !isSame(left, right);
}

/** Whether two objects differ in the times of managedFields at most: then those of the first one stay. */
export function withOldTimes(before: ModelObject, after: ModelObject): ModelObject {
  const [left, right] = [before.metadata.managedFields, after.metadata.managedFields];
  if (left === right || left === undefined || right === undefined || left.length !== right.length) return after;
  const isTimeAlone = isSame(left.map(timeless), right.map(timeless)) && isSame(trackless(before), trackless(after));
  return isTimeAlone ? withManaged(after, left) : after;
}

function timeless(entry: object): Fields {
  return without(entry as Fields, "time");
}

function trackless(object: ModelObject): Fields {
  return { ...object, metadata: without(object.metadata, "managedFields") };
}

/** @throws {Refusal} 400 where a body is no object of the version that the path names */
export function assertKind(body: unknown, { apiVersion, kind }: ServedKind): asserts body is ModelObject {
  const given = isFields(body) ? body : {};
  const { apiVersion: ofVersion = "", kind: ofKind = "" } = given as Partial<ModelObject>;
  if (ofVersion === "" && ofKind === "") throw badRequest("Object 'Kind' is missing in the request body");
  if (ofVersion !== apiVersion) {
    throw badRequest(
      `the API version in the data (${ofVersion}) does not match the expected API version (${apiVersion})`,
    );
  }
  if (ofKind !== kind) {
    throw badRequest(`${kind} in version "${apiVersion}" cannot be handled as a ${kind}: the kind is ${ofKind}`);
  }
}
