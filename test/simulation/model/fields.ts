import { Refusal } from "./answers.ts";
import { type Fields, isFields, isSame, type ManagedEntry, type ModelObject, without } from "./etcd.ts";

/**
 * Sets of fields as `managedFields` holds them (FieldsV1): a node without children is a member; one with children is a
 * member where it has the child ".". The empty set is `undefined`.
 *
 * https://github.com/kubernetes-sigs/structured-merge-diff/blob/v6.3.2/fieldpath/serialize.go
 */
export type FieldSet = Fields | undefined;

const LEAF: Fields = {};
const SELF = ".";

/** Lists of built-in resources and of metadata that are merged by a key; any other list counts as one value. */
const LIST_KEYS: Readonly<Record<string, string>> = {
  webhooks: "name",
  matchConditions: "name",
  conditions: "type",
  ownerReferences: "uid",
};

/** A list that is merged by a key, as a map from `k:{…}` to its items; `undefined` for any other value. */
function keyedItems(field: string, value: unknown): ReadonlyMap<string, Fields> | undefined {
  const key = LIST_KEYS[field];
  if (key === undefined || !Array.isArray(value)) return undefined;
  return new Map((value as Fields[]).map((item) => [`k:${JSON.stringify({ [key]: item[key] })}`, item]));
}

/** The fields that differ between two values. */
interface Difference {
  /** Changed or added. */
  readonly written: FieldSet;
  readonly removed: FieldSet;
}

const NOTHING: Difference = { written: undefined, removed: undefined };

/** Compares two values of a field, which is named without its `f:`. */
export function differenceOf(field: string, before: unknown, after: unknown): Difference {
  if (before === after) return NOTHING;
  if (before === undefined || before === null) return { written: everythingIn(field, after), removed: undefined };
  if (after === undefined) return { written: undefined, removed: everythingIn(field, before) };
  if (isFields(before) && isFields(after)) return differenceOfFields(before, after);
  const [left, right] = [keyedItems(field, before), keyedItems(field, after)];
  if (left === undefined || right === undefined)
    return isSame(before, after) ? NOTHING : { written: LEAF, removed: undefined };
  const written: Record<string, unknown> = {};
  const removed: Record<string, unknown> = {};
  for (const name of new Set([...left.keys(), ...right.keys()])) {
    const child = differenceOf(nameOf(name), left.get(name), right.get(name));
    if (child.written !== undefined) written[name] = child.written;
    if (child.removed !== undefined) removed[name] = child.removed;
  }
  return { written: filled(written), removed: filled(removed) };
}

/** Most writes change one field of many: what is the same costs a comparison alone. */
function differenceOfFields(before: Fields, after: Fields): Difference {
  let written: Record<string, unknown> | undefined;
  let removed: Record<string, unknown> | undefined;
  const compare = (name: string): void => {
    const child = differenceOf(name, before[name], after[name]);
    if (child.written !== undefined) (written ??= {})[`f:${name}`] = child.written;
    if (child.removed !== undefined) (removed ??= {})[`f:${name}`] = child.removed;
  };
  for (const name in after) if (before[name] !== after[name]) compare(name);
  for (const name in before) if (after[name] === undefined && !(name in after)) compare(name);
  return written === undefined && removed === undefined ? NOTHING : { written, removed };
}

/** The leaves of what is applied. */
function leavesOf(field: string, value: unknown): FieldSet {
  const children = childrenOf(field, value);
  if (children === undefined || children.size === 0) return LEAF;
  const set: Record<string, unknown> = {};
  for (const [name, child] of children) {
    // An item of a keyed list is one of its members too.
    const node = leavesOf(nameOf(name), child);
    set[name] = name.startsWith("k:") ? { [SELF]: {}, ...node } : node;
  }
  return set;
}

/** Most writers own what they write already: then the set itself is what it makes with that. */
export function union(a: FieldSet, b: FieldSet): FieldSet {
  if (a === undefined || a === b) return b;
  if (b === undefined || contains(a, b)) return a;
  const set: Record<string, unknown> = {};
  for (const name of new Set([...Object.keys(a), ...Object.keys(b)])) {
    if (name !== SELF) set[name] = union(a[name] as FieldSet, b[name] as FieldSet);
  }
  return node(set, isMember(a) || isMember(b));
}

