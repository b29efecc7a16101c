import { expired, plainError, Refusal } from "./answers.ts";
import type { ModelObject } from "./model-object.ts";
import { type ListRequest, prefixOf } from "./lists.ts";
import { revisionOf } from "./resource-versions.ts";
import { type Selector, selectorOf } from "./selectors.ts";
import type { ServedKind } from "./served-kinds.ts";
import type { ServerContext } from "./server-context.ts";
import { decode, decodeNow, partialTextOf, textOf, viewOf } from "./stored-objects.ts";
import type { EtcdEntry } from "./timeline.ts";
import type { WatchSink } from "./types.ts";
import { assertFilled } from "./watch-cache-fill.ts";

/** API servers send a bookmark about once a minute, and one shortly before they end a watch. */
const BOOKMARK_MS = 60_000;
const BEFORE_END_MS = 2_000;

/** @throws {Refusal} where a watch is refused before it is open */
export async function assertWatchable(context: ServerContext, request: ListRequest): Promise<void> {
  await assertFilled(context, request.kind);
  selectorOf(request.query);
  const asked = request.query.get("resourceVersion") ?? "";
  if (!/^\d*$/.test(asked)) {
    const text = JSON.stringify(asked);
    throw plainError(`resourceVersion: Invalid value: ${text}: strconv.ParseUint: parsing ${text}: invalid syntax`);
  }
}

/** A watch that a client has open. */
export class OpenWatch {
  readonly kind: ServedKind;
  readonly prefix: string;
  readonly #context: ServerContext;
  readonly #sink: WatchSink;
  readonly #selector: Selector | undefined;
  readonly #isMetadata: boolean;
  readonly #hasBookmarks: boolean;
  readonly #endsAt: number;
  #bookmarkAt: number;
  /** What has been told. */
  #revision = 0;
  /** What is still being converted, and what follows it. */
  #tail: Promise<void> | undefined;
  #isEnded = false;

  constructor(context: ServerContext, request: ListRequest, sink: WatchSink) {
    const { isMetadata, kind, query } = request;
    const now = context.clock.now();
    this.kind = kind;
    this.prefix = prefixOf(request);
    this.#context = context;
    this.#sink = sink;
    this.#selector = selectorOf(query);
    this.#isMetadata = isMetadata;
    this.#hasBookmarks = query.get("allowWatchBookmarks") === "true";
    this.#endsAt = now + Number(query.get("timeoutSeconds") ?? 1_800) * 1_000;
    this.#bookmarkAt = this.#nextBookmark(now);
  }

  /** Tells what came since the resourceVersion that was asked for; all that is there, where none was. */
  begin(resourceVersion: string): void {
    const { cache, etcd } = this.#context;
    const asked = revisionOf(resourceVersion === "" ? "0" : resourceVersion);
    if (asked === 0) {
      // Without a resourceVersion the cache is first brought to what etcd has.
      const isCurrent = resourceVersion === "";
      const [timeline, revision] = isCurrent ? [etcd.timeline, etcd.revision] : [cache.timeline, cache.revision];
      this.#revision = revision;
      for (const entry of timeline.range(this.prefix, revision)) {
        if (this.#isSelected(entry)) this.#send("ADDED", entry);
      }
      this.bookmark('"annotations":{"k8s.io/initial-events-end":"true"},');
      return;
    }
    const since = Math.max(cache.since, this.kind.crd?.since ?? 0);
    if (asked < since) {
      this.#fail(expired(`too old resource version: ${asked} (${since})`));
      return;
    }
    this.#revision = asked;
    for (const entry of cache.timeline.since(asked)) if (entry.modRevision <= cache.revision) this.deliver(entry);
  }

  /** Tells of one revision, where it is about what is watched. */
  deliver(entry: EtcdEntry): void {
    if (this.#isEnded || entry.modRevision <= this.#revision) return;
    this.#revision = entry.modRevision;
    if (!entry.key.startsWith(this.prefix)) return;
    const [is, was] = [!entry.isDeleted && this.#isSelected(entry), this.#wasSelected(entry.before)];
    if (is) this.#send(was ? "MODIFIED" : "ADDED", entry);
    else if (was) this.#send("DELETED", entry);
  }

  /** Sends a bookmark, and ends the watch, where it is time. */
  tick(): void {
    const now = this.#context.clock.now();
    if (now >= this.#endsAt) this.end();
    else if (now >= this.#bookmarkAt) this.bookmark();
  }

  /** Tells how far the watch is. @param more fields of its metadata */
  bookmark(more = ""): void {
    this.#bookmarkAt = this.#nextBookmark(this.#context.clock.now());
    if (!this.#hasBookmarks || this.#isEnded) return;
    const { apiVersion, kind } = this.kind;
    const type = this.#isMetadata
      ? '"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"'
      : `"kind":"${kind}","apiVersion":"${apiVersion}"`;
    const revision = Math.max(this.#revision, this.#context.cache.revision);
    const line = `{"type":"BOOKMARK","object":{${type},"metadata":{${more}"resourceVersion":"${revision}"}}}`;
    this.#inOrder(() => this.#sink.event(line));
  }

  #nextBookmark(now: number): number {
    const beforeEnd = this.#endsAt - BEFORE_END_MS;
    return now < beforeEnd ? Math.min(now + BOOKMARK_MS, beforeEnd) : now + BOOKMARK_MS;
  }

  /** Ends the watch from the side of the API server. */
  end(error?: Error): void {
    this.#inOrder(() => {
      if (this.#isEnded) return;
      this.#isEnded = true;
      this.#sink.end(error);
    });
  }

  /** The client is gone. */
  close(): void {
    this.#isEnded = true;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  #isSelected(entry: EtcdEntry): boolean {
    return this.#selector === undefined || this.#selector(entry.object);
  }

  #wasSelected(before: EtcdEntry | undefined): boolean {
    return before !== undefined && this.#isSelected(before);
  }

  #send(type: "ADDED" | "MODIFIED" | "DELETED", entry: EtcdEntry): void {
    const object = this.#tail === undefined ? this.#decoded(entry) : undefined;
    if (object !== undefined) {
      this.#event(type, object);
      return;
    }
    const before = this.#tail ?? Promise.resolve();
    const tail = before.then(async () => {
      // What cannot be converted makes the cache begin again: its watches end.
      const late = await decode(this.#context, this.kind, entry, true).catch(() => undefined);
      if (late === undefined) this.#finish();
      else this.#event(type, late);
      if (this.#tail === tail) this.#tail = undefined;
      return undefined;
    });
    this.#tail = tail;
  }

  #decoded(entry: EtcdEntry): ModelObject | undefined {
    try {
      return decodeNow(this.#context, this.kind, entry);
    } catch (error) {
      if (error instanceof Refusal) this.#fail(error);
      else throw error;
      return viewOf(entry, this.kind);
    }
  }

  #event(type: string, object: ModelObject): void {
    if (this.#isEnded) return;
    this.#sink.event(`{"type":"${type}","object":${this.#isMetadata ? partialTextOf(object) : textOf(object)}}`);
  }

  /** Once a watch is open, what goes wrong is an event. */
  #fail({ status }: Refusal): void {
    this.#sink.event(`{"type":"ERROR","object":${JSON.stringify(status)}}`);
    this.#finish();
  }

  #finish(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#sink.end();
  }

  #inOrder(then: () => void): void {
    if (this.#tail === undefined) then();
    else this.#tail = this.#tail.then(then);
  }
}
