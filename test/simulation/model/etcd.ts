/** A part of an object of the model. Nothing that was stored or answered is ever changed: a change makes a new one. */
export type Fields = Readonly<Record<string, unknown>>;

/** The metadata of an object of the model, as JSON has it. */
export interface ModelMeta {
  readonly name?: string;
  readonly generateName?: string;
  readonly namespace?: string;
  readonly uid?: string;
  /** Not stored: etcd's revision of the last write, as every read fills it in. */
  readonly resourceVersion?: string;
  readonly generation?: number;
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
  readonly finalizers?: readonly string[];
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly managedFields?: readonly ManagedEntry[];
  readonly [field: string]: unknown;
}

/** One entry of `metadata.managedFields`. */
export interface ManagedEntry {
  readonly manager: string;
  readonly operation: "Apply" | "Update";
  readonly apiVersion: string;
  readonly time?: string;
  readonly fieldsType: "FieldsV1";
  readonly fieldsV1: Fields;
  readonly subresource?: string;
}

/** An object of the model. */
export interface ModelObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ModelMeta;
  readonly [field: string]: unknown;
}

/** Whether a value is a JSON object, and no list. */
export function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Whether two JSON values are the same, whatever the order of their fields. Shared parts cost nothing. */
export function isSame(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b)) {
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((item, at) => isSame(item, b[at]));
  }
  const [left, right] = [a as Fields, b as Fields];
  let count = 0;
  for (const field in left) {
    if (left[field] === undefined) continue;
    count++;
    if (!isSame(left[field], right[field])) return false;
  }
  for (const field in right) if (right[field] !== undefined) count--;
  return count === 0;
}

/** The same without some fields; the object itself where it has none of them. */
export function without<T extends Fields>(object: T, ...fields: readonly string[]): T {
  if (!fields.some((field) => field in object)) return object;
  // An object from which something was deleted is slow ever after.
  const rest: Record<string, unknown> = {};
  for (const field in object) if (!fields.includes(field)) rest[field] = object[field];
  return rest as T;
}

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
}

/** What happened to the keys of one etcd, since it was empty. What may still be read of it, {@link SimEtcd} says. */
class Timeline {
  readonly #keys: string[] = [];
  /** The entries of each key, the oldest first. */
  readonly #histories: EtcdEntry[][] = [];
  readonly #byKey = new Map<string, EtcdEntry[]>();
  /** One for each revision after the first, in order. */
  readonly #log: EtcdEntry[] = [];
  /** An empty etcd is at revision 1. */
  #revision = 1;

  get revision(): number {
    return this.#revision;
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

/** A revision that was compacted, or is not there yet, was asked for; the words are etcd's. */
export class EtcdError extends Error {
  override readonly name = "EtcdError";
}

/** https://github.com/etcd-io/etcd/blob/v3.6.8/api/v3rpc/rpctypes/error.go */
const COMPACTED = "etcdserver: mvcc: required revision has been compacted";
const FUTURE = "etcdserver: mvcc: required revision is a future revision";

/** A value to write. */
interface EtcdValue {
  readonly object: ModelObject;
  /** @default 0, which is plain text */
  readonly encryptionKey?: number;
}

/** Told of each revision, in order, right after its transaction. It must not write. */
type RevisionListener = (entry: EtcdEntry) => void;

/** The one etcd of a simulated cluster: keys with all their revisions. Each transaction writes one key. */
export class SimEtcd {
  /** All that happened, whatever was compacted. */
  readonly timeline = new Timeline();
  #compactedRevision = 0;
  #ids = 0;
  readonly #listeners = new Set<RevisionListener>();

  /** The newest revision. */
  get revision(): number {
    return this.timeline.revision;
  }

  /** No older revision can be read. */
  get compactedRevision(): number {
    return this.#compactedRevision;
  }

  /** A UUID that no other object of this cluster has. */
  nextId(): string {
    return `00000000-0000-4000-8000-${(++this.#ids).toString(16).padStart(12, "0")}`;
  }

  /** @throws {EtcdError} for a revision that was compacted, or has not come. */
  get(key: string, revision?: number): EtcdEntry | undefined {
    this.#check(revision);
    return this.timeline.get(key, revision);
  }

  /**
   * All that is there under a prefix, in the order of the keys.
   * @param from the first key that counts
   * @throws as {@link get}.
   */
  range(prefix: string, revision?: number, from?: string): readonly EtcdEntry[] {
    this.#check(revision);
    return this.timeline.range(prefix, revision, from);
  }

  /**
   * Writes a key if it is still as expected.
   * @param expected the modRevision that was read; 0 where nothing was there
   * @returns `undefined` where another transaction wrote the key since
   */
  put(key: string, { object, encryptionKey = 0 }: EtcdValue, expected: number): EtcdEntry | undefined {
    const before = this.timeline.get(key);
    if ((before?.modRevision ?? 0) !== expected) return undefined;
    return this.#commit({ key, object, encryptionKey, isDeleted: false }, before);
  }

  /** Deletes a key if it is still as expected. @returns as {@link put} */
  delete(key: string, expected: number): EtcdEntry | undefined {
    const before = this.timeline.get(key);
    if (before === undefined || before.modRevision !== expected) return undefined;
    return this.#commit({ key, object: before.object, encryptionKey: before.encryptionKey, isDeleted: true }, before);
  }

  /** Forgets what was there before a revision. @throws {EtcdError} as etcd does for one that is compacted or to come. */
  compact(revision: number): void {
    if (revision <= this.#compactedRevision) throw new EtcdError(COMPACTED);
    if (revision > this.revision) throw new EtcdError(FUTURE);
    this.#compactedRevision = revision;
  }

  /** @returns what ends it */
  onRevision(listener: RevisionListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #commit(
    value: Pick<EtcdEntry, "key" | "object" | "encryptionKey" | "isDeleted">,
    before: EtcdEntry | undefined,
  ): EtcdEntry {
    const entry = new EtcdEntry(value, { modRevision: this.revision + 1, before });
    this.timeline.append(entry);
    for (const listener of this.#listeners) listener(entry);
    return entry;
  }

  #check(revision: number | undefined): void {
    if (revision === undefined) return;
    if (revision < this.#compactedRevision) throw new EtcdError(COMPACTED);
    if (revision > this.revision) throw new EtcdError(FUTURE);
  }
}
