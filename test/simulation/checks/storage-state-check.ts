import { type StorageState, UNKNOWN_HASH } from "../../../src/api/migration.ts";
import { CRD_ANNOTATION } from "../../../src/api/names.ts";
import { parseCrdRecord } from "../../../src/trigger/crd-facts.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { SimEtcd } from "../model/etcd.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { isByKsvm, type World } from "../world/world.ts";
import type { Check } from "./check.ts";
import { pastOf, storedUnder } from "./crd-past.ts";
import { STATES_PREFIX, UserWords } from "./user-words.ts";

/** Longer than from a look at a CRD until what follows from it is written, a request that an API server holds included. */
const LOOK_MS = 300_000;

/**
 * A StorageState that ksvm writes names, in `status.persistedStorageVersionHashes`, every version that an object is stored in, but for
 * objects written after a change of the CRD that it may not have seen yet. What a user wrote into a StorageState or a migration of
 * the same resource is the user's to answer for, until the user has deleted it.
 */
export class StorageStateCheck implements Check {
  readonly name = "storage states";
  readonly #world: World;
  /** When each revision was written. */
  readonly #times: number[] = [];
  /** What is not ksvm's to answer for. */
  readonly #words: UserWords;
  /** `uid/version` of the CRDs and versions that another client pruned although objects were stored so, which ksvm could not know. */
  readonly #hidden = new Set<string>();

  constructor(world: World) {
    this.#world = world;
    this.#words = new UserWords(world);
    const { etcd } = world.cluster;
    etcd.onRevision((entry) => {
      this.#times[entry.modRevision] = world.schedule.now;
      if (entry.key.startsWith(CRD_PREFIX) && !isByKsvm()) this.#notePrune(etcd, entry);
      if (!entry.key.startsWith(STATES_PREFIX)) return;
      if (!entry.isDeleted && isByKsvm()) this.#written(etcd, entry);
      if (entry.isDeleted && !isByKsvm()) this.#noteForgotten(etcd, entry);
    });
  }

  /** The trigger believes storedVersions of a CRD that it has not seen before. Of one that it has seen, the generation tells of a storage version that went there and back. */
  #notePrune(etcd: SimEtcd, { key, modRevision }: EtcdEntry): void {
    const name = key.slice(CRD_PREFIX.length);
    const past = pastOf(etcd, name);
    const [before, after] = past?.states.slice(-2) ?? [];
    if (past === undefined || before === undefined || after?.revision !== modRevision) return;
    const state = etcd.get(`${STATES_PREFIX}${name}`)?.object as unknown as StorageState | undefined;
    if (recordedUidIn(state) === past.uid) return;
    const known = persistedIn(state);
    for (const version of before.storedVersions) {
      const isPruned = !after.storedVersions.includes(version);
      if (isPruned && !known.includes(past.hashOf(version))) this.#hidden.add(`${past.uid}/${version}`);
    }
  }

  /** What another client pruned the StorageState alone remembers: a user who deletes it has ksvm believe the CRD. */
  #noteForgotten(etcd: SimEtcd, { key }: EtcdEntry): void {
    const past = pastOf(etcd, key.slice(STATES_PREFIX.length));
    if (past === undefined) return;
    const listed = past.states.at(-1)?.storedVersions ?? [];
    for (const version of past.states.flatMap(({ storedVersions }) => storedVersions))
      if (!listed.includes(version)) this.#hidden.add(`${past.uid}/${version}`);
  }

  #written(etcd: SimEtcd, { key, modRevision, object }: EtcdEntry): void {
    const state = object as unknown as StorageState;
    const persisted = persistedIn(state);
    const { name } = state.metadata;
    const past = persisted.includes(UNKNOWN_HASH) || this.#words.has(name) ? undefined : pastOf(etcd, name);
    if (past === undefined) return;
    const since = this.#world.schedule.now - LOOK_MS;
    const isNew = ({ revision }: { readonly revision: number }): boolean => (this.#times[revision] ?? 0) >= since;
    const [created] = past.states;
    // Of one that was created a moment ago, what is written may be about the CRD before it.
    if (created === undefined || (isNew(created) && recordedUidIn(state) !== past.uid)) return;
    const changed = past.states.find((one, at) => {
      const before = past.states[at - 1];
      return before !== undefined && isNew(one) && one.storageVersion !== before.storageVersion;
    });
    const isHidden = (version: string): boolean => this.#hidden.has(`${past.uid}/${version}`);
    // A version that was never listed is what a late write of an earlier CRD of this name left.
    const isListed = (version: string): boolean => past.states.some((one) => one.storedVersions.includes(version));
    const missing = storedUnder(etcd, past.prefix, changed?.revision).filter(
      ({ version }) => isListed(version) && !isHidden(version) && !persisted.includes(past.hashOf(version)),
    );
    const [first] = missing;
    if (first !== undefined) {
      this.#world.violate(
        `storage state: ${key} says at revision ${modRevision} that objects are stored as [${persisted.join(", ")}], and ${first.key} is ` +
          `${first.version} (${past.hashOf(first.version)}) since revision ${first.revision}`,
      );
    }
  }
}

/** The uid of the CRD that a StorageState remembers. */
function recordedUidIn(state: StorageState | undefined): string | undefined {
  return parseCrdRecord(state?.metadata.annotations?.[CRD_ANNOTATION])?.uid;
}

function persistedIn(state: StorageState | undefined): readonly string[] {
  return state?.status?.persistedStorageVersionHashes ?? [UNKNOWN_HASH];
}