/** Most sets have nothing in common: then the first one stays what it is. */
function minus(a: FieldSet, b: FieldSet): FieldSet {
  if (a === undefined || b === undefined || !meet(a, b)) return a;
  const set: Record<string, unknown> = {};
  for (const name in a) {
    if (name === SELF) continue;
    const child = minus(a[name] as FieldSet, b[name] as FieldSet);
    if (child !== undefined) set[name] = child;
  }
  return node(set, isMember(a) && !isMember(b));
}

function intersection(a: FieldSet, b: FieldSet): FieldSet {
  return a === undefined || b === undefined || !meet(a, b) ? undefined : minus(a, minus(a, b));
}

/** Whether every member of `b` is one of `a`. */
function contains(a: Fields, b: Fields): boolean {
  if (isMember(b) && !isMember(a)) return false;
  for (const name in b) {
    if (name === SELF) continue;
    const child = a[name] as FieldSet;
    if (child === undefined || !contains(child, b[name] as Fields)) return false;
  }
  return true;
}

/** Whether two sets have a member in common. */
function meet(a: Fields, b: Fields): boolean {
  if (isMember(a) && isMember(b)) return true;
  for (const name in b) {
    const child = name === SELF ? undefined : (a[name] as FieldSet);
    if (child !== undefined && meet(child, b[name] as Fields)) return true;
  }
  return false;
}

/** All fields, those that hold others included. */
function everythingIn(field: string, value: unknown): FieldSet {
  const children = childrenOf(field, value);
  if (children === undefined || children.size === 0) return LEAF;
  const set: Record<string, unknown> = { [SELF]: {} };
  for (const [name, child] of children) set[name] = everythingIn(nameOf(name), child);
  return set;
}

/** The children of a value by the names that a set has; `undefined` for one that counts as a whole. */
function childrenOf(field: string, value: unknown): ReadonlyMap<string, unknown> | undefined {
  const items = keyedItems(field, value);
  if (items !== undefined) return items;
  if (!isFields(value)) return undefined;
  return new Map(Object.entries(value).flatMap(([name, child]) => (child === undefined ? [] : [[`f:${name}`, child]])));
}

function nameOf(name: string): string {
  return name.startsWith("f:") ? name.slice(2) : name;
}

function isMember(set: Fields): boolean {
  for (const name in set) if (name !== SELF) return SELF in set;
  return true;
}

function node(children: Record<string, unknown>, isItMember: boolean): FieldSet {
  for (const _ in children) return isItMember ? { [SELF]: {}, ...children } : children;
  return isItMember ? LEAF : undefined;
}

function filled(children: Record<string, unknown>): FieldSet {
  return node(children, false);
}

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
  if (minus(self?.fieldsV1, owned) !== undefined) throw new Error("The model knows no apply that gives up a field");
  const merged = merge("", live ?? EMPTY, config) as ModelObject;
  const { written, removed } = changeOf(live ?? EMPTY, merged, writer);
  const conflicts = others.filter(({ fieldsV1 }) => intersection(fieldsV1, written) !== undefined);
  if (conflicts.length > 0 && !force) {
    const message = `Apply failed with conflicts with ${conflicts.map(({ manager }) => manager).join(", ")}`;
    throw new Refusal({ code: 409, reason: "Conflict", message });
  }
  const taken = union(written, removed);
  const isChanged = live === undefined || !isSame(metadataFree(live), metadataFree(merged));
  const entry = isChanged || self === undefined ? entryBy(writer, "Apply") : self;
  const managedFields = sorted([
    ...others.flatMap((other) => withFields(other, minus(other.fieldsV1, taken))),
    ...withFields(isChanged ? entry : withoutNewTime(entry, self), own),
  ]);
  const metadata = without(merged.metadata, "managedFields");
  return { ...merged, metadata: managedFields.length === 0 ? metadata : { ...metadata, managedFields } };
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
