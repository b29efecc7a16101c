import { expired, Refusal, revisionOf, type Selector, selectorOf, type WatchSink } from "./answers.ts";
import type { ServerContext } from "./context.ts";
import { type EtcdEntry, EtcdError, type ModelObject } from "./etcd.ts";
import { CRD_PREFIX, type ServedKind } from "./kinds.ts";
import { decode, partialTextOf, textOf } from "./stored-objects.ts";

/** What a list is asked for. */
export interface ListRequest {
  readonly kind: ServedKind;
  readonly namespace: string | undefined;
  readonly query: URLSearchParams;
  readonly isMetadata: boolean;
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/storage/etcd3/errors.go */
const INCONSISTENT_CONTINUE =
  "The provided continue parameter is too old to display a consistent list result. You can start a new list without " +
  "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. " +
  "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or " +
  "deleted between the time the first chunk was returned and now may show up in the list.";

/** Answers a list. @returns the JSON text @throws {Refusal} */
export function list(context: ServerContext, request: ListRequest): string {
  const { kind, query } = request;
  if (isOfCache(query)) assertFilled(context, kind);
  const selector = selectorOf(query);
  const limit = query.has("limit") ? Math.min(Number(query.get("limit")), context.pageSize) : 0;
  const name = /^metadata\.name=([^,]+)$/.exec(query.get("fieldSelector") ?? "")?.[1];
  const { entries, revision } = range(context, request);
  const items: ModelObject[] = [];
  let [rest, last] = [0, ""];
  for (const entry of entries) {
    // By name, no other object is looked at.
    if (name !== undefined && !entry.key.endsWith(`/${name}`)) continue;
    const isFull = limit > 0 && items.length >= limit;
    // Without a selector what remains is counted, and with one it is only asked whether there is more.
    if (isFull) {
      rest++;
      continue;
    }
    const object = decode(context, kind, entry);
    last = entry.key;
    if (selector === undefined || selector(object)) items.push(object);
  }
  const more =
    rest === 0
      ? ""
      : continueFields({ kind: request, last, revision, rest: selector === undefined ? rest : undefined });
  return listText(request, items, { revision, more });
}

/** Pages of everything are read from etcd where the watch cache is not filled; any other list waits for the cache. */
function isOfCache(query: URLSearchParams): boolean {
  const isSelective = query.has("labelSelector") || query.has("fieldSelector");
  return !query.has("limit") || isSelective;
}

/** A list with a resourceVersion shows what the watch cache of CRDs has; etcd answers one of everything, in pages, where that is not filled. */
function isOfCachedCrds({ areCrdsFilled }: ServerContext, { kind, query }: ListRequest): boolean {
  const isOlder = query.has("resourceVersion") && !query.has("continue");
  return kind.prefix === CRD_PREFIX && isOlder && areCrdsFilled;
}

interface Range {
  readonly entries: readonly EtcdEntry[];
  readonly revision: number;
}

function range(context: ServerContext, request: ListRequest): Range {
  const { cache, etcd } = context;
  const { query } = request;
  const prefix = prefixOf(request);
  const token = query.get("continue") ?? "";
  const resourceVersion = query.get("resourceVersion") ?? "";
  if (token !== "") return continued(etcd, { prefix, token });
  if (resourceVersion === "") {
    const { revision } = etcd;
    return { entries: etcd.range(prefix), revision };
  }
  if (resourceVersion !== "0") throw new Error("The model knows no list that is to be not older than a write");
  if (isOfCachedCrds(context, request)) {
    return { entries: etcd.timeline.range(prefix, context.crdsSeen), revision: context.crdsSeen };
  }
  return { entries: context.etcd.timeline.range(prefix, cache.revision), revision: cache.revision };
}

function continued(
  etcd: ServerContext["etcd"],
  { prefix, token }: { readonly prefix: string; readonly token: string },
): Range {
  const { revision: asked, start } = decodeToken(token);
  const from = `${prefix}${start}`;
  const revision = asked < 0 ? etcd.revision : asked;
  try {
    return { entries: etcd.range(prefix, revision, from), revision };
  } catch (error) {
    if (!(error instanceof EtcdError)) throw error;
    throw expired(INCONSISTENT_CONTINUE, encodeToken(-1, start));
  }
}

/** Where the objects of a list lie. */
export function prefixOf({ kind, namespace }: Pick<ListRequest, "kind" | "namespace">): string {
  return namespace === undefined ? kind.prefix : `${kind.prefix}${namespace}/`;
}

function continueFields({
  kind,
  last,
  rest,
  revision,
}: {
  readonly kind: ListRequest;
  readonly last: string;
  readonly revision: number;
  readonly rest: number | undefined;
}): string {
  const token = encodeToken(revision, `${last.slice(prefixOf(kind).length)}\0`);
  return `,"continue":"${token}"${rest === undefined ? "" : `,"remainingItemCount":${rest}`}`;
}

function encodeToken(rv: number, start: string): string {
  return Buffer.from(JSON.stringify({ v: "meta.k8s.io/v1", rv, start })).toString("base64url");
}

function decodeToken(token: string): { readonly revision: number; readonly start: string } {
  const { rv, start } = JSON.parse(Buffer.from(token, "base64url").toString()) as { rv: number; start: string };
  return { revision: rv, start };
}

function listText(
  { isMetadata, kind }: ListRequest,
  items: readonly ModelObject[],
  { more, revision }: { readonly more: string; readonly revision: number },
): string {
  const metadata = `{"resourceVersion":"${revision}"${more}}`;
  if (isMetadata) {
    const texts = items.length === 0 ? "null" : `[${items.map(partialTextOf).join(",")}]`;
    return `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":${metadata},"items":${texts}}`;
  }
  const start = `{"kind":"${kind.listKind}","apiVersion":"${kind.apiVersion}"`;
  // Items of built-in lists have neither apiVersion nor kind; lists of custom resources always have a continue token.
  if (kind.crd === undefined)
    return `${start},"metadata":${metadata},"items":[${items.map(typelessTextOf).join(",")}]}`;
  const full = more === "" ? `{"continue":"","resourceVersion":"${revision}"}` : metadata;
  return `${start},"metadata":${full},"items":[${items.map(textOf).join(",")}]}`;
}

const typeless = new WeakMap<ModelObject, string>();

function typelessTextOf(item: ModelObject): string {
  let text = typeless.get(item);
  if (text === undefined) {
    const { apiVersion: _apiVersion, kind: _kind, ...rest } = item;
    typeless.set(item, (text = JSON.stringify(rest)));
  }
  return text;
}

/** Lists and watches that need a watch cache get 429 until it is filled. @throws {Refusal} 429 */
function assertFilled({ areCrdsFilled }: ServerContext, { prefix }: ServedKind): void {
  if (prefix !== CRD_PREFIX || areCrdsFilled) return;
  const message = "storage is (re)initializing";
  throw new Refusal({ code: 429, reason: "TooManyRequests", details: { retryAfterSeconds: 1 }, message });
}

/** API servers send a bookmark about once a minute, and one shortly before they end a watch. */
const BOOKMARK_MS = 60_000;
const BEFORE_END_MS = 2_000;

/** @throws {Refusal} where a watch is refused before it is open */
export function assertWatchable(context: ServerContext, request: ListRequest): void {
  assertFilled(context, request.kind);
  selectorOf(request.query);
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

  /** Tells what came since the resourceVersion that was asked for. */
  begin(resourceVersion: string): void {
    const { cache, etcd } = this.#context;
    const asked = revisionOf(resourceVersion);
    if (asked === 0) throw new Error("The model knows no watch that begins with what is there");
    const since = Math.max(cache.since, this.kind.crd?.since ?? 0);
    if (asked < since) {
      this.#fail(expired(`too old resource version: ${asked} (${since})`));
      return;
    }
    this.#revision = asked;
    for (const entry of etcd.timeline.since(asked)) if (entry.modRevision <= cache.revision) this.deliver(entry);
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

  /** Tells how far the watch is. */
  bookmark(): void {
    this.#bookmarkAt = this.#nextBookmark(this.#context.clock.now());
    if (!this.#hasBookmarks || this.#isEnded) return;
    const { apiVersion, kind } = this.kind;
    const type = this.#isMetadata
      ? '"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"'
      : `"kind":"${kind}","apiVersion":"${apiVersion}"`;
    const revision = Math.max(this.#revision, this.#context.cache.revision);
    const line = `{"type":"BOOKMARK","object":{${type},"metadata":{"resourceVersion":"${revision}"}}}`;
    this.#sink.event(line);
  }

  #nextBookmark(now: number): number {
    const beforeEnd = this.#endsAt - BEFORE_END_MS;
    return now < beforeEnd ? Math.min(now + BOOKMARK_MS, beforeEnd) : now + BOOKMARK_MS;
  }

  /** Ends the watch from the side of the API server. */
  end(error?: Error): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#sink.end(error);
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
    let object: ModelObject;
    try {
      object = decode(this.#context, this.kind, entry);
    } catch (error) {
      if (error instanceof Refusal) return this.#fail(error);
      throw error;
    }
    this.#sink.event(`{"type":"${type}","object":${this.#isMetadata ? partialTextOf(object) : textOf(object)}}`);
  }

  /** Once a watch is open, what goes wrong is an event. */
  #fail({ status }: Refusal): void {
    this.#sink.event(`{"type":"ERROR","object":${JSON.stringify(status)}}`);
    this.end();
  }
}
