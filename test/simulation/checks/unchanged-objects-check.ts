import {
  CHECKPOINT_KEY_ANNOTATION,
  MIGRATING_ANNOTATION,
  OWNER_ANNOTATION,
  STORAGE_MIGRATING_CONDITION,
} from "../../../src/api/names.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { SimEtcd } from "../model/etcd.ts";
import { union } from "../model/field-sets.ts";
import { type Fields, isFields, isSame, type ManagedEntry, type ModelObject, without } from "../model/model-object.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { REQUEST_TIMEOUT_MS } from "../world/api-server-node.ts";
import { crdNameOf, objectsPrefixOf } from "../world/kinds.ts";
import { isByKsvm, type World } from "../world/world.ts";
import type { Check } from "./check.ts";

/**
 * What webhooks of the simulation change with each write that they see, from any client: annotations that begin so, and the
 * fields of `spec` with these names. Only they do that. `lost` stands for all fields that a conversion lost.
 */
export const WEBHOOK_ANNOTATION = "webhooks.sim.example.com/";
export const WEBHOOK_FIELDS = ["mutated", "converted", "lost"] as const;

/** What an {@link UnchangedObjectsCheck} needs. */
export interface UnchangedObjectsCheckOptions {
  readonly report: (violation: string) => void;
  /** Whether ksvm writes the revision that etcd tells of at this moment. */
  readonly isByKsvm: () => boolean;
  /** Whether a key is that of an object which users made, and ksvm migrates. */
  readonly isObject: (key: string) => boolean;
  /** Whether a CRD is one that ksvm migrates. */
  readonly isCrd: (name: string) => boolean;
  /** Whether a version (`group/version`) was missing in its CRD a short time ago: an API server that is late does not know it. */
  readonly isMissing: (apiVersion: string) => boolean;
}

/**
 * A write by ksvm changes nothing of an object that users see: all but its version, its encryption, and its resourceVersion is as
 * it was, apart from what a webhook made of it. That holds for managedFields as well, but that all of them may name the version in which the object
 * is stored now. Where an entry names a version which the CRD has no more, they may be lost as a whole, since an API server takes no apply of
 * such an object. It never creates or deletes one.
 * Of a CRD it changes its own annotations, prunes `status.storedVersions`, and takes one condition off with that.
 */
export class UnchangedObjectsCheck {
  readonly #options: UnchangedObjectsCheckOptions;

  constructor(options: UnchangedObjectsCheckOptions) {
    this.#options = options;
  }

  /** @returns one for a world. */
  static of(world: World): Check {
    const { etcd } = world.cluster;
    const prefixes = world.plan.kinds.map(objectsPrefixOf);
    const names = world.plan.kinds.map(crdNameOf);
    const missing = new MissingVersions({
      now: () => world.schedule.now,
      isAnyLate: () => world.cluster.nodes.some(({ isLate }) => isLate),
    });
    etcd.onRevision((entry) => missing.written(entry));
    new UnchangedObjectsCheck({
      report: (violation) => world.violate(`changed: ${violation}`),
      isByKsvm,
      isObject: (key) => prefixes.some((prefix) => key.startsWith(prefix)),
      isCrd: (name) => names.includes(name),
      isMissing: (apiVersion) => missing.has(apiVersion),
    }).follow(etcd);
    return { name: "unchanged objects" };
  }

