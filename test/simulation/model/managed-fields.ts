import { Refusal } from "./answers.ts";
import {
  differenceOf,
  type FieldSet,
  intersection,
  keyedItems,
  leavesOf,
  minus,
  pathsOf,
  union,
  withoutMembers,
} from "./field-sets.ts";
import { type Fields, isFields, isSame, type ManagedEntry, type ModelObject, without } from "./model-object.ts";

/** Who writes, in which version, and by which way. */
export interface FieldWriter {
  readonly manager: string;
  readonly apiVersion: string;
  readonly subresource?: string | undefined;
  /** As `managedFields` has it. */
  readonly time: string;
  /** Top-level fields that this way of writing does not change. */
  readonly ignored: readonly string[];
}

/** Never in managedFields. */
const STRIPPED: Fields = {
  "f:apiVersion": {},
  "f:kind": {},
  "f:metadata": {
    ".": {},
    "f:name": {},
    "f:namespace": {},
    "f:creationTimestamp": {},
    "f:selfLink": {},
    "f:uid": {},
    "f:generation": {},
    "f:managedFields": {},
    "f:resourceVersion": {},
  },
};

/** The empty object that a create compares with: the parts that the Go types always have are there. */
const EMPTY: Fields = { metadata: {} };

/**
 * `metadata.managedFields` after an update, or a create where there is no object before.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal/managedfieldsupdater.go
 */
export function managedByUpdate(
  before: ModelObject | undefined,
  after: ModelObject,
  writer: FieldWriter,
): readonly ManagedEntry[] | undefined {
  const entries = entriesBefore(before, after, writer);
  // Of an object that was never tracked, nothing is tracked until a manager applies.
  if (entries.length === 0 && before !== undefined) return undefined;
  const { written, removed } = changeOf(before ?? EMPTY, after, writer);
  const self = entries.find((entry) => isBy(entry, writer, "Update"));
  if (written === undefined && removed === undefined) return before === undefined ? [] : entries;
  const taken = union(written, removed);
  const others = entries.flatMap((entry) => (entry === self ? [] : withFields(entry, minus(entry.fieldsV1, taken))));
  if (written === undefined)
    return sorted([...others, ...(self === undefined ? [] : withFields(self, minus(self.fieldsV1, removed)))]);
  const fieldsV1 = union(minus(self?.fieldsV1, removed), written);
  return sorted([...others, ...withFields(entryBy(writer, "Update"), fieldsV1)]);
}

/** An object after a server-side apply. @throws {Refusal} 409 where another manager owns a field that it changes. */
export function applied(
  live: ModelObject | undefined,
  config: ModelObject,
  { force, ...writer }: FieldWriter & { readonly force: boolean },
): ModelObject {
  const untracked = live !== undefined && (live.metadata.managedFields ?? []).length === 0;
  const entries = untracked ? beforeFirstApply(live, writer) : (live?.metadata.managedFields ?? []);
  const self = entries.find((entry) => isBy(entry, writer, "Apply"));
  const others = entries.filter((entry) => entry !== self);
  const own = minus(leavesOf("", withoutIgnored(config, writer)), STRIPPED);
  const owned = others.reduce<FieldSet>((set, { fieldsV1 }) => union(set, fieldsV1), own);
  const merged = merge("", live ?? EMPTY, config);
  const pruned = withoutMembers("", merged, minus(self?.fieldsV1, owned)) as ModelObject;
  const { written, removed } = changeOf(live ?? EMPTY, pruned, writer);
  const conflicts = others.filter(({ fieldsV1 }) => intersection(fieldsV1, written) !== undefined);
  if (conflicts.length > 0 && !force) throw applyConflict(conflicts, written);
  const taken = union(written, removed);
  const isChanged = live === undefined || !isSame(metadataFree(live), metadataFree(pruned));
  const entry = isChanged || self === undefined ? entryBy(writer, "Apply") : self;
  const managedFields = sorted([
    ...others.flatMap((other) => withFields(other, minus(other.fieldsV1, taken))),
    ...withFields(isChanged ? entry : withoutNewTime(entry, self), own),
  ]);
  const metadata = without(pruned.metadata, "managedFields");
  return { ...pruned, metadata: managedFields.length === 0 ? metadata : { ...metadata, managedFields } };
}

/** What `managedFields` hold is not compared. */
function metadataFree(object: ModelObject): ModelObject {
  return { ...object, metadata: without(object.metadata, "managedFields", "resourceVersion") };
}

/** An apply that changes nothing leaves the time as it was; a new entry then has none. */
function withoutNewTime(entry: ManagedEntry, self: ManagedEntry | undefined): ManagedEntry {
  return self === undefined ? (without(entry as unknown as Fields, "time") as unknown as ManagedEntry) : self;
}

