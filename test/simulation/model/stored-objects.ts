import { internalError, plainError, type Refusal, resourceText } from "./answers.ts";
import type { ServerContext } from "./context.ts";
import { type EtcdEntry, isSame, type ModelObject, without } from "./etcd.ts";
import { isDecodable, type ServedKind } from "./kinds.ts";

/**
 * What an entry is in the version that is served, with its resourceVersion.
 * @throws {Refusal} 500 where it cannot be read: its version is not in the CRD any more, or the API server does not have its key. Real ones say
 *   it in other words for each sort of request.
 */
export function decode(context: ServerContext, kind: ServedKind, entry: EtcdEntry): ModelObject {
  assertReadable(context, entry);
  const { apiVersion } = entry.object;
  if (isDecodable(kind, apiVersion)) return viewOf(entry, kind);
  throw internalError(`request to convert CR from an invalid group/version: ${apiVersion}`);
}

/** What is to be written for an object in the version that is served. */
export function encode({ storedApiVersion: apiVersion }: ServedKind, object: ModelObject): ModelObject {
  return { ...object, apiVersion, metadata: without(object.metadata, "resourceVersion") };
}

/** The encryption key that objects of a kind are written with. */
export function keyFor({ encryption }: ServerContext, kind: ServedKind): number {
  return encryption.resources.has(resourceText(kind)) ? encryption.writes : 0;
}

/** Whether a write would leave etcd as it is, so that it is left out. */
export function isNoOp(entry: EtcdEntry, object: ModelObject, encryptionKey: number): boolean {
  return entry.encryptionKey === encryptionKey && isSame(entry.object, object);
}

/** An entry in a version to which it is converted by its name alone. */
export function viewOf(entry: EtcdEntry, { apiVersion, defaults }: ServedKind): ModelObject {
  entry.views ??= new Map();
  let view = entry.views.get(apiVersion);
  if (view === undefined) {
    const { object, modRevision } = entry;
    const metadata = { ...object.metadata, resourceVersion: String(modRevision) };
    view = { ...defaults, ...object, apiVersion, metadata };
    entry.views.set(apiVersion, view);
  }
  return view;
}

const texts = new WeakMap<ModelObject, string>();

/** The JSON text of an object. */
export function textOf(object: ModelObject): string {
  let text = texts.get(object);
  if (text === undefined) texts.set(object, (text = JSON.stringify(object)));
  return text;
}

const partials = new WeakMap<object, string>();

/** The JSON text of its metadata alone (`as=PartialObjectMetadata`). */
export function partialTextOf({ metadata }: ModelObject): string {
  let text = partials.get(metadata);
  if (text === undefined) {
    text = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":${JSON.stringify(metadata)}}`;
    partials.set(metadata, text);
  }
  return text;
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/storage/value/transformer.go */
function assertReadable({ encryption }: ServerContext, { encryptionKey }: EtcdEntry): void {
  if (encryptionKey !== 0 && !encryption.reads.has(encryptionKey)) throw internalError("no matching prefix found");
}

/** What client-go makes of an answer that is no Status. */
export function statusText({ body, status }: { readonly status: number; readonly body: string }): string {
  const texts: Readonly<Record<number, string>> = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: body,
    404: "the server could not find the requested resource",
    409: "the server reported a conflict",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
  };
  const fallback =
    status >= 500
      ? `an error on the server (${JSON.stringify(body === "" ? "unknown" : body)}) has prevented the request from succeeding`
      : `the server responded with the status code ${status} but did not return more information`;
  return texts[status] ?? fallback;
}

/**
 * Why managedFields of an object cannot be kept: an entry names a version that the CRD no longer has. An apply then fails, and any other write
 * takes all managedFields off.
 *
 * https://github.com/kubernetes/kubernetes/issues/111937
 * https://github.com/kubernetes/kubernetes/issues/136919
 */
export function managersProblem(kind: ServedKind, { metadata }: ModelObject): Refusal | undefined {
  const gone = metadata.managedFields?.find(({ apiVersion }) => !isDecodable(kind, apiVersion));
  return gone && plainError(`request to convert CR to an invalid group/version: ${gone.apiVersion}`);
}
