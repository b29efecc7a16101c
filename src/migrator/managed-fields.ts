import { REWRITE_FIELD_MANAGER } from "../api/names.ts";
import type { ManagedFieldsEntry } from "../kube/objects.ts";

/*
 * Once a version leaves a CRD, server-side apply of an object fails as long as an entry of its managedFields names that
 * version: `request to convert CR to an invalid group/version`. An apply also converts to the versions that entries
 * name, and fails where a field is not in the schema of one of them. So a migration has the entries name the storage
 * version.
 *
 * https://github.com/kubernetes/kubernetes/issues/111937
 */

/** A set of fields as `fieldsV1` has it: a tree whose leaves are empty. */
type FieldSet = Readonly<Record<string, unknown>>;

/** Whether an entry names another version of the same group. */
export function namesOther({ apiVersion = "" }: ManagedFieldsEntry, wanted: string): boolean {
  return apiVersion !== wanted && groupOf(apiVersion) === groupOf(wanted);
}

function groupOf(apiVersion: string): string {
  return apiVersion.slice(0, Math.max(0, apiVersion.lastIndexOf("/")));
}

/**
 * The entries with those in another version of the group named after `apiVersion`. That is right where no webhook
 * converts, so that a path means the same in all versions. A manager that wrote in two versions gets one entry with the
 * fields of both: an API server keeps one entry by manager, operation, version and subresource.
 *
 * @returns `undefined` where no entry names another version
 */
export function renamed(
  entries: readonly ManagedFieldsEntry[],
  apiVersion: string,
): readonly ManagedFieldsEntry[] | undefined {
  if (!entries.some((entry) => namesOther(entry, apiVersion))) return undefined;
  const byManager = new Map<string, ManagedFieldsEntry>();
  for (const entry of entries) {
    const named = namesOther(entry, apiVersion) ? { ...entry, apiVersion } : entry;
    const key = managerKey(named);
    const same = byManager.get(key);
    byManager.set(key, same === undefined ? named : union(same, named));
  }
  return [...byManager.values()];
}

/**
 * The entries without those of versions that the CRD no longer has, which fail every apply. So it is where a webhook
 * converts: only the webhook knows which path is which. An entry of a version that is there and not served fails
 * nothing, and stays: to remove it takes a merge patch, which wipes all entries while the webhook is down.
 *
 * Where none is left, one that owns a name stands in: an object without any would get one that owns every field at the
 * next apply. cluster-api removes the entries of unserved versions, too:
 * https://github.com/kubernetes-sigs/cluster-api/blob/v1.11.0/controllers/crdmigrator/crd_migrator.go
 * @returns `undefined` where there is nothing to remove
 */
export function withoutGone(
  entries: readonly ManagedFieldsEntry[],
  apiVersion: string,
  isThere: (version: string) => boolean,
): readonly ManagedFieldsEntry[] | undefined {
  const kept = entries.filter(
    (entry) => !namesOther(entry, apiVersion) || isThere(entry.apiVersion?.split("/").at(-1) ?? ""),
  );
  if (kept.length === entries.length) return undefined;
  if (kept.length > 0) return kept;
  const { manager = "ksvm" } = entries[0] ?? {};
  const fieldsV1 = { "f:metadata": { "f:name": {} } };
  return [{ manager, operation: "Apply", apiVersion, fieldsType: "FieldsV1", fieldsV1 }];
}

/** The entries without those of ksvm's own writes; `undefined` where there are none, or no others. */
export function withoutOwn(entries: readonly ManagedFieldsEntry[]): readonly ManagedFieldsEntry[] | undefined {
  const others = entries.filter(({ manager }) => manager !== REWRITE_FIELD_MANAGER);
  return others.length === 0 || others.length === entries.length ? undefined : others;
}

/** Whether two lists hold the same entries, in whatever order: an API server sorts them. Times are not compared. */
export function areSame(a: readonly ManagedFieldsEntry[], b: readonly ManagedFieldsEntry[]): boolean {
  return textOf(a) === textOf(b);
}

function textOf(entries: readonly ManagedFieldsEntry[]): string {
  return JSON.stringify(entries.map((entry) => [managerKey(entry), sorted(entry.fieldsV1 ?? {})].join()).toSorted());
}

function managerKey({ apiVersion, manager, operation, subresource = "" }: ManagedFieldsEntry): string {
  return JSON.stringify([manager, operation, apiVersion, subresource]);
}

function sorted(set: FieldSet): string {
  const members = Object.entries(set).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([path, below]) => `${JSON.stringify(path)}:${sorted(below as FieldSet)}`).join()}}`;
}

function union(a: ManagedFieldsEntry, b: ManagedFieldsEntry): ManagedFieldsEntry {
  const later = (a.time ?? "") > (b.time ?? "") ? a : b;
  return { ...later, fieldsV1: bothSets(a.fieldsV1 ?? {}, b.fieldsV1 ?? {}) };
}

/** A field with nothing below it is owned; one with fields below it is owned where `.` is among them. */
function bothSets(a: FieldSet, b: FieldSet): FieldSet {
  const all = new Map(Object.entries(a));
  for (const [path, below] of Object.entries(b)) {
    const [left, right] = [(all.get(path) ?? below) as FieldSet, below as FieldSet];
    const both = bothSets(left, right);
    const isOwned = isEmpty(left) || isEmpty(right);
    all.set(path, isOwned && !isEmpty(both) ? { ".": {}, ...both } : both);
  }
  return Object.fromEntries(all);
}

function isEmpty(set: FieldSet): boolean {
  return Object.keys(set).length === 0;
}
