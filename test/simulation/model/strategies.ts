import { badRequest, invalid, type InvalidField } from "./answers.ts";
import { type ServerContext, timeText } from "./context.ts";
import { type Fields, isSame, type ModelMeta, type ModelObject, without } from "./etcd.ts";
import type { FieldWriter } from "./fields.ts";
import type { CrdNames, ServedKind } from "./kinds.ts";

/** An object as it is decoded, with its defaults. Schemas are not looked at: nothing here writes a field that one does not know. */
export function decoded(kind: ServedKind, sent: ModelObject): ModelObject {
  const object = cleaned(sent);
  if (kind.crd !== undefined) return kind.defaults === undefined ? object : { ...kind.defaults, ...object };
  return isCrdKind(kind) ? crdDefaulted(object) : builtInDefaulted(kind, object);
}

/** What the strategy of a resource makes of an object that is to be written. @throws {Refusal} 422 */
export function prepared(
  kind: ServedKind,
  before: ModelObject | undefined,
  after: ModelObject,
  subresource: string | undefined,
): ModelObject {
  return isCrdKind(kind) && subresource === undefined ? crdPrepared(before, after) : after;
}

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

/** An object in the namespace of the path. */
export function placed(object: ModelObject, namespace: string | undefined): ModelObject {
  const given = object.metadata.namespace ?? "";
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
  const { name = "", uid } = before.metadata;
  if (metadata.uid === uid) return;
  const cause = { field: "metadata.uid", body: `Invalid value: "${metadata.uid ?? ""}": field is immutable` };
  // Common validation and that of the strategy both say it.
  throw invalid({ group, kind }, name, [cause, cause]);
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
  const given = body as ModelObject;
  if (given.apiVersion === apiVersion && given.kind === kind) return;
  throw badRequest(`${given.kind} in version ${given.apiVersion} cannot be handled as ${kind} in ${apiVersion}`);
}

interface Version extends Fields {
  readonly name: string;
  readonly storage: boolean;
}

interface CrdSpec extends Fields {
  readonly group: string;
  readonly names: CrdNames;
  readonly versions: readonly Version[];
  readonly conversion?: Fields;
}

/** `status` of a CRD. */
export interface CrdStatus extends Fields {
  readonly storedVersions?: readonly string[];
  readonly conditions?: readonly CrdCondition[] | null;
  readonly acceptedNames?: unknown;
}

/** One of its conditions. */
export interface CrdCondition {
  readonly type: string;
  readonly status: string;
  readonly lastTransitionTime?: string;
  readonly reason?: string;
  readonly message?: string;
}

/** The status with a condition in the place of the one that it has of this type. */
export function withCondition(status: CrdStatus, condition: CrdCondition): CrdStatus {
  const conditions = status.conditions ?? [];
  const at = conditions.findIndex(({ type }) => type === condition.type);
  return { ...status, conditions: at === -1 ? [...conditions, condition] : conditions.with(at, condition) };
}

/**
 * A CRD as its defaults make it.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/defaults.go
 */
function crdDefaulted(crd: ModelObject): ModelObject {
  const { conversion, names } = crd["spec"] as CrdSpec;
  const { listKind = `${names.kind}List`, singular = names.kind.toLowerCase() } = names as Partial<CrdNames>;
  const isWhole = conversion !== undefined && names.singular === singular && names.listKind === listKind;
  const spec = { ...(crd["spec"] as CrdSpec), names: { ...names, listKind, singular }, conversion: conversion ?? NONE };
  const status = crd["status"] as CrdStatus | undefined;
  const whole = isWhole ? crd : { ...crd, spec };
  if (status === undefined) return whole;
  const conditions = status.conditions?.map(withoutEmptyTexts);
  const isSaid = conditions?.every((condition, at) => condition === status.conditions?.[at]) ?? true;
  const said = isSaid ? whole : { ...whole, status: { ...status, conditions } };
  return (status.storedVersions ?? []).length === 0 ? withStoredVersion(said) : said;
}

const NONE = { strategy: "None" };

