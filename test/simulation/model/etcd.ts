import type { ModelObject } from "./model-object.ts";
import { EtcdEntry, Timeline } from "./timeline.ts";

/** A revision that was compacted, or is not there yet, was asked for; the words are etcd's. */
export class EtcdError extends Error {
  override readonly name = "EtcdError";
}

/** https://github.com/etcd-io/etcd/blob/v3.6.8/api/v3rpc/rpctypes/error.go */
const COMPACTED = "etcdserver: mvcc: required revision has been compacted";
const FUTURE = "etcdserver: mvcc: required revision is a future revision";

/** What `etcdctl snapshot save` keeps. */
export interface EtcdSnapshot {
  readonly timeline: Timeline;
  readonly revision: number;
  readonly compactedRevision: number;
}

/** A value to write. */
export interface EtcdValue {
  readonly object: ModelObject;
  /** @default 0, which is plain text */
  readonly encryptionKey?: number;
}

/** Told of each revision, in order, right after its transaction. It must not write. */
export type RevisionListener = (entry: EtcdEntry) => void;

/** The one etcd of a simulated cluster: keys with all their revisions. Each transaction writes one key. */
export class SimEtcd {
  #timeline = new Timeline();
  #compactedRevision = 0;
  #ids = 0;
  readonly #listeners = new Set<RevisionListener>();
  readonly #restoreListeners = new Set<() => void>();

  /** The newest revision. */
  get revision(): number {
    return this.#timeline.revision;
  }

  /** No older revision can be read. */
  get compactedRevision(): number {
    return this.#compactedRevision;
  }

  /** All that happened. A restore begins another one, so who keeps this sees the past that was undone. */
  get timeline(): Timeline {
    return this.#timeline;
  }

  /** A UUID that no other object of this cluster has, also not of a past that a restore has undone. */
  nextId(): string {
    return `00000000-0000-4000-8000-${(++this.#ids).toString(16).padStart(12, "0")}`;
  }

  /** @throws {EtcdError} for a revision that was compacted, or has not come. */
  get(key: string, revision?: number): EtcdEntry | undefined {
    this.#check(revision);
    return this.#timeline.get(key, revision);
  }

  /**
   * All that is there under a prefix, in the order of the keys.
   * @param from the first key that counts
   * @throws as {@link get}.
   */
  range(prefix: string, revision?: number, from?: string): readonly EtcdEntry[] {
    this.#check(revision);
    return this.#timeline.range(prefix, revision, from);
  }

  /**
   * Writes a key if it is still as expected.
   * @param expected the modRevision that was read; 0 where nothing was there
   * @returns `undefined` where another transaction wrote the key since
   */
  put(key: string, { object, encryptionKey = 0 }: EtcdValue, expected: number): EtcdEntry | undefined {
    const before = this.#timeline.get(key);
    if ((before?.modRevision ?? 0) !== expected) return undefined;
    return this.#commit({ key, object, encryptionKey, isDeleted: false }, before);
  }

  /** Deletes a key if it is still as expected. @returns as {@link put} */
  delete(key: string, expected: number): EtcdEntry | undefined {
    const before = this.#timeline.get(key);
    if (before === undefined || before.modRevision !== expected) return undefined;
    return this.#commit({ key, object: before.object, encryptionKey: before.encryptionKey, isDeleted: true }, before);
  }

  /** Forgets what was there before a revision. @throws {EtcdError} as etcd does for one that is compacted or to come. */
  compact(revision: number): void {
    if (revision <= this.#compactedRevision) throw new EtcdError(COMPACTED);
    if (revision > this.revision) throw new EtcdError(FUTURE);
    this.#compactedRevision = revision;
  }

  /**
   * Tells of what is written under a prefix, from a revision on, which is included. One that is to come is waited for.
   * @returns what ends it
   * @throws {EtcdError} for a revision that was compacted.
   */
  watch(prefix: string, revision: number, listener: RevisionListener): () => void {
    if (revision < this.#compactedRevision) throw new EtcdError(COMPACTED);
    const onRevision: RevisionListener = (entry) => {
      if (entry.modRevision >= revision && entry.key.startsWith(prefix)) listener(entry);
    };
    for (const entry of this.#timeline.since(revision - 1)) onRevision(entry);
    return this.onRevision(onRevision);
  }

  /** @returns what ends it */
  onRevision(listener: RevisionListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Told after each {@link restore}. @returns what ends it */
  onRestore(listener: () => void): () => void {
    this.#restoreListeners.add(listener);
    return () => this.#restoreListeners.delete(listener);
  }

  snapshot(): EtcdSnapshot {
    return { timeline: this.#timeline, revision: this.revision, compactedRevision: this.#compactedRevision };
  }

  /**
   * Goes back to a snapshot. The revisions that follow begin at that of the snapshot, so that a number which was given
   * before is given a second time, to another write; or `bump` revisions later, with all revisions up to there compacted
   * (`--bump-revision` with `--mark-compacted`).
   *
   * https://etcd.io/docs/v3.6/op-guide/recovery/#restoring-with-revision-bump
   */
  restore({ timeline, revision, compactedRevision }: EtcdSnapshot, bump = 0): void {
    this.#timeline = timeline.upTo(revision);
    this.#timeline.skipTo(revision + bump);
    this.#compactedRevision = bump === 0 ? compactedRevision : revision + bump;
    for (const listener of this.#restoreListeners) listener();
  }

  #commit(
    value: Pick<EtcdEntry, "key" | "object" | "encryptionKey" | "isDeleted">,
    before: EtcdEntry | undefined,
  ): EtcdEntry {
    const entry = new EtcdEntry(value, { modRevision: this.revision + 1, before });
    this.#timeline.append(entry);
    for (const listener of this.#listeners) listener(entry);
    return entry;
  }

  #check(revision: number | undefined): void {
    if (revision === undefined) return;
    if (revision < this.#compactedRevision) throw new EtcdError(COMPACTED);
    if (revision > this.revision) throw new EtcdError(FUTURE);
  }
}
