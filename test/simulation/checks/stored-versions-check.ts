import type { CustomResourceDefinition } from "../../../src/api/crd.ts";
import { isClean, storageVersionOf, storedVersionsOf } from "../../../src/api/crd.ts";
import type { StorageVersionMigration } from "../../../src/api/migration.ts";
import { hasFreezeAnnotation } from "../../../src/api/owner.ts";
import { conditionsWithoutDoubt } from "../../../src/in-tree/prune-doubt.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { SimEtcd } from "../model/etcd.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import type { ModelRequest } from "../model/types.ts";
import { currentRequest } from "../world/api-server-node.ts";
import { crdNameOf, objectsPrefixOf } from "../world/kinds.ts";
import { CRDS } from "../world/user-actions.ts";
import { isByKsvm, type World } from "../world/world.ts";
import { areUnmanaged } from "../actions/choices.ts";
import type { Check } from "./check.ts";
import { provesMigrated } from "./claims.ts";
import { MIGRATIONS_PREFIX, UserWords } from "./user-words.ts";

/** No process writes objects that has not read their CRD within this time, in milliseconds. */
const LOOKED_WITHIN_MS = 10_000;
const NEVER = [0, Number.NEGATIVE_INFINITY] as const;
const NEVER_SENT = { at: 0, askedAt: 0, isOld: false };

/** What is known of the objects of one CRD. */
interface Stored {
  crd: CustomResourceDefinition | undefined;
  /** How many are stored in each version. */
  readonly byVersion: Map<string, number>;
  /** The versions that ksvm took out of storedVersions of this CRD, and that were not added since. */
  readonly pruned: Set<string>;
  /** Since when each of its versions is missing in storedVersions, by the simulation's time. */
  readonly unlistedSince: Map<string, number>;
}

/** A write of an object, when it was sent. All times are the simulation's. */
interface Sent {
  readonly at: number;
  /** When the process last asked for the CRD, and got it. */
  readonly askedAt: number;
  /** Whether that is longer ago than {@link LOOKED_WITHIN_MS}. */
  readonly isOld: boolean;
}

/**
 * S1 at every revision: the version that an object is stored in is listed in `status.storedVersions` of its CRD, as far as ksvm
 * has a part in it. Kubernetes breaks it without ksvm: a write that is under way when a CRD is deleted and created again lands
 * in a version of the CRD before. So a version counts that ksvm pruned, or that another client pruned where a controller with
 * `--manage-stored-versions=false` says that the CRD is migrated, and each object that ksvm stores in another version than before, where the
 * CRD is frozen in yet another one, or the process has read the CRD since another client took that version out, or has not read it for longer than
 * {@link LOOKED_WITHIN_MS}. And no prune of ksvm stands beside the condition by which every reader of the CRD doubts it.
 */
export class StoredVersionsCheck implements Check {
  readonly name = "stored versions";
  readonly #report: (violation: string) => void;
  /** What ksvm had pruned from each state of a CRD: a restore brings one back. */
  readonly #prunedFrom = new WeakMap<object, ReadonlySet<string>>();
  /** By `/registry/GROUP/PLURAL/`. */
  readonly #stored = new Map<string, Stored>();
  readonly #world: World;
  /** When a process last asked for a CRD as it is and got it, and when it had it; by its name and the prefix of its objects. */
  readonly #readAt = new Map<string, readonly [askedAt: number, gotAt: number]>();
  readonly #sent = new WeakMap<ModelRequest, Sent>();
  readonly #words: UserWords;

  constructor(world: World) {
    const { etcd } = world.cluster;
    this.#world = world;
    this.#words = new UserWords(world);
    this.#report = (violation) => world.violate(violation);
    etcd.onRevision((entry) => this.#written(entry));
    etcd.onRestore(() => this.#readAll(etcd));
    this.#readAll(etcd);
    this.#followRequests();
  }

  #followRequests(): void {
    const { cluster, plan, schedule } = this.#world;
    const { onExchange } = cluster;
    const kinds = plan.kinds.map((kind) => ({
      crd: `${CRDS}/${crdNameOf(kind)}`,
      objects: `/${kind.plural}/`,
      prefix: objectPrefixOf(objectsPrefixOf(kind)) ?? "",
    }));
    cluster.onExchange = (request, process) => {
      const ended = onExchange(request, process);
      const { method, path, query } = request;
      const kind = kinds.find(({ crd, objects }) => path === crd || path.includes(objects));
      if (kind === undefined) return ended;
      const reader = `${process.name} ${kind.prefix}`;
      if (method === "PATCH") {
        const [askedAt, gotAt] = this.#readAt.get(reader) ?? NEVER;
        const isOld = !process.missesTime && schedule.now - gotAt > LOOKED_WITHIN_MS;
        this.#sent.set(request, { at: schedule.now, askedAt, isOld });
      }
      if (method !== "GET" || path !== kind.crd || query.size > 0) return ended;
      const at = schedule.now;
      return (answer) => {
        if (answer?.status === 200) this.#readAt.set(reader, [at, schedule.now]);
        ended(answer);
      };
    };
  }

  #readAll(etcd: SimEtcd): void {
    this.#stored.clear();
    for (const entry of etcd.range("/registry/")) {
      const prefix = this.#take(entry, 1);
      const pruned = this.#prunedFrom.get(entry.object);
      if (prefix !== undefined && pruned !== undefined)
        for (const version of pruned) this.#of(prefix).pruned.add(version);
    }
    for (const [prefix, stored] of this.#stored) this.#judge(prefix, stored, "a restore");
  }

  #written(entry: EtcdEntry): void {
    if (entry.key.startsWith(CRD_PREFIX)) this.#notePrune(entry);
    if (entry.before !== undefined && !entry.before.isDeleted) this.#take(entry.before, -1);
    const prefix = entry.isDeleted ? this.#dropped(entry) : this.#take(entry, 1);
    if (prefix !== undefined) {
      this.#judge(prefix, this.#of(prefix), `revision ${entry.modRevision} (${entry.key})`);
      if (isByKsvm()) this.#judgeWrite(prefix, entry);
    }
  }