/**
 * What nobody tracked belongs to this manager once a manager applies.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal/skipnonapplied.go
 */
function beforeFirstApply(live: ModelObject, writer: FieldWriter): readonly ManagedEntry[] {
  const by = { ...writer, manager: "before-first-apply" };
  return withFields(entryBy(by, "Update"), changeOf(EMPTY, live, writer).written);
}

function merge(field: string, live: unknown, config: unknown): unknown {
  const [liveItems, configItems] = [keyedItems(field, live), keyedItems(field, config)];
  if (liveItems !== undefined && configItems !== undefined) {
    const items = new Map<string, unknown>(liveItems);
    for (const [name, item] of configItems) items.set(name, merge("", liveItems.get(name), item));
    return [...items.values()];
  }
  if (!isFields(live) || !isFields(config)) return config;
  const merged: Record<string, unknown> = { ...live };
  for (const name in config) merged[name] = merge(name, live[name], config[name]);
  return merged;
}

function changeOf(before: Fields, after: Fields, writer: FieldWriter): { written: FieldSet; removed: FieldSet } {
  const [left, right] = [withoutIgnored(before, writer), withoutIgnored(after, writer)];
  const { written, removed } = differenceOf("", left, right);
  return { written: minus(written, STRIPPED), removed: minus(removed, STRIPPED) };
}

function withoutIgnored(object: Fields, { ignored }: FieldWriter): Fields {
  return ignored.some((field) => field in object) ? without(object, ...ignored) : object;
}

/** A writer may put managedFields of its own, or clear them with an empty list. */
function entriesBefore(
  before: ModelObject | undefined,
  after: ModelObject,
  writer: FieldWriter,
): readonly ManagedEntry[] {
  const given = writer.subresource === undefined ? after.metadata.managedFields : undefined;
  if (given !== undefined && (given.length === 0 || (given.length === 1 && Object.keys(given[0] ?? {}).length === 0)))
    return [];
  return given ?? before?.metadata.managedFields ?? [];
}

function isBy(entry: ManagedEntry, { apiVersion, manager, subresource }: FieldWriter, operation: string): boolean {
  const isSameWay = entry.operation === operation && entry.subresource === subresource;
  return isSameWay && entry.manager === manager && entry.apiVersion === apiVersion;
}

function entryBy(
  { apiVersion, manager, subresource, time }: FieldWriter,
  operation: ManagedEntry["operation"],
): ManagedEntry {
  const way = subresource === undefined ? {} : { subresource };
  return { manager, operation, apiVersion, time, fieldsType: "FieldsV1", fieldsV1: {}, ...way };
}

function withFields(entry: ManagedEntry, fieldsV1: FieldSet): readonly ManagedEntry[] {
  return fieldsV1 === undefined ? [] : [fieldsV1 === entry.fieldsV1 ? entry : { ...entry, fieldsV1 }];
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal/managedfields.go */
function sorted(entries: readonly ManagedEntry[]): readonly ManagedEntry[] {
  if (entries.length < 2) return entries;
  return [...entries].sort((a, b) => (orderOf(a) < orderOf(b) ? -1 : 1));
}

function orderOf({ apiVersion, manager, operation, subresource = "", time = "" }: ManagedEntry): string {
  return [operation, time, manager, apiVersion, subresource].join("\0");
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal/conflict.go */
function applyConflict(conflicts: readonly ManagedEntry[], written: FieldSet): Refusal {
  const found = conflicts.map((entry) => ({
    by: managerText(entry),
    paths: pathsOf(intersection(entry.fieldsV1, written)),
  }));
  const causes = found.flatMap(({ by, paths }) =>
    paths.map((field) => ({ reason: "FieldManagerConflict", message: `conflict with ${by}`, field })),
  );
  const [only, ...more] = causes;
  const all = found
    .toSorted((a, b) => (a.by < b.by ? -1 : 1))
    .flatMap(({ by, paths }) => [`conflicts with ${by}:`, ...paths.map((path) => `- ${path}`)]);
  const message =
    only !== undefined && more.length === 0
      ? `Apply failed with 1 conflict: ${only.message}: ${only.field}`
      : `Apply failed with ${causes.length} conflicts: ${all.join("\n")}`;
  return new Refusal({ code: 409, reason: "Conflict", details: { causes }, message });
}

function managerText({ apiVersion, manager, operation, subresource, time }: ManagedEntry): string {
  const by = `${JSON.stringify(manager)}${subresource === undefined ? "" : ` with subresource "${subresource}"`}`;
  if (operation === "Apply") return by;
  return `${by} using ${apiVersion}${time === undefined ? "" : ` at ${time}`}`;
}
