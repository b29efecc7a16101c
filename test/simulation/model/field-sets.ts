import { type Fields, isFields, isSame } from "./model-object.ts";

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
export function keyedItems(field: string, value: unknown): ReadonlyMap<string, Fields> | undefined {
  const key = LIST_KEYS[field];
  if (key === undefined || !Array.isArray(value)) return undefined;
  return new Map((value as Fields[]).map((item) => [`k:${JSON.stringify({ [key]: item[key] })}`, item]));
}

/** The fields that differ between two values. */
export interface Difference {
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
export function leavesOf(field: string, value: unknown): FieldSet {
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
export function minus(a: FieldSet, b: FieldSet): FieldSet {
  if (a === undefined || b === undefined || !meet(a, b)) return a;
  const set: Record<string, unknown> = {};
  for (const name in a) {
    if (name === SELF) continue;
    const child = minus(a[name] as FieldSet, b[name] as FieldSet);
    if (child !== undefined) set[name] = child;
  }
  return node(set, isMember(a) && !isMember(b));
}

export function intersection(a: FieldSet, b: FieldSet): FieldSet {
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

/** The value without the members of a set. */
export function withoutMembers(field: string, value: unknown, set: FieldSet): unknown {
  if (set === undefined || value === undefined) return value;
  if (isMember(set)) return undefined;
  const children = childrenOf(field, value);
  if (children === undefined) return value;
  const rest = new Map<string, unknown>();
  for (const [name, child] of children) {
    const left = withoutMembers(nameOf(name), child, set[name] as FieldSet);
    if (left !== undefined) rest.set(name, left);
  }
  return Array.isArray(value)
    ? [...rest.values()]
    : Object.fromEntries([...rest].map(([name, left]) => [nameOf(name), left]));
}

/** The paths of the members, such as `.spec.replicas`. */
export function pathsOf(set: FieldSet, prefix = ""): readonly string[] {
  return Object.entries(set ?? {}).flatMap(([name, child]) => {
    if (name === SELF) return [];
    const path = name.startsWith("k:") ? `${prefix}[${keyText(name)}]` : `${prefix}.${nameOf(name)}`;
    return [...(isMember(child as Fields) ? [path] : []), ...pathsOf(child as Fields, path)];
  });
}

function keyText(name: string): string {
  return Object.entries(JSON.parse(name.slice(2)) as Fields)
    .map(([key, value]) => `${key}=${JSON.stringify(value)}`)
    .join(",");
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
