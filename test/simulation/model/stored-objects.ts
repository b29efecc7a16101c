import { internalError, plainError, resourceText } from "./answers.ts";
import { convert, isConvertedByWebhook } from "./conversion.ts";
import { isSame, type ModelObject, without } from "./model-object.ts";
import { defaulted, type Schema } from "./schemas.ts";
import { isDecodable, type ServedKind } from "./served-kinds.ts";
import type { ServerContext } from "./server-context.ts";
import type { EtcdEntry } from "./timeline.ts";

/** What an entry is in the version that is served, with its resourceVersion; `undefined` where a webhook has to convert it. */
export function decodeNow(context: ServerContext, kind: ServedKind, entry: EtcdEntry): ModelObject | undefined {
  assertReadable(context, entry);
  const { apiVersion } = entry.object;
  if (apiVersion === kind.apiVersion) return viewOf(entry, kind);
  if (!isDecodable(kind, apiVersion)) {
    throw plainError(`request to convert CR from an invalid group/version: ${apiVersion}`);
  }
  return isConvertedByWebhook(kind) ? undefined : viewOf(entry, kind);
}

/**
 * The same, and asks the webhook where it has to be asked.
 * @param isCached whether an answer that the watch cache holds will do
 */
export async function decode(
  context: ServerContext,
  kind: ServedKind,
  entry: EtcdEntry,
  isCached = false,
): Promise<ModelObject> {
  const now = decodeNow(context, kind, entry);
  if (now !== undefined) return now;
  const memo = isCached ? kind.crd?.converted.get(entry)?.get(kind.apiVersion) : undefined;
  if (memo !== undefined) return memo;
  const object = await convert(context, kind, viewOf(entry, { apiVersion: entry.object.apiVersion }), kind.apiVersion);
  if (kind.crd !== undefined) {
    const byVersion = kind.crd.converted.get(entry) ?? new Map<string, ModelObject>();
    kind.crd.converted.set(entry, byVersion.set(kind.apiVersion, object));
  }
  return object;
}

/** What is to be written for an object in the version that is served. Only where a webhook has to be asked it takes its time. */
export function encode(
  context: ServerContext,
  kind: ServedKind,
  object: ModelObject,
): ModelObject | Promise<ModelObject> {
  const { storedApiVersion } = kind;
  const isAsked = object.apiVersion !== storedApiVersion && isConvertedByWebhook(kind);
  if (!isAsked) return storedAs(storedApiVersion, object);
  return convert(context, kind, object, storedApiVersion).then((converted) => storedAs(storedApiVersion, converted));
}

function storedAs(apiVersion: string, object: ModelObject): ModelObject {
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
export function viewOf(
  entry: EtcdEntry,
  { apiVersion, schema }: Pick<ServedKind, "apiVersion" | "schema">,
): ModelObject {
  entry.views ??= new Map();
  let view = entry.views.get(apiVersion);
  if (view === undefined) {
    const { object, modRevision } = entry;
    view = { ...object, apiVersion, metadata: { ...object.metadata, resourceVersion: String(modRevision) } };
    entry.views.set(apiVersion, view);
  }
  return withDefaults(view, schema);
}

/** What an object lacks, by the schema that it was read with: every reader gets the same object. */
const completed = new WeakMap<ModelObject, { readonly schema: Schema; readonly object: ModelObject }>();

function withDefaults(object: ModelObject, schema: Schema | undefined): ModelObject {
  if (schema === undefined) return object;
  let known = completed.get(object);
  if (known?.schema !== schema) completed.set(object, (known = { schema, object: defaulted(object, schema) }));
  return known.object;
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
