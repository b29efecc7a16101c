import { internalError, plainError, Refusal, resourceText, type WebhookAnswer } from "./answers.ts";
import type { ServerContext } from "./context.ts";
import { defaulted, type Schema } from "./documents.ts";
import { type EtcdEntry, isSame, type ModelMeta, type ModelObject, without } from "./etcd.ts";
import { isDecodable, type ServedKind } from "./kinds.ts";

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

/** The same. @param refused what is answered where it cannot be read */
export function readable(
  context: ServerContext,
  kind: ServedKind,
  entry: EtcdEntry,
  refused: (error: Refusal) => Refusal,
): ModelObject | Promise<ModelObject> {
  const refuse = (error: unknown): never => {
    throw isUnreadable(error) ? refused(error) : error;
  };
  try {
    return decodeNow(context, kind, entry) ?? decode(context, kind, entry).catch(refuse);
  } catch (error) {
    return refuse(error);
  }
}

/** Whether an object cannot be read in the version that is served. */
export function isUnreadable(error: unknown): error is Refusal {
  return error instanceof Refusal && error.status.reason === undefined;
}

/** https://github.com/kubernetes/kubernetes/blob/v1.37.0/staging/src/k8s.io/apiserver/pkg/storage/etcd3/corrupt_obj_deleter.go */
export function undecodable({ modRevision }: EtcdEntry, { message }: Refusal): string {
  return `object not decodable revision=${modRevision}: ${message}`;
}

/** @param key as the answer names it @default without `/registry` */
export function corrupt(entry: EtcdEntry, error: Refusal, key = entry.key.replace("/registry", "")): string {
  const why = undecodable(entry, error);
  return `StorageError: corrupt object, Code: 7, Key: ${key}, ResourceVersion: 0, AdditionalErrorMsg: ${why}`;
}

/** What a list answers with such an object in it. */
export function corruptList({ group, resource }: ServedKind, entry: EtcdEntry, error: Refusal): Refusal {
  const message = corrupt(entry, error, entry.key);
  return new Refusal({
    code: 500,
    reason: "StorageReadError",
    details: {
      name: "list",
      ...(group === "" ? {} : { group }),
      kind: resource,
      causes: [{ reason: "UnexpectedServerResponse", message, field: entry.key }],
    },
    message: `failed to read one or more ${resourceText({ group, resource })} from the storage: ${message}`,
  });
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

/** The API server's own limit for a call of a conversion webhook. */
const TIMEOUT_MS = 30_000;

/** Whether the versions of a resource differ by more than their name. */
function isConvertedByWebhook({ crd }: ServedKind): boolean {
  return crd?.facts.conversionUrl !== undefined;
}

/**
 * Asks the conversion webhook of a CRD for one object.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go
 * @throws {Refusal} without a reason, in the API server's words, where it gives none.
 */
export async function convert(
  context: ServerContext,
  kind: ServedKind,
  object: ModelObject,
  apiVersion: string,
): Promise<ModelObject> {
  const url = kind.crd?.facts.conversionUrl ?? "";
  const uid = context.etcd.nextId();
  const request = { uid, desiredAPIVersion: apiVersion, objects: [object] };
  const review = { kind: "ConversionReview", apiVersion: "apiextensions.k8s.io/v1", request };
  const answer = await context.io.callWebhook(`${url}?timeout=30s`, JSON.stringify(review), TIMEOUT_MS);
  const of = `conversion webhook for ${object.apiVersion}, Kind=${kind.kind}`;
  const said = "error" in answer ? { error: `Post ${JSON.stringify(`${url}?timeout=30s`)}: ${answer.error}` } : answer;
  const converted = convertedObjects(of, uid, said);
  if (converted.length !== 1) throw plainError(`${of} returned ${converted.length} objects, expected 1`);
  const result = converted[0] as ModelObject;
  const problem = problemWith(object, result, apiVersion);
  if (problem !== undefined) throw plainError(`${of} returned invalid object${problem}`);
  // Labels and annotations are all that a webhook may change of the metadata.
  return { ...result, metadata: restoredMeta(object.metadata, result.metadata) };
}

function convertedObjects(of: string, uid: string, answer: WebhookAnswer): readonly unknown[] {
  if ("error" in answer) throw plainError(`${of} failed: ${answer.error}`);
  if (answer.status !== 200) throw plainError(`${of} failed: ${statusText(answer)}`);
  const { response } = parsed(of, answer.body) as {
    response?: { uid?: string; result?: { status?: string; message?: string }; convertedObjects?: readonly unknown[] };
  };
  if (response === undefined) throw plainError(`${of} failed: no response provided`);
  if (response.uid !== uid) {
    throw plainError(
      `${of} failed: expected response.uid=${JSON.stringify(uid)}, got ${JSON.stringify(response.uid ?? "")}`,
    );
  }
  const { message = "", status = "" } = response.result ?? {};
  if (status !== "Success") {
    throw plainError(
      `${of} failed: ${message === "" ? `response.result.status was '${status}', not 'Success'` : message}`,
    );
  }
  return response.convertedObjects ?? [];
}

function parsed(of: string, body: string): unknown {
  try {
    return JSON.parse(body);
  } catch (error) {
    throw plainError(`${of} failed: ${String(error)}`);
  }
}

function problemWith(before: ModelObject, after: ModelObject, apiVersion: string): string | undefined {
  if (after.apiVersion !== apiVersion) {
    return ` at index 0: invalid groupVersion (expected ${apiVersion}, received ${after.apiVersion})`;
  }
  if (after.kind !== before.kind) return ` at index 0: invalid kind (expected ${before.kind}, received ${after.kind})`;
  for (const [field, label] of [
    ["name", "name"],
    ["namespace", "namespace"],
    ["uid", "UID"],
  ] as const) {
    const [e, a] = [before.metadata[field] ?? "", after.metadata?.[field] ?? ""];
    if (e !== a) return `: must have the same ${label}: ${e} != ${a}`;
  }
  return undefined;
}

function restoredMeta(before: ModelMeta, { annotations, labels }: ModelMeta): ModelMeta {
  const { annotations: _annotations, labels: _labels, ...rest } = before;
  return {
    ...rest,
    ...(annotations === undefined ? {} : { annotations }),
    ...(labels === undefined ? {} : { labels }),
  };
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
 * Why managedFields of an object cannot be kept: an entry names a version that the CRD no longer has, or one that the
 * conversion webhook does not convert to now. An apply then fails, and any other write takes all managedFields off.
 *
 * https://github.com/kubernetes/kubernetes/issues/111937
 * https://github.com/kubernetes/kubernetes/issues/136919
 */
export async function managersProblem(
  context: ServerContext,
  kind: ServedKind,
  object: ModelObject,
): Promise<Refusal | undefined> {
  try {
    for (const apiVersion of new Set(object.metadata.managedFields?.map((entry) => entry.apiVersion))) {
      if (apiVersion === kind.apiVersion) continue;
      if (!isDecodable(kind, apiVersion)) {
        return plainError(`request to convert CR to an invalid group/version: ${apiVersion}`);
      }
      if (isConvertedByWebhook(kind)) await convert(context, kind, object, apiVersion);
    }
    return undefined;
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
}

/** Whether there can be such a problem: any other write need not wait for an answer. */
export function isInOtherVersions({ apiVersion, crd }: ServedKind, { metadata }: ModelObject): boolean {
  return crd !== undefined && metadata.managedFields?.some((entry) => entry.apiVersion !== apiVersion) === true;
}
