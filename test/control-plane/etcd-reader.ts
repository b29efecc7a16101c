import { decodeStored } from "./decode-stored.ts";
import { type StoredObject, typeMetaOf } from "./stored-value.ts";

export interface ReadOptions {
  /** Reads the state as of this revision. @default the newest, one and the same for all pages */
  readonly revision?: number;
}

export interface ReadPrefixOptions extends ReadOptions {
  /** At most this many entries. @default all */
  readonly limit?: number;
  /** Leaves the values empty. @default false */
  readonly keysOnly?: boolean;
}

/** One key of etcd. */
export interface Entry {
  readonly key: string;
  readonly value: Buffer;
  readonly modRevision: number;
  readonly createRevision: number;
  /** How often it was written since it was created, its creation included. */
  readonly version: number;
}

interface RangeReply {
  readonly header: { readonly revision: string };
  readonly kvs?: readonly {
    readonly key: string;
    readonly value?: string;
    readonly mod_revision: string;
    readonly create_revision: string;
    readonly version: string;
  }[];
  readonly more?: boolean;
}

const PAGE = 1000;

/** Reads what the apiservers stored, over etcd's JSON gateway. Every method throws when etcd does not answer with 200. */
export class EtcdReader {
  readonly url: string;

  constructor(url: string) {
    this.url = url;
  }

  /** All entries whose key starts with the prefix, in the order of their keys. */
  async readPrefix(prefix: string, options: ReadPrefixOptions = {}): Promise<Entry[]> {
    const entries: Entry[] = [];
    const limit = options.limit ?? Infinity;
    let revision = options.revision;
    let from = prefix;
    while (entries.length < limit) {
      const reply = await this.#range({
        key: base64(from),
        range_end: endOf(prefix),
        limit: Math.min(PAGE, limit - entries.length),
        keys_only: options.keysOnly ?? false,
        ...(revision === undefined ? {} : { revision }),
      });
      // Later pages show the state of the first one.
      revision ??= Number(reply.header.revision);
      entries.push(...entriesOf(reply));
      if (reply.more !== true) break;
      from = `${entries.at(-1)?.key}\0`;
    }
    return entries;
  }

  async readKey(key: string, options: ReadOptions = {}): Promise<Entry | undefined> {
    return entriesOf(await this.#range({ key: base64(key), ...options }))[0];
  }

  /** The objects of a custom resource as they are stored; the apiVersion tells which version each is stored in. */
  async storedObjects(group: string, plural: string, options: ReadOptions = {}): Promise<StoredObject[]> {
    return await this.objectsUnder(`/registry/${group}/${plural}/`, options);
  }

  /** The objects below any prefix that is followed by `[namespace/]name`; built-in kinds have prefixes of their own. */
  async objectsUnder(prefix: string, options: ReadOptions = {}): Promise<StoredObject[]> {
    const entries = await this.readPrefix(prefix, options);
    return entries.map(({ key, value, modRevision, version }) => {
      const [first = "", second] = key.slice(prefix.length).split("/");
      const place = second === undefined ? { name: first } : { namespace: first, name: second };
      return { ...place, ...typeMetaOf(value), modRevision, version, raw: value };
    });
  }

  /**
   * The objects of a custom resource as they were first written, whatever was written since, with names that begin so.
   * @throws {Error} where etcd compacted one of those writes
   */
  async createdObjects(group: string, plural: string, namePrefix: string): Promise<StoredObject[]> {
    const prefix = `/registry/${group}/${plural}/`;
    const entries = await this.readPrefix(prefix, { keysOnly: true });
    const wanted = entries.filter(({ key }) => key.slice(key.lastIndexOf("/") + 1).startsWith(namePrefix));
    const first = await Promise.all(
      wanted.map(({ key, createRevision }) => this.objectsUnder(key, { revision: createRevision })),
    );
    return first.flat();
  }

  /** How many objects of a custom resource are stored in each apiVersion; encrypted ones count under provider and key. */
  async countByVersion(group: string, plural: string, options: ReadOptions = {}): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const { apiVersion, encryptedWith } of await this.storedObjects(group, plural, options)) {
      const version = encryptedWith ?? apiVersion;
      counts[version] = (counts[version] ?? 0) + 1;
    }
    return counts;
  }

  /** The stored CustomResourceDefinition, or undefined. CRDs are stored as JSON, unlike other built-in kinds. */
  async storedCrd(name: string, options: ReadOptions = {}): Promise<Record<string, unknown> | undefined> {
    const entry = await this.readKey(`/registry/apiextensions.k8s.io/customresourcedefinitions/${name}`, options);
    return entry && (decodeStored(entry.value) as Record<string, unknown>);
  }

  async currentRevision(): Promise<number> {
    return Number((await this.#range({ key: base64("/"), keys_only: true })).header.revision);
  }

  /** Writes the value of a key past every API server. */
  async writeKey(key: string, value: string): Promise<void> {
    await this.#post("/v3/kv/put", { key: base64(key), value: base64(value) });
  }

  /** Removes keys past every API server. */
  async deleteKeys(keys: readonly string[]): Promise<void> {
    // etcd takes 128 operations in one transaction.
    for (let from = 0; from < keys.length; from += 128) {
      const success = keys.slice(from, from + 128).map((key) => ({ requestDeleteRange: { key: base64(key) } }));
      await this.#post("/v3/kv/txn", { success });
    }
  }

  /** Forgets everything before the revision, so that reads and watches from there fail; returns when it is done. */
  async compact(revision: number): Promise<void> {
    await this.#post("/v3/kv/compaction", { revision, physical: true });
  }

  async #range(body: Record<string, unknown>): Promise<RangeReply> {
    return (await this.#post("/v3/kv/range", body)) as RangeReply;
  }

  async #post(path: string, body: Record<string, unknown>): Promise<unknown> {
    const reply = await fetch(`${this.url}${path}`, { method: "POST", body: JSON.stringify(body) });
    if (!reply.ok) throw new Error(`Cannot read etcd: "${path}" answered ${reply.status}: ${await reply.text()}`);
    return await reply.json();
  }
}

function entriesOf(reply: RangeReply): Entry[] {
  return (reply.kvs ?? []).map(({ key, value = "", mod_revision, create_revision, version }) => ({
    key: Buffer.from(key, "base64").toString(),
    value: Buffer.from(value, "base64"),
    modRevision: Number(mod_revision),
    createRevision: Number(create_revision),
    version: Number(version),
  }));
}

function base64(text: string): string {
  return Buffer.from(text).toString("base64");
}

/** The first key after all those with the prefix, in base64: the last byte raised by one. */
function endOf(prefix: string): string {
  const bytes = Buffer.from(prefix);
  bytes.writeUInt8(bytes.readUInt8(bytes.length - 1) + 1, bytes.length - 1);
  return bytes.toString("base64");
}
