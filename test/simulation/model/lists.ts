import { badRequest, expired, invalid } from "./answers.ts";
import { untilCrdsSeen } from "./cached-reads.ts";
import { CRD_PREFIX } from "./crd-registry.ts";
import { EtcdError } from "./etcd.ts";
import type { ModelObject } from "./model-object.ts";
import type { ServedKind } from "./served-kinds.ts";
import type { ServerContext } from "./server-context.ts";
import { revisionOf, tooLarge } from "./resource-versions.ts";
import { selectorOf } from "./selectors.ts";
import { decode, decodeNow, partialTextOf, textOf } from "./stored-objects.ts";
import type { EtcdEntry } from "./timeline.ts";
import { assertFilled } from "./watch-cache-fill.ts";

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
export async function list(context: ServerContext, request: ListRequest): Promise<string> {
  const { kind, query } = request;
  if (isOfCache(query)) await assertFilled(context, kind);
  if (isOfCachedCrds(context, request)) await untilCrdsSeen(context, query);
  const selector = selectorOf(query);
  const limit = Number(query.get("limit") ?? 0);
  const name = /^metadata\.name=([^,]+)$/.exec(query.get("fieldSelector") ?? "")?.[1];
  const { entries, revision } = range(context, request);
  const items: ModelObject[] = [];
  let [rest, last] = [0, ""];
  for (const entry of entries) {
    // By name, no other object is looked at: nor is it converted.
    if (name !== undefined && !entry.key.endsWith(`/${name}`)) continue;
    const isFull = limit > 0 && items.length >= limit;
    // Without a selector what remains is counted, and with one it is only asked whether there is more.
    if (isFull) {
      rest++;
      continue;
    }
    const object = decodeNow(context, kind, entry) ?? (await decode(context, kind, entry, true));
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
  const isOlder =
    query.has("resourceVersion") && !query.has("continue") && query.get("resourceVersionMatch") !== "Exact";
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
  if (resourceVersion === "" && query.has("resourceVersionMatch")) {
    const body = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
    const cause = { field: "resourceVersionMatch", body, reason: "FieldValueForbidden" };
    throw invalid({ group: "meta.k8s.io", kind: "ListOptions" }, "", [cause]);
  }
  if (token !== "" && resourceVersion !== "" && resourceVersion !== "0") {
    throw badRequest("specifying resource version is not allowed when using continue");
  }
  if (token !== "") return continued(etcd, { prefix, token });
  if (resourceVersion === "") {
    const { revision } = etcd;
    return { entries: etcd.range(prefix), revision };
  }
  const asked = revisionOf(resourceVersion);
  if (query.get("resourceVersionMatch") === "Exact") {
    try {
      return { entries: etcd.range(prefix, asked), revision: asked };
    } catch (error) {
      if (!(error instanceof EtcdError) || asked > etcd.revision) throw tooLarge(asked, etcd.revision);
      throw expired("The resourceVersion for the provided list is too old.");
    }
  }
  if (isOfCachedCrds(context, request)) {
    return { entries: etcd.timeline.range(prefix, context.crdsSeen), revision: context.crdsSeen };
  }
  if (asked > cache.revision) throw tooLarge(asked, cache.revision);
  return { entries: cache.timeline.range(prefix, cache.revision), revision: cache.revision };
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
    if (revision > etcd.revision) throw tooLarge(revision, etcd.revision);
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

/** @throws {Refusal} 400 */
function decodeToken(token: string): { readonly revision: number; readonly start: string } {
  try {
    const { rv, start, v } = JSON.parse(Buffer.from(token, "base64url").toString()) as {
      v: string;
      rv: number;
      start: string;
    };
    if (v === "meta.k8s.io/v1" && rv !== 0 && start !== "") return { revision: rv, start };
  } catch {
    // Whatever it is, it is no token.
  }
  throw badRequest("continue key is not valid");
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