  /** Judges every revision from now on. */
  follow(etcd: SimEtcd): void {
    etcd.onRevision((entry) => {
      if (this.#options.isByKsvm()) this.#judge(entry);
    });
  }

  #judge(entry: EtcdEntry): void {
    const { report } = this.#options;
    const isCrd = entry.key.startsWith(CRD_PREFIX) && this.#options.isCrd(entry.key.slice(CRD_PREFIX.length));
    if (!isCrd && !this.#options.isObject(entry.key)) return;
    const where = `${entry.key} at revision ${entry.modRevision}`;
    const { before } = entry;
    if (entry.isDeleted) {
      // The last finalizer may be gone before the write: then any write of the object lets it go.
      report(`a write by ksvm deleted ${where}`);
    } else if (before === undefined || before.isDeleted) {
      report(`a write by ksvm created ${where}`);
    } else {
      const problem = isCrd
        ? crdProblem(before.object, entry.object)
        : (objectProblem(before.object, entry.object) ?? this.#managersProblem(before.object, entry.object));
      if (problem !== undefined) report(`a write by ksvm changed ${problem} of ${where}`);
    }
  }

  /** They are what they were also where a webhook changes the object: the API server enters nothing for that. */
  #managersProblem(before: ModelObject, after: ModelObject): string | undefined {
    const [left, right] = [before, after].map(entriesOf) as [Entries, Entries];
    const all = new Set([...left.keys(), ...right.keys()]);
    const changed = [...all].find((key) => !isSame(left.get(key), right.get(key)));
    if (changed === undefined) return undefined;
    const isLost = right.size === 0 && [...left.values()].some(({ apiVersion }) => this.#options.isMissing(apiVersion));
    return isLost || isSame(renamedTo(after.apiVersion, left), Object.fromEntries(right))
      ? undefined
      : `managedFields (${changeOf(left.has(changed), right.has(changed))} ${changed})`;
  }
}

interface SeenVersions {
  readonly now: () => number;
  /** Whether an API server has yet to follow a CRD. */
  readonly isAnyLate: () => boolean;
}

/** When each version of a CRD was missing last, as `group/version`. */
class MissingVersions {
  readonly #world: SeenVersions;
  /** `Infinity` for one that is missing now. */
  readonly #at = new Map<string, number>();

  constructor(world: SeenVersions) {
    this.#world = world;
  }

  written({ before, key, object, isDeleted }: EtcdEntry): void {
    if (!key.startsWith(CRD_PREFIX)) return;
    const has = isDeleted ? new Set<string>() : apiVersionsOf(object);
    const had = before === undefined || before.isDeleted ? [] : apiVersionsOf(before.object);
    for (const apiVersion of had) if (!has.has(apiVersion)) this.#at.set(apiVersion, Number.POSITIVE_INFINITY);
    for (const apiVersion of has)
      if (this.#at.get(apiVersion) === Number.POSITIVE_INFINITY) this.#at.set(apiVersion, this.#world.now());
  }

  has(apiVersion: string): boolean {
    const ms = this.#world.now() - (this.#at.get(apiVersion) ?? Number.NEGATIVE_INFINITY);
    return ms < REQUEST_TIMEOUT_MS || (ms < Number.POSITIVE_INFINITY && this.#world.isAnyLate());
  }
}

function apiVersionsOf({ spec }: ModelObject): ReadonlySet<string> {
  const { group, versions } = spec as { group: string; versions: readonly { name: string }[] };
  return new Set(versions.map(({ name }) => `${group}/${name}`));
}

type Entries = ReadonlyMap<string, ManagedEntry>;

function entriesOf({ metadata: { managedFields = [] } }: ModelObject): Entries {
  return new Map(managedFields.map((entry) => [nameOf(entry), entry]));
}

function nameOf({ apiVersion, manager, operation, subresource }: ManagedEntry): string {
  return [manager, operation, apiVersion, subresource].filter((part) => part !== undefined).join(" ");
}

/** The entries as they are once all of them name one version: those of one manager are one, of the later time. */
function renamedTo(apiVersion: string, entries: Entries): Fields {
  const renamed: Record<string, ManagedEntry> = {};
  for (const old of entries.values()) {
    const entry = { ...old, apiVersion };
    const same = renamed[nameOf(entry)];
    const later = (same?.time ?? "") > (entry.time ?? "") ? (same ?? entry) : entry;
    renamed[nameOf(entry)] = { ...later, fieldsV1: union(same?.fieldsV1, entry.fieldsV1) ?? {} };
  }
  return renamed;
}

function changeOf(wasThere: boolean, isThere: boolean): string {
  if (!wasThere) return "it adds";
  return isThere ? "it changes the fields or the time of" : "it removes";
}

function objectProblem(before: ModelObject, after: ModelObject): string | undefined {
  const [left, right] = [withoutWebhooks(before), withoutWebhooks(after)];
  const isSpecOfWebhook = !isSame(before["spec"], after["spec"]);
  const isLost = isFields(after["spec"]) && after["spec"]["lost"] === true;
  return (
    differenceOf(left, right, ["apiVersion", "metadata", ...(isLost ? ["spec"] : [])]) ??
    differenceOf(left.metadata, right.metadata, [
      "managedFields",
      "resourceVersion",
      ...(isSpecOfWebhook ? ["generation"] : []),
    ])
  );
}

function withoutWebhooks(object: ModelObject): ModelObject {
  const annotations = object.metadata.annotations ?? {};
  const own = Object.fromEntries(Object.entries(annotations).filter(([name]) => !name.startsWith(WEBHOOK_ANNOTATION)));
  const { spec } = object;
  const metadata =
    Object.keys(own).length === 0 ? without(object.metadata, "annotations") : { ...object.metadata, annotations: own };
  return { ...object, metadata, ...(isFields(spec) ? { spec: without(spec, ...WEBHOOK_FIELDS) } : {}) };
}

interface CrdStatus {
  readonly conditions?: readonly { readonly type: string }[] | null;
  readonly storedVersions?: readonly string[] | null;
}

function crdProblem(before: ModelObject, after: ModelObject): string | undefined {
  return (
    differenceOf(before, after, ["metadata", "status"]) ??
    differenceOf(before.metadata, after.metadata, ["annotations", "managedFields", "resourceVersion"]) ??
    differenceOf(before.metadata.annotations ?? {}, after.metadata.annotations ?? {}, [
      CHECKPOINT_KEY_ANNOTATION,
      MIGRATING_ANNOTATION,
      OWNER_ANNOTATION,
    ]) ??
    differenceOf((before["status"] ?? {}) as Fields, (after["status"] ?? {}) as Fields, [
      "storedVersions",
      "conditions",
    ]) ??
    storedVersionsProblem(before, after) ??
    conditionsProblem(before, after)
  );
}

/** The API server adds the storage version with each write of a CRD where another client took it away. */
function storedVersionsProblem(before: ModelObject, after: ModelObject): string | undefined {
  const listed = statusOf(before).storedVersions ?? [];
  const added = (statusOf(after).storedVersions ?? []).filter((version) => !listed.includes(version));
  const { versions = [] } = after["spec"] as { versions?: readonly { name: string; storage?: boolean }[] };
  const isStorage = (version: string): boolean => versions.some(({ name, storage }) => name === version && storage);
  return added.every(isStorage) ? undefined : "storedVersions (it adds a version)";
}

function conditionsProblem(before: ModelObject, after: ModelObject): string | undefined {
  const [earlier, later] = [conditionsOf(before), conditionsOf(after)];
  const isKept = later.some(({ type }) => type === STORAGE_MIGRATING_CONDITION);
  const expected = isKept ? earlier : earlier.filter(({ type }) => type !== STORAGE_MIGRATING_CONDITION);
  return isSame(expected, later) ? undefined : "conditions";
}

function conditionsOf(crd: ModelObject): readonly { type: string }[] {
  return statusOf(crd).conditions ?? [];
}

function statusOf({ status }: ModelObject): CrdStatus {
  return status ?? {};
}

/** The name of the first field that is not the same, of those that count. */
function differenceOf(before: Fields, after: Fields, left: readonly string[]): string | undefined {
  const fields = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...fields].find((field) => !left.includes(field) && !isSame(before[field], after[field]));
}