function withoutEmptyTexts(condition: CrdCondition): CrdCondition {
  const { message, reason, ...rest } = condition;
  if (message !== "" && reason !== "") return condition;
  return { ...rest, ...(reason ? { reason } : {}), ...(message ? { message } : {}) };
}

/**
 * The storage version is added to `status.storedVersions` in the same write that makes it the storage version.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition/strategy.go
 */
function withStoredVersion(crd: ModelObject): ModelObject {
  const spec = crd["spec"] as CrdSpec;
  const status = (crd["status"] ?? EMPTY_STATUS) as CrdStatus;
  const storage = spec.versions.find((version) => version.storage)?.name;
  const { storedVersions = [] } = status;
  if (storage === undefined || storedVersions.includes(storage)) return crd;
  return { ...crd, status: { ...status, storedVersions: [...storedVersions, storage] } };
}

/** What the API server shows of a CRD that no controller has looked at. */
const EMPTY_STATUS = { acceptedNames: { kind: "", plural: "" }, conditions: null };

/**
 * What of a CRD's versions is wrong; its schemas and names are not looked at.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go
 * @throws {Refusal} 422
 */
function assertCrd(crd: ModelObject): void {
  const { versions } = crd["spec"] as CrdSpec;
  const { storedVersions = [] } = (crd["status"] ?? {}) as CrdStatus;
  const causes: InvalidField[] = [];
  const name = crd.metadata.name ?? "";
  const known = new Set(versions.map((version) => version.name));
  if (versions.filter(({ storage }) => storage).length !== 1) {
    const body = `Invalid value: ${JSON.stringify(versions)}: must have exactly one version marked as storage version`;
    causes.push({ field: "spec.versions", body });
  }
  if (storedVersions.length === 0) {
    causes.push({ field: "status.storedVersions", body: "Invalid value: null: must have at least one stored version" });
  }
  for (const [at, stored] of storedVersions.entries()) {
    if (known.has(stored)) continue;
    const why =
      `missing from spec.versions; ${stored} was previously a storage version, and must remain in spec.versions until a ` +
      `storage migration ensures no data remains persisted in ${stored} and removes ${stored} from status.storedVersions`;
    causes.push({ field: `status.storedVersions[${at}]`, body: `Invalid value: ${JSON.stringify(stored)}: ${why}` });
  }
  if (causes.length > 0)
    throw invalid({ group: "apiextensions.k8s.io", kind: "CustomResourceDefinition" }, name, causes);
}

/** What the strategy of a CRD makes of it. @throws {Refusal} 422 */
function crdPrepared(before: ModelObject | undefined, after: ModelObject): ModelObject {
  const crd = withStoredVersion(after);
  const isChecked = before === undefined || !isSame(before["spec"], crd["spec"]) || before["status"] !== crd["status"];
  if (isChecked) assertCrd(crd);
  return crd;
}

/** Whether a resource is that of the CRDs. */
export function isCrdKind({ group, resource }: ServedKind): boolean {
  return group === "apiextensions.k8s.io" && resource === "customresourcedefinitions";
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/types.go */
export const CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io";

/** A CRD that is marked for deletion. */
export function withTerminating(crd: ModelObject, now: number): ModelObject {
  const condition = {
    type: "Terminating",
    status: "True",
    lastTransitionTime: timeText(now),
    reason: "InstanceDeletionPending",
    message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
  };
  return { ...crd, status: withCondition((crd["status"] ?? {}) as CrdStatus, condition) };
}

/** A built-in object as it is decoded: with the defaults of Secrets and without the nulls of Leases, which decide on managedFields. */
function builtInDefaulted({ group, resource }: ServedKind, object: ModelObject): ModelObject {
  if (resource === "leases") return withoutNulls(object);
  if (group !== "" || resource !== "secrets") return object;
  return object["type"] === undefined ? { ...object, type: "Opaque" } : object;
}

/** The Go types have no null: a field of a spec that is null is not there. */
function withoutNulls(object: ModelObject): ModelObject {
  const spec = (object["spec"] ?? {}) as Fields;
  const nulls = Object.keys(spec).filter((field) => spec[field] === null);
  return nulls.length === 0 ? object : { ...object, spec: without(spec, ...nulls) };
}
