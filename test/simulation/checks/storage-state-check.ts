import { type StorageState, UNKNOWN_HASH } from "../../../src/api/migration.ts";
import { CRD_ANNOTATION } from "../../../src/api/names.ts";
import { parseCrdRecord } from "../../../src/trigger/crd-facts.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { SimEtcd } from "../model/etcd.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { isByKsvm as isWrittenByKsvm, type World } from "../world/world.ts";
import type { Check } from "./check.ts";
import { type CrdPast, pastOf, type PastCrd, storedUnder } from "./crd-past.ts";
import { STATES_PREFIX, UserWords } from "./user-words.ts";

/** Longer than from a look at a CRD until what follows from it is written, a request that an API server holds included. */
const LOOK_MS = 70_000;
/** A write that is under way when a version is pruned may land so much later, in milliseconds. */
const LATE_MS = 65_000;

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
  /** Until when objects were written in versions that ksvm cannot know, by `uid/version`: another client pruned them, and late writes came after that. */
  readonly #hidden = new Map<string, number>();

  /** @param isByKsvm whether ksvm writes the revision that etcd tells of at this moment */
  constructor(world: World, isByKsvm: () => boolean = isWrittenByKsvm) {
    this.#world = world;
    this.#words = new UserWords(world, isByKsvm);
    const { etcd } = world.cluster;
    etcd.onRevision((entry) => {
      this.#times[entry.modRevision] = world.schedule.now;
      if (entry.key.startsWith(CRD_PREFIX) && !isByKsvm()) this.#notePrune(etcd, entry);
      if (!entry.key.startsWith(STATES_PREFIX)) return;
      if (!entry.isDeleted && isByKsvm()) this.#written(etcd, entry);
      if (!isByKsvm() && (entry.isDeleted || isForgotten(entry))) this.#noteForgotten(etcd, entry);
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
    const known = isOfEarlierCrd(state, past) ? [] : persistedIn(state);
    const pruned = before.storedVersions.filter((version) => !after.storedVersions.includes(version));
    for (const version of pruned) if (!known.includes(past.hashOf(version))) this.#hide(past, version);
  }

  #hide({ uid }: CrdPast, version: string): void {
    this.#hidden.set(`${uid}/${version}`, this.#world.schedule.now + LATE_MS);
  }

  /** What another client pruned the StorageState alone remembers: a user who deletes it, or writes `Unknown` in its place, has ksvm believe the CRD. */
  #noteForgotten(etcd: SimEtcd, { key }: EtcdEntry): void {
    const past = pastOf(etcd, key.slice(STATES_PREFIX.length));
    if (past === undefined) return;
    const listed = past.states.at(-1)?.storedVersions ?? [];
    for (const version of past.states.flatMap(({ storedVersions }) => storedVersions))
      if (!listed.includes(version)) this.#hide(past, version);
  }

  /** Which changes of the CRD it may not have seen: those after the generation that it names, and not long ago. */
  #unseenBy({ metadata }: StorageState, { uid }: CrdPast): (change: PastCrd) => boolean {
    const record = parseCrdRecord(metadata.annotations?.[CRD_ANNOTATION]);
    const seen = record?.uid === uid ? record.generation : 0;
    const since = this.#world.schedule.now - LOOK_MS;
    return ({ generation, revision }) => generation > seen && (this.#times[revision] ?? 0) >= since;
  }

  #written(etcd: SimEtcd, { key, modRevision, object }: EtcdEntry): void {
    const state = object as unknown as StorageState;
    const persisted = persistedIn(state);
    const { name } = state.metadata;
    const past = persisted.includes(UNKNOWN_HASH) || this.#words.has(name) ? undefined : pastOf(etcd, name);
    if (past === undefined) return;
    const isUnseen = this.#unseenBy(state, past);
    const [created] = past.states;
    if (created === undefined || isUnseen(created)) return;
    const changed = past.states.find((one, at) => {
      return isUnseen(one) && one.storageVersion !== past.states[at - 1]?.storageVersion;
    });
    // A version that was never listed is what a late write of an earlier CRD of this name left.
    const isListed = (version: string): boolean => past.states.some((one) => one.storedVersions.includes(version));
    const isHidden = ({ revision, version }: { readonly revision: number; readonly version: string }): boolean =>
      (this.#times[revision] ?? 0) <= (this.#hidden.get(`${past.uid}/${version}`) ?? Number.NEGATIVE_INFINITY);
    const missing = storedUnder(etcd, past.prefix, changed?.revision).filter((one) => {
      return isListed(one.version) && !isHidden(one) && !persisted.includes(past.hashOf(one.version));
    });
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

/**
 * Whether a StorageState says nothing of this CRD: it remembers an earlier one of the same name, whose objects were deleted with it. A hash that it
 * lists is one of the earlier CRD also where this one has a version of the same name. With `Unknown` a look may have begun to write it of this CRD,
 * and ended before it could say so: the trigger keeps what that lists.
 */
function isOfEarlierCrd(state: StorageState | undefined, { uid }: CrdPast): boolean {
  const recorded = recordedUidIn(state);
  return recorded !== undefined && recorded !== uid && !persistedIn(state).includes(UNKNOWN_HASH);
}

/** Whether a StorageState names no version any more, and says so. */
function isForgotten({ object }: EtcdEntry): boolean {
  const persisted = persistedIn(object as unknown as StorageState);
  return persisted.length === 1 && persisted[0] === UNKNOWN_HASH;
}

function persistedIn(state: StorageState | undefined): readonly string[] {
  return state?.status?.persistedStorageVersionHashes ?? [UNKNOWN_HASH];
}