  #notePrune(entry: EtcdEntry): void {
    const crd = entry.object as unknown as CustomResourceDefinition;
    const { pruned } = this.#of(prefixOf(crd));
    const before = entry.before?.object as CustomResourceDefinition | undefined;
    if (before?.metadata.uid !== crd.metadata.uid || entry.isDeleted) {
      pruned.clear();
      this.#of(prefixOf(crd)).unlistedSince.clear();
      return;
    }
    const listed = storedVersionsOf(crd);
    const isOfKsvm = isByKsvm();
    if (isOfKsvm || this.#isClaimed(crd)) {
      const removed = storedVersionsOf(before).filter((version) => !listed.includes(version));
      for (const version of removed) pruned.add(version);
      if (isOfKsvm && removed.length > 0 && conditionsWithoutDoubt(crd) !== undefined) {
        this.#report(`stored versions: a prune of ${crd.metadata.name} leaves the condition that casts doubt on it`);
      }
    }
    for (const version of listed) pruned.delete(version);
    this.#prunedFrom.set(entry.object, new Set(pruned));
  }

  /** Whether another client may prune a CRD, since a controller that does not do so says that it is migrated. */
  #isClaimed(crd: CustomResourceDefinition): boolean {
    const { cluster, plan } = this.#world;
    if (!areUnmanaged(plan) || !isClean(crd) || this.#words.has(crd.metadata.name)) return false;
    const migrations = cluster.etcd.range(MIGRATIONS_PREFIX);
    return migrations.some(({ object }) => provesMigrated(object as unknown as StorageVersionMigration, crd));
  }

  /** @returns what it belongs to, where that is a CRD or one of its objects */
  #take(entry: EtcdEntry, count: 1 | -1): string | undefined {
    if (entry.key.startsWith(CRD_PREFIX)) {
      const crd = entry.object as unknown as CustomResourceDefinition;
      const prefix = prefixOf(crd);
      const stored = this.#of(prefix);
      stored.crd = count === 1 ? crd : undefined;
      if (count === 1) this.#noteUnlisted(stored, crd);
      return prefix;
    }
    const prefix = objectPrefixOf(entry.key);
    if (prefix === undefined) return undefined;
    const { byVersion } = this.#of(prefix);
    const version = entry.object.apiVersion.split("/")[1] ?? "";
    byVersion.set(version, (byVersion.get(version) ?? 0) + count);
    return prefix;
  }

  #noteUnlisted({ unlistedSince }: Stored, crd: CustomResourceDefinition): void {
    const listed = storedVersionsOf(crd);
    for (const version of listed) unlistedSince.delete(version);
    const missing = crd.spec.versions.filter(({ name }) => !listed.includes(name) && !unlistedSince.has(name));
    for (const { name } of missing) unlistedSince.set(name, this.#world.schedule.now);
  }

  #dropped(entry: EtcdEntry): string | undefined {
    return entry.key.startsWith(CRD_PREFIX) ? undefined : objectPrefixOf(entry.key);
  }

  /** An object in a version that another client pruned may stay what it is, and a write that was sent before the process read of it lands. */
  #judgeWrite(prefix: string, { before, isDeleted, key, modRevision, object }: EtcdEntry): void {
    const { crd, unlistedSince } = this.#of(prefix);
    const version = object.apiVersion.split("/")[1] ?? "";
    const isRewritten = objectPrefixOf(key) === prefix && !isDeleted && before?.object.apiVersion !== object.apiVersion;
    if (crd === undefined || !isRewritten || storedVersionsOf(crd).includes(version)) return;
    const request = currentRequest();
    const since = unlistedSince.get(version) ?? Number.POSITIVE_INFINITY;
    const { at, askedAt, isOld } = (request && this.#sent.get(request)) ?? NEVER_SENT;
    const hadToKnow = at > since && (askedAt > since || isOld);
    // While a CRD is frozen its storage version stays.
    const mayNotKnow = version === storageVersionOf(crd) || !hasFreezeAnnotation(crd);
    if (mayNotKnow && !hadToKnow) return;
    this.#report(`S1: ksvm stored ${key} as ${version} at revision ${modRevision}, which storedVersions lacks`);
  }

  #judge(prefix: string, { crd, byVersion, pruned }: Stored, when: string): void {
    if (crd === undefined) return;
    const listed = storedVersionsOf(crd);
    for (const [version, count] of byVersion) {
      if (count > 0 && pruned.has(version) && !listed.includes(version)) {
        this.#report(
          `S1: ${count} objects under ${prefix} are stored as ${version}, and storedVersions is [${listed.join(", ")}], ` +
            `storage version ${storageVersionOf(crd)}, since ${when}`,
        );
      }
    }
  }

  #of(prefix: string): Stored {
    let stored = this.#stored.get(prefix);
    if (stored === undefined) {
      stored = { crd: undefined, byVersion: new Map(), pruned: new Set(), unlistedSince: new Map() };
      this.#stored.set(prefix, stored);
    }
    return stored;
  }
}

function prefixOf({ spec }: CustomResourceDefinition): string {
  return `/registry/${spec.group}/${spec.names.plural}/`;
}

/** Of a custom resource the group is a part of the key; built-in resources have none, or no dot in it. */
function objectPrefixOf(key: string): string | undefined {
  const [, , group = "", plural = "", name] = key.split("/");
  return group.includes(".") && name !== undefined ? `/registry/${group}/${plural}/` : undefined;
}
