import type { ModelObject } from "./model-object.ts";

/** A value of etcd's, as one transaction wrote it. */
export class EtcdEntry {
  readonly key: string;
  /** What was written, parsed; of a deletion what was there before. It has no resourceVersion. */
  readonly object: ModelObject;
  /** The encryption key that it was written with; 0 for plain text. */
  readonly encryptionKey: number;
  readonly isDeleted: boolean;
  readonly createRevision: number;
  readonly modRevision: number;
  /** What the transaction found. */
  readonly before: EtcdEntry | undefined;
  /** The object as it was read, by version: every reader gets the same object. */
  views: Map<string, ModelObject> | undefined;
  #text: string | undefined;

  constructor(
    { key, object, encryptionKey, isDeleted }: Pick<EtcdEntry, "key" | "object" | "encryptionKey" | "isDeleted">,
    { modRevision, before }: { readonly modRevision: number; readonly before: EtcdEntry | undefined },
  ) {
    this.key = key;
    this.object = object;
    this.encryptionKey = encryptionKey;
    this.isDeleted = isDeleted;
    this.modRevision = modRevision;
    this.before = before;
    this.createRevision = before === undefined ? modRevision : before.createRevision;
  }

  /** The JSON text that etcd holds. */
  get text(): string {
    this.#text ??= JSON.stringify(this.object);
    return this.#text;
  }
}

/**
 * What happened to the keys of one etcd, since it was empty: every revision is kept, so that a snapshot is a number. What
 * may still be read of it, {@link SimEtcd} says.
 */
export class Timeline {
  readonly #keys: string[] = [];
  /** The entries of each key, the oldest first. */
  readonly #histories: EtcdEntry[][] = [];
  readonly #byKey = new Map<string, EtcdEntry[]>();
  /** One for each revision after the first that was not skipped, in order. */
  readonly #log: EtcdEntry[] = [];
  /** An empty etcd is at revision 1. */
  #revision = 1;

  get revision(): number {
    return this.#revision;
  }

  /** Goes on at a later revision. */
  skipTo(revision: number): void {
    this.#revision = revision;
  }

  append(entry: EtcdEntry): void {
    let history = this.#byKey.get(entry.key);
    if (history === undefined) {
      history = [];
      const at = this.#firstAt(entry.key);
      this.#keys.splice(at, 0, entry.key);
      this.#histories.splice(at, 0, history);
      this.#byKey.set(entry.key, history);
    }
    history.push(entry);
    this.#log.push(entry);
    this.#revision = entry.modRevision;
  }

  /** What a key has at a revision; `undefined` where it has nothing. */
  get(key: string, revision?: number): EtcdEntry | undefined {
    const history = this.#byKey.get(key);
    return history === undefined ? undefined : liveAt(history, revision);
  }

  /** What the keys with a prefix have at a revision, in the order of the keys, from `from` on. */
  range(prefix: string, revision?: number, from = prefix): EtcdEntry[] {
    const entries: EtcdEntry[] = [];
    for (let at = this.#firstAt(from); at < this.#keys.length; at++) {
      if (this.#keys[at]?.startsWith(prefix) !== true) break;
      const history = this.#histories[at];
      const entry = history === undefined ? undefined : liveAt(history, revision);
      if (entry !== undefined) entries.push(entry);
    }
    return entries;
  }

  /** What was written after a revision, in order. */
  since(revision: number): readonly EtcdEntry[] {
    return this.#log.slice(this.#firstAfter(revision));
  }

  /** A timeline with the same past, up to a revision. */
  upTo(revision: number): Timeline {
    const copy = new Timeline();
    for (const entry of this.#log.slice(0, this.#firstAfter(revision))) copy.append(entry);
    copy.skipTo(revision);
    return copy;
  }

  /** The place in the log of the first entry after a revision. */
  #firstAfter(revision: number): number {
    let [low, high] = [0, this.#log.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#log[middle]?.modRevision ?? 0) <= revision) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The place of the first key that is not smaller. */
  #firstAt(key: string): number {
    let [low, high] = [0, this.#keys.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#keys[middle] ?? "") < key) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function liveAt(history: readonly EtcdEntry[], revision = Number.POSITIVE_INFINITY): EtcdEntry | undefined {
  for (let at = history.length - 1; at >= 0; at--) {
    const entry = history[at];
    if (entry !== undefined && entry.modRevision <= revision) return entry.isDeleted ? undefined : entry;
  }
  return undefined;
}
