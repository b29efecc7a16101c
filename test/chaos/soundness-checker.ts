import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";
import { MIGRATION_GROUP } from "../../src/api/migration.ts";
import type { EtcdReader } from "../control-plane/etcd-reader.ts";
import { GROUP, type TestKind } from "../integration/crd-fixture.ts";
import { CompactedError, watchChanges } from "./etcd-watch.ts";
import { type ListBreach, PersistedList } from "./persisted-list.ts";
import { type Breach, type StoredChange, type StoredKeys, StoredState } from "./stored-state.ts";

/** What a {@link SoundnessChecker} saw. */
export interface SoundnessReport {
  /** Revisions judged one after the other, in the order of etcd's own history: none in between was missed. */
  readonly revisions: number;
  /** Revisions of which everything was read again and judged, whatever the history says. */
  readonly snapshots: number;
  /** How often the history was lost to a compaction, so that the checker began again. */
  readonly gaps: number;
  readonly breachesInHistory: readonly Breach[];
  readonly breachesInSnapshots: readonly Breach[];
  readonly storageChangesWhileFrozen: number;
  readonly sameVersionWrites: number;
  readonly prunes: number;
  /** What was seen of the StorageState, where that is followed. */
  readonly list: ListReport;
}

/** What a {@link SoundnessChecker} saw of a StorageState. */
export interface ListReport {
  /** Revisions at which it was compared with what is stored. */
  readonly compared: number;
  readonly breaches: readonly ListBreach[];
  /** How often the list became one known hash alone. */
  readonly completions: number;
  /** How often the StorageState was behind its CRD, while objects were stored in the CRD's new version already. */
  readonly lags: number;
  /** Milliseconds that the longest of these took. */
  readonly longestLagMs: number;
  /** Whether it is behind in the end. */
  readonly isBehind: boolean;
}

/** How a {@link SoundnessChecker} works. */
export interface CheckerOptions {
  /**
   * Milliseconds between two full reads, more where a read takes longer than a quarter of it; there is one after every change of
   * the CRD as well. @default 500
   */
  readonly snapshotEveryMs?: number;
  /**
   * The storageVersionHash of each version, as discovery shows it: follows the StorageState as well. @default it is not
   * followed
   */
  readonly hashes?: ReadonlyMap<string, string>;
}

const MAX_BREACHES = 10;
const CATCH_UP_MS = 20_000;
/** How often a full read begins again because etcd compacted the revision that it was at. */
const MAX_READS = 30;

interface StoredSnapshot {
  readonly revision: number;
  readonly changes: readonly StoredChange[];
}

/**
 * Checks rule S1 on what etcd stores, past every API server, in two ways that do not rest on each other: along etcd's
 * history, revision by revision, and by reading the CRD and all objects at one revision, again and again.
 */
export class SoundnessChecker {
  readonly #etcd: () => EtcdReader;
  readonly #keys: StoredKeys;
  readonly #list: PersistedList | undefined;
  readonly #state: StoredState;
  readonly #abort = new AbortController();
  readonly #inHistory: Breach[] = [];
  readonly #inSnapshots: Breach[] = [];
  /** Revisions at which the CRD changed and nothing was read yet. */
  readonly #due: number[] = [];
  #revisions = 0;
  #snapshots = 0;
  #gaps = 0;
  readonly #ofList = { compared: 0, breaches: [] as ListBreach[], lags: 0, longestLagMs: 0 };
  /** When the StorageState fell behind its CRD, on the monotonic clock. */
  #behindSince: number | undefined;
  #position = 0;
  #work: Promise<unknown> = Promise.resolve();

