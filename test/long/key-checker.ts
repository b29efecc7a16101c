import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";
import type { EtcdReader } from "../control-plane/etcd-reader.ts";
import { typeMetaOf } from "../control-plane/stored-value.ts";
import { GROUP, type TestKind } from "../integration/crd-fixture.ts";
import { watchChanges } from "../chaos/etcd-watch.ts";
import { pauseMs } from "../chaos/soundness-checker.ts";
import type { StoredChange } from "../chaos/stored-state.ts";

/** A moment at which an object could not be read: an API server did not have its key. */
export interface KeyBreach {
  readonly revision: number;
  readonly name: string;
  /** As the stored value begins, such as `k8s:enc:aescbc:v1:key1`. */
  readonly encryptedWith: string;
  readonly readable: readonly string[];
}

/** What a {@link KeyChecker} saw. */
export interface KeyReport {
  /** Writes of objects that were judged one after the other, in the order of etcd's own history. */
  readonly writes: number;
  /** How often everything was read from etcd and judged, whatever the history says. */
  readonly snapshots: number;
  /** The first ten. */
  readonly breaches: readonly KeyBreach[];
  /** How many objects are stored with each key in the end. */
  readonly counts: Readonly<Record<string, number>>;
}

const MAX_BREACHES = 10;
const SNAPSHOT_EVERY_MS = 250;

/**
 * Reads, past every API server, which key each object of a kind is stored with, and checks that every API server has that
 * key: at every write of etcd's history, and by reading everything again and again.
 */
export class KeyChecker {
  readonly #etcd: () => EtcdReader;
  readonly #prefix: string;
  readonly #abort = new AbortController();
  readonly #breaches: KeyBreach[] = [];
  #readable: readonly string[];
  #writes = 0;
  #snapshots = 0;
  #position = 0;
  #work: Promise<unknown> = Promise.resolve();

  private constructor(etcd: () => EtcdReader, kind: TestKind, readable: readonly string[]) {
    this.#etcd = etcd;
    this.#prefix = `/registry/${GROUP}/${kind.plural}/`;
    this.#readable = readable;
  }

  /** Checks until it is stopped, at the latest with the test. */
  static async start(
    t: Test,
    etcd: () => EtcdReader,
    options: { readonly kind: TestKind; readonly readable: readonly string[] },
  ): Promise<KeyChecker> {
    const checker = new KeyChecker(etcd, options.kind, options.readable);
    checker.#position = await etcd().currentRevision();
    checker.#work = Promise.all([checker.#follow(), checker.#snapshotAgainAndAgain()]);
    t.teardown(() => checker.#end());
    return checker;
  }

  /** Says which keys every API server has from now on. To be called before one of them loses a key. */
  async setReadable(prefixes: readonly string[]): Promise<void> {
    this.#readable = prefixes;
    await this.#snapshot();
  }

  /** Checks once more, and tells what was seen. */
  async stop(): Promise<KeyReport> {
    const counts = await this.#snapshot();
    await this.#end();
    return { writes: this.#writes, snapshots: this.#snapshots, breaches: this.#breaches, counts };
  }

  async #end(): Promise<void> {
    this.#abort.abort();
    await this.#work;
  }

  async #follow(): Promise<void> {
    const { signal } = this.#abort;
    while (!signal.aborted) {
      // Where etcd ends the stream the history is asked for from where it broke off.
      await this.#followOnce().catch(() => undefined);
      await delay(50, undefined, { signal }).catch(() => undefined);
    }
  }

  async #followOnce(): Promise<void> {
    // Up to the first key after all those with the prefix: names of objects are ASCII.
    const range = { from: this.#prefix, to: `${this.#prefix}\u{10ffff}` };
    const options = { ...range, startRevision: this.#position + 1, signal: this.#abort.signal };
    for await (const changes of watchChanges(this.#etcd().url, options)) {
      for (const change of changes) {
        this.#writes++;
        this.#position = change.modRevision;
        this.#judge(change);
      }
    }
  }

  async #snapshotAgainAndAgain(): Promise<void> {
    const { signal } = this.#abort;
    while (!signal.aborted) {
      const startedAt = performance.now();
      await this.#snapshot().catch(() => undefined);
      await delay(pauseMs(SNAPSHOT_EVERY_MS, startedAt), undefined, { signal }).catch(() => undefined);
    }
  }

  async #snapshot(): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const entry of await this.#etcd().readPrefix(this.#prefix)) {
      const key = this.#judge(entry) ?? "none";
      counts[key] = (counts[key] ?? 0) + 1;
    }
    this.#snapshots++;
    return counts;
  }

  /** @returns the key that it is stored with */
  #judge({ key, modRevision, value }: StoredChange): string | undefined {
    if (value === undefined) return undefined;
    const { encryptedWith = "none" } = typeMetaOf(value);
    if (!this.#readable.includes(encryptedWith) && this.#breaches.length < MAX_BREACHES) {
      const name = key.slice(this.#prefix.length);
      this.#breaches.push({ revision: modRevision, name, encryptedWith, readable: this.#readable });
    }
    return encryptedWith;
  }
}
