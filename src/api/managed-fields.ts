import { isDeepStrictEqual } from "node:util";
import type { ManagedFieldsEntry } from "./meta.ts";

/** A set of fields as `fieldsV1` has it: a tree whose leaves are empty. */
type FieldSet = Readonly<Record<string, unknown>>;

/** Whether an API version is another one of the same group. */
export function isOtherVersion(apiVersion: string, wanted: string): boolean {
  return apiVersion !== wanted && groupOf(apiVersion) === groupOf(wanted);
}

function groupOf(apiVersion: string): string {
  return apiVersion.slice(0, Math.max(0, apiVersion.lastIndexOf("/")));
}

/**
 * The entries, with those in another version of the group named after `apiVersion`. That is right where a conversion moves no
 * field, so that a path means the same in both versions.
 *
 * An API server tells managers apart by name, operation, version and subresource, and keeps one entry of two that agree in these. So
 * a manager that wrote in both versions gets one entry with the fields of both, and the later time.
 * @returns `undefined` where no entry names another version
 */
export function convertedFields(
  entries: readonly ManagedFieldsEntry[],
  apiVersion: string,
): readonly ManagedFieldsEntry[] | undefined {
  if (!entries.some((entry) => isOtherVersion(entry.apiVersion ?? "", apiVersion))) {
    return undefined;
  }
  const converted = new Map<string, ManagedFieldsEntry>();
  for (const entry of entries) {
    const named = isOtherVersion(entry.apiVersion ?? "", apiVersion) ? { ...entry, apiVersion } : entry;
    const key = managerKeyOf(named);
    const same = converted.get(key);
    converted.set(key, same === undefined ? named : unionOf(same, named));
  }
  return [...converted.values()];
}

/** Whether two lists hold the same entries, in whatever order: an API server sorts them. */
export function areSameFields(a: readonly ManagedFieldsEntry[], b: readonly ManagedFieldsEntry[]): boolean {
  const [inA, inB] = [byManager(a), byManager(b)];
  return a.length === inA.size && b.length === inB.size && isDeepStrictEqual(inA, inB);
}

function byManager(entries: readonly ManagedFieldsEntry[]): ReadonlyMap<string, ManagedFieldsEntry> {
  return new Map(entries.map((entry) => [managerKeyOf(entry), entry]));
}

function managerKeyOf({ manager, operation, apiVersion, subresource }: ManagedFieldsEntry): string {
  return JSON.stringify([manager, operation, apiVersion, subresource]);
}

function unionOf(a: ManagedFieldsEntry, b: ManagedFieldsEntry): ManagedFieldsEntry {
  const later = (a.time ?? "") > (b.time ?? "") ? a : b;
  return { ...later, fieldsV1: fieldsOf(a.fieldsV1 ?? {}, b.fieldsV1 ?? {}) };
}

/** A field without fields below it is a member; one with fields is a member where it has `.` among them. */
function fieldsOf(a: FieldSet, b: FieldSet): FieldSet {
  const union = new Map(Object.entries(a));
  for (const [path, below] of Object.entries(b)) {
    const [left, right] = [(union.get(path) ?? below) as FieldSet, below as FieldSet];
    const both = fieldsOf(left, right);
    const isMember = isLeaf(left) || isLeaf(right);
    union.set(path, isMember && !isLeaf(both) ? { ".": {}, ...both } : both);
  }
  return Object.fromEntries(union);
}

function isLeaf(set: FieldSet): boolean {
  return Object.keys(set).length === 0;
}