  private constructor(etcd: () => EtcdReader, kind: TestKind, { hashes }: CheckerOptions) {
    this.#etcd = etcd;
    this.#keys = {
      crdKey: `/registry/apiextensions.k8s.io/customresourcedefinitions/${kind.name}`,
      objectPrefix: `/registry/${GROUP}/${kind.plural}/`,
      stateKey: `/registry/${MIGRATION_GROUP}/storagestates/${kind.name}`,
    };
    this.#list = hashes && new PersistedList(hashes);
    this.#state = new StoredState(this.#keys, this.#list);
  }

  /** Checks until it is stopped, at the latest with the test. */
  static async start(
    t: Test,
    etcd: () => EtcdReader,
    kind: TestKind,
    options: CheckerOptions = {},
  ): Promise<SoundnessChecker> {
    const checker = new SoundnessChecker(etcd, kind, options);
    await checker.#begin();
    checker.#work = Promise.all([checker.#follow(), checker.#snapshotAgainAndAgain(options.snapshotEveryMs ?? 500)]);
    t.teardown(() => checker.#end());
    return checker;
  }

  /** Whether anything was found so far: then there is nothing left to wait for. */
  get hasBreach(): boolean {
    return [this.#inHistory, this.#inSnapshots, this.#ofList.breaches].some(({ length }) => length > 0);
  }

  /**
   * Checks once more, and tells what was seen.
   * @throws {Error} where the history does not lead to what is stored in the end: then it proves nothing.
   */
  async stop(): Promise<SoundnessReport> {
    await this.#catchUp();
    for (const revision of this.#due.splice(0)) await this.#snapshot(revision).catch(() => undefined);
    await this.#end();
    const { storageChangesWhileFrozen, sameVersionWrites, prunes } = this.#state;
    return {
      revisions: this.#revisions,
      snapshots: this.#snapshots,
      gaps: this.#gaps,
      breachesInHistory: this.#inHistory,
      breachesInSnapshots: this.#inSnapshots,
      storageChangesWhileFrozen,
      sameVersionWrites,
      prunes,
      list: {
        ...this.#ofList,
        completions: this.#list?.completions ?? 0,
        isBehind: this.#behindSince !== undefined,
      },
    };
  }

  async #end(): Promise<void> {
    this.#abort.abort();
    await this.#work;
  }

  async #catchUp(): Promise<void> {
    const deadline = performance.now() + CATCH_UP_MS;
    for (;;) {
      const { counts } = await this.#snapshot();
      if (JSON.stringify(sorted(counts)) === JSON.stringify(sorted(this.#state.counts))) return;
      if (performance.now() > deadline) {
        const told = JSON.stringify(this.#state.counts);
        throw new Error(`Cannot trust the history: it leads to ${told} and ${JSON.stringify(counts)} is stored`);
      }
      await delay(100);
    }
  }

  /** Reads everything at one revision and goes on from there. */
  async #begin(): Promise<void> {
    const { revision, changes } = await this.#readAll();
    this.#state.reset();
    for (const change of changes) this.#state.apply(change);
    this.#position = revision;
    this.#judge(revision);
  }

  async #follow(): Promise<void> {
    const { signal } = this.#abort;
    while (!signal.aborted) {
      try {
        await this.#followOnce();
      } catch (error) {
        if (error instanceof CompactedError) {
          this.#gaps++;
          await this.#begin().catch(() => undefined);
        }
      }
      // etcd is down, or the stream ended: nothing is missed, the history is asked for from where it broke off.
      await delay(50, undefined, { signal }).catch(() => undefined);
    }
  }

  async #followOnce(): Promise<void> {
    // One range from the CRD to its last object, or to its StorageState, so that all come in one order.
    const { crdKey, objectPrefix, stateKey } = this.#keys;
    const range = { from: crdKey, to: this.#list === undefined ? `${objectPrefix}\u{10ffff}` : `${stateKey}\0` };
    const options = { ...range, startRevision: this.#position + 1, signal: this.#abort.signal };
    for await (const all of watchChanges(this.#etcd().url, options)) {
      const changes = all.filter((change) => this.#state.isOurs(change));
      for (const [index, change] of changes.entries()) {
        this.#state.apply(change);
        this.#position = change.modRevision;
        if (this.#state.isCrd(change)) this.#due.push(change.modRevision);
        // What one transaction wrote is one revision, and is judged as one.
        if (changes[index + 1]?.modRevision !== change.modRevision) this.#judge(change.modRevision);
      }
    }
  }

  #judge(revision: number): void {
    this.#revisions++;
    const breach = this.#state.breach(revision);
    if (breach !== undefined && this.#inHistory.length < MAX_BREACHES) this.#inHistory.push(breach);
    this.#judgeList(revision);
  }

  #judgeList(revision: number): void {
    const ofList = this.#ofList;
    ofList.compared += this.#list?.isThere === true ? 1 : 0;
    const found = this.#state.listBreach(revision);
    if (found?.isAhead === false && ofList.breaches.length < MAX_BREACHES) ofList.breaches.push(found.breach);
    if (found?.isAhead === true) {
      this.#behindSince ??= performance.now();
    } else if (this.#behindSince !== undefined) {
      ofList.lags++;
      ofList.longestLagMs = Math.max(ofList.longestLagMs, performance.now() - this.#behindSince);
      this.#behindSince = undefined;
    }
  }

  async #snapshotAgainAndAgain(everyMs: number): Promise<void> {
    const { signal } = this.#abort;
    while (!signal.aborted) {
      const startedAt = performance.now();
      // A read fails while etcd is down, and where the revision is compacted already.
      await this.#snapshot(this.#due.shift()).catch(() => undefined);
      if (this.#due.length > 0) continue;
      await delay(pauseMs(everyMs, startedAt), undefined, { signal }).catch(() => undefined);
    }
  }

  async #snapshot(atRevision?: number): Promise<{ readonly counts: Record<string, number> }> {
    const { revision, changes } = await this.#readAll(atRevision);
    const state = new StoredState(this.#keys);
    for (const change of changes) state.apply(change);
    this.#snapshots++;
    const breach = state.breach(revision);
    if (breach !== undefined && this.#inSnapshots.length < MAX_BREACHES) this.#inSnapshots.push(breach);
    return state;
  }

  /** Reads the CRD and its objects at one revision: by default at the newest, and at a newer one where etcd compacts that one during the read. */
  async #readAll(atRevision?: number): Promise<StoredSnapshot> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#readAt(atRevision ?? (await this.#etcd().currentRevision()));
      } catch (error) {
        const isCompacted = error instanceof Error && error.message.includes("has been compacted");
        if (!isCompacted || atRevision !== undefined || attempt === MAX_READS) throw error;
      }
    }
  }

  async #readAt(revision: number): Promise<StoredSnapshot> {
    const etcd = this.#etcd();
    const crd = await etcd.readKey(this.#keys.crdKey, { revision });
    const objects = await etcd.readPrefix(this.#keys.objectPrefix, { revision });
    const state = this.#list && (await etcd.readKey(this.#keys.stateKey, { revision }));
    return { revision, changes: [crd, ...objects, state].filter((entry) => entry !== undefined) };
  }
}

/** How long to pause after a full read: it is to have a fifth of the time at most, on a busy machine too, or it is the load. */
export function pauseMs(everyMs: number, startedAt: number): number {
  return Math.max(everyMs, 4 * (performance.now() - startedAt));
}

function sorted(counts: Record<string, number>): readonly (readonly [string, number])[] {
  return Object.entries(counts).toSorted(([a], [b]) => a.localeCompare(b));
}
