import { type Admitted, isAnythingAsked, mutated, validate } from "./admission.ts";
import {
  alreadyExists,
  conflict,
  forbidden,
  type ModelRequest,
  modified,
  notFound,
  PathNotServed,
  type Refusal,
} from "./answers.ts";
import { type ServerContext, timeText } from "./context.ts";
import { jsonPatched, mergePatched } from "./documents.ts";
import { type EtcdEntry, type ModelObject, without } from "./etcd.ts";
import { applied, managedByUpdate } from "./fields.ts";
import type { ServedKind } from "./kinds.ts";
import { decode, encode, isNoOp, keyFor, managersProblem, viewOf } from "./stored-objects.ts";
import {
  asCreated,
  assertKind,
  asUpdated,
  cleaned,
  CRD_FINALIZER,
  decoded,
  isCrdKind,
  placed,
  prepared,
  withManaged,
  withOldTimes,
  withTerminating,
  writerOf,
} from "./strategies.ts";

/** A request that writes, bound to a handler. */
export interface Write {
  readonly kind: ServedKind;
  readonly namespace: string | undefined;
  readonly name: string;
  readonly subresource: string | undefined;
  readonly isDryRun: boolean;
  readonly user: string;
  /** Of the query. */
  readonly fieldManager: string | undefined;
  /** The same, or what the client calls itself. */
  readonly manager: string;
}

/** What was written, in the version of the request. */
export interface Written {
  readonly object: ModelObject;
  readonly wasCreated: boolean;
}

/**
 * Makes what is to be of what is there; `undefined` where nothing is. With its managedFields.
 * @param problem why its managedFields cannot be kept, see {@link managersProblem}
 */
export type Change = (current: ModelObject | undefined, problem?: Refusal) => ModelObject;

/** The key of an object in etcd. */
export function keyOf({ kind, name, namespace }: Pick<Write, "kind" | "name" | "namespace">): string {
  return namespace === undefined ? `${kind.prefix}${name}` : `${kind.prefix}${namespace}/${name}`;
}

/** @throws {Refusal} 403 where the CRD is being deleted */
function assertNotTerminating(kind: ServedKind, name: string): void {
  if (kind.crd?.facts.isTerminating !== true) return;
  throw forbidden(kind, name, "create not allowed while custom resource definition is terminating");
}

/** What admission is asked about a write. */
function admittedOf(
  { fieldManager, isDryRun, kind, name, namespace, subresource, user }: Write,
  operation: Admitted["operation"],
  { object, oldObject }: Pick<Admitted, "object" | "oldObject">,
): Admitted {
  return { kind, operation, subresource, name, namespace, object, oldObject, isDryRun, user, fieldManager };
}

/** The JSON of a body. */
export function parsedBody(body: string): unknown {
  return JSON.parse(body) as unknown;
}

/** The name that a path has to have. @throws {PathNotServed} */
export function named(name: string | undefined): string {
  if (name === undefined || name === "") throw new PathNotServed();
  return name;
}

/** Creates an object. @throws {Refusal} */
export async function create(context: ServerContext, write: Omit<Write, "name">, body: unknown): Promise<Written> {
  const { kind, manager, namespace } = write;
  assertKind(body, kind);
  assertNotTerminating(kind, body.metadata.name ?? "");
  const sent = placed(cleaned(body), namespace);
  const wiped = { ...sent, metadata: without(sent.metadata, "uid", "creationTimestamp", "deletionTimestamp") };
  const whole = decoded(kind, wiped);
  const managed = managedByUpdate(undefined, whole, writerOf(context, kind, { manager, subresource: undefined }));
  const object = await admittedCreate(context, { ...write, name: "" }, withManaged(whole, managed));
  const { name = "" } = object.metadata;
  const stored = await store(context, { ...write, name }, object);
  if (stored === undefined) throw alreadyExists(kind, name);
  return { object: stored, wasCreated: true };
}

async function admittedCreate(context: ServerContext, write: Write, object: ModelObject): Promise<ModelObject> {
  const { kind } = write;
  const named = { ...write, name: object.metadata.name ?? "" };
  const attributes = admittedOf(named, "CREATE", { object, oldObject: undefined });
  const isAsked = isAnythingAsked(context, attributes);
  const wanted = isAsked ? ((await mutated(context, attributes)) ?? object) : object;
  const created = prepared(kind, undefined, asCreated(context, kind, cleaned(decoded(kind, wanted))), undefined);
  if (isAsked) await validate(context, { ...attributes, name: created.metadata.name ?? "", object: created });
  return withManaged(created, created.metadata.managedFields);
}

/** @returns `undefined` where there is one already */
async function store(context: ServerContext, write: Write, object: ModelObject): Promise<ModelObject | undefined> {
  const { isDryRun, kind } = write;
  const stored = encode(kind, object);
  await context.io.hold("admitted");
  const key = keyOf(write);
  if (isDryRun) return context.etcd.get(key) === undefined ? object : undefined;
  const written = context.etcd.put(key, { object: stored, encryptionKey: keyFor(context, kind) }, 0);
  if (written === undefined) return undefined;
  await context.io.hold("written");
  return viewOf(written, kind);
}

/**
 * Changes an object, and begins again where another write came in between.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/storage/etcd3/store.go
 * @param mayCreate whether the change is also made where there is no object
 * @throws {Refusal}
 */
export async function update(
  context: ServerContext,
  write: Write,
  { change, mayCreate }: { readonly change: Change; readonly mayCreate: boolean },
): Promise<Written> {
  const { kind, name } = write;
  const key = keyOf(write);
  for (;;) {
    const entry = context.etcd.get(key);
    if (entry === undefined && (!mayCreate || write.subresource !== undefined)) throw notFound(kind, name);
    const object =
      entry === undefined
        ? await createApplied(context, write, change(undefined))
        : await updateOnce(context, write, { change, entry });
    if (object !== undefined) return { object, wasCreated: entry === undefined };
  }
}

/**
 * An apply of an object that is gone, by its uid, is a conflict.
 * @returns `undefined` where another write came in between
 */
async function createApplied(
  context: ServerContext,
  write: Write,
  object: ModelObject,
): Promise<ModelObject | undefined> {
  const { kind, name } = write;
  const { uid } = object.metadata;
  if (uid !== undefined) {
    const why = `uid mismatch: the provided object specified uid ${uid}, and no existing object was found`;
    throw conflict(kind, name, why);
  }
  assertNotTerminating(kind, name);
  return store(context, write, await admittedCreate(context, write, placed(object, write.namespace)));
}

/** @returns `undefined` where another write came in between */
async function updateOnce(
  context: ServerContext,
  write: Write,
  { change, entry }: { readonly change: Change; readonly entry: EtcdEntry },
): Promise<ModelObject | undefined> {
  const { isDryRun, kind, name, subresource } = write;
  const before = decode(context, kind, entry);
  const problem = managersProblem(kind, before);
  const changed = placed(cleaned(change(before, problem)), write.namespace);
  const attributes = admittedOf(write, "UPDATE", { object: changed, oldObject: before });
  const isAsked = isAnythingAsked(context, attributes);
  const wanted = isAsked ? ((await mutated(context, attributes)) ?? changed) : changed;
  const { resourceVersion } = before.metadata;
  if ((wanted.metadata.resourceVersion ?? resourceVersion) !== resourceVersion) throw modified(kind, name);
  const after = withOldTimes(
    before,
    prepared(kind, before, asUpdated(kind, before, cleaned(decoded(kind, wanted)), subresource), subresource),
  );
  if (isAsked) await validate(context, { ...attributes, object: after });
  const isLast = after.metadata.deletionTimestamp !== undefined && after.metadata.finalizers === undefined;
  if (isLast) return await finish(context, entry, after, isDryRun);
  const stored = encode(kind, after);
  const encryptionKey = keyFor(context, kind);
  await context.io.hold("admitted");
  if (isNoOp(entry, stored, encryptionKey)) {
    // What was compared may be old by now: then all of it is done again.
    return context.etcd.get(entry.key)?.modRevision === entry.modRevision ? before : undefined;
  }
  if (isDryRun) return after;
  const written = context.etcd.put(entry.key, { object: stored, encryptionKey }, entry.modRevision);
  if (written === undefined) return undefined;
  await context.io.hold("written");
  return viewOf(written, kind);
}

/** Removes an object whose last finalizer was taken off. */
async function finish(
  context: ServerContext,
  entry: EtcdEntry,
  after: ModelObject,
  isDryRun: boolean,
): Promise<ModelObject | undefined> {
  await context.io.hold("admitted");
  if (isDryRun) return after;
  if (context.etcd.delete(entry.key, entry.modRevision) === undefined) return undefined;
  await context.io.hold("written");
  return after;
}

/** Deletes an object, or marks it where it has finalizers. @returns what to answer @throws {Refusal} */
export async function remove(context: ServerContext, write: Write, preconditions: Preconditions): Promise<object> {
  const { isDryRun, kind, name } = write;
  for (;;) {
    const entry = context.etcd.get(keyOf(write));
    if (entry === undefined) throw notFound(kind, name);
    const object = decode(context, kind, entry);
    assertPreconditions(write, object, preconditions);
    const attributes = admittedOf(write, "DELETE", { object: undefined, oldObject: object });
    if (isAnythingAsked(context, attributes)) await validate(context, attributes);
    await context.io.hold("admitted");
    const marked = markedForDeletion(kind, object, context.clock.now());
    const { group, resource } = kind;
    const details = { name, ...(group === "" ? {} : { group }), kind: resource, uid: object.metadata.uid };
    const success = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Success", details };
    if (isDryRun) return marked ?? success;
    const written =
      marked === undefined
        ? context.etcd.delete(entry.key, entry.modRevision)
        : putMarked(context, kind, entry, marked);
    if (written === undefined) continue;
    await context.io.hold("written");
    return marked === undefined ? success : viewOf(written, kind);
  }
}

function putMarked(
  context: ServerContext,
  kind: ServedKind,
  entry: EtcdEntry,
  marked: ModelObject,
): EtcdEntry | undefined {
  const stored = encode(kind, marked);
  if (isNoOp(entry, stored, keyFor(context, kind))) return entry;
  return context.etcd.put(entry.key, { object: stored, encryptionKey: keyFor(context, kind) }, entry.modRevision);
}

/** An object that has finalizers, or a CRD, as a DELETE marks it; `undefined` for one that goes at once. */
export function markedForDeletion(kind: ServedKind, object: ModelObject, now: number): ModelObject | undefined {
  const isCrd = isCrdKind(kind);
  const { deletionTimestamp = timeText(now), finalizers = [], generation } = object.metadata;
  if (finalizers.length === 0 && (!isCrd || object.metadata.deletionTimestamp !== undefined)) return undefined;
  if (object.metadata.deletionTimestamp !== undefined) return object;
  const all = isCrd && !finalizers.includes(CRD_FINALIZER) ? [...finalizers, CRD_FINALIZER] : finalizers;
  const counted = isCrd || generation === undefined ? {} : { generation: generation + 1 };
  const grace = isCrd ? {} : { deletionGracePeriodSeconds: 0 };
  const marked = {
    ...object,
    metadata: { ...object.metadata, deletionTimestamp, ...grace, ...counted, finalizers: all },
  };
  return isCrd ? withTerminating(marked, now) : marked;
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/registry/rest/delete.go */
function assertPreconditions(
  { kind, name }: Write,
  { metadata }: ModelObject,
  { resourceVersion, uid }: Preconditions,
): void {
  const isCrd = isCrdKind(kind);
  const of = isCrd ? kind : { group: kind.group, resource: kind.kind };
  if (uid !== undefined && uid !== metadata.uid) {
    const found = metadata.uid ?? "";
    const why = isCrd
      ? `precondition failed: UID in precondition: ${uid}, UID in object meta: ${found}`
      : `the UID in the precondition (${uid}) does not match the UID in record (${found}). The object might have been deleted and then recreated`;
    throw conflict(of, name, why);
  }
  if (resourceVersion !== undefined && resourceVersion !== metadata.resourceVersion) {
    const found = metadata.resourceVersion ?? "";
    const why = isCrd
      ? `precondition failed: ResourceVersion in precondition: ${resourceVersion}, ResourceVersion in object meta: ${found}`
      : `the ResourceVersion in the precondition (${resourceVersion}) does not match the ResourceVersion in record (${found}). The object might have been modified`;
    throw conflict(of, name, why);
  }
}

/** What a request asks to be answered: whole objects, or their metadata. */
export function isMetadataAsked({ headers }: ModelRequest): boolean {
  return headers["accept"]?.includes("as=PartialObjectMetadata") === true;
}

/** What the query and the headers of a write say. A DELETE with a body says by that alone whether it is a dry-run. */
export function writeOptionsOf({ body, headers, method, query, user }: ModelRequest): WriteOptions {
  const asked = method === "DELETE" && body !== "" ? dryRunIn(parsedBody(body)) : query.get("dryRun");
  const fieldManager = query.get("fieldManager") ?? undefined;
  const userAgent = (headers["user-agent"] ?? "").split("/")[0] ?? "";
  const manager = fieldManager ?? (userAgent === "" ? "unknown" : userAgent);
  return { user, isDryRun: asked === "All", fieldManager, manager };
}

type WriteOptions = Pick<Write, "fieldManager" | "isDryRun" | "manager" | "user">;

function dryRunIn(options: unknown): string | null {
  return (options as { readonly dryRun?: readonly string[] } | null)?.dryRun?.[0] ?? null;
}

/** What a PATCH changes, and whether it also creates. @throws {Refusal} */
export function patchOf(
  context: ServerContext,
  write: Write,
  request: ModelRequest,
): { readonly change: Change; readonly mayCreate: boolean } {
  const type = (request.headers["content-type"] ?? "").split(";")[0];
  const { kind, manager, subresource } = write;
  const writer = writerOf(context, kind, { manager, subresource });
  if (type === "application/apply-patch+yaml") {
    return { change: applyChange(write, request, writer), mayCreate: true };
  }
  const patch = type === "application/json-patch+json" ? jsonPatched : mergePatched;
  if (patch === mergePatched && type !== "application/merge-patch+json") throw new Error(`The model knows no ${type}`);
  const body = parsedBody(request.body);
  const change: Change = (current, problem) => {
    const patched = decoded(kind, patch(current, body) as ModelObject);
    return withManaged(
      patched,
      problem === undefined ? managedByUpdate(current, patched, writer) : current?.metadata.managedFields,
    );
  };
  return { change, mayCreate: false };
}

function applyChange({ kind }: Write, request: ModelRequest, writer: ReturnType<typeof writerOf>): Change {
  const config = parsedBody(request.body);
  assertKind(config, kind);
  const force = request.query.get("force") === "true";
  return (current, problem) => {
    if (problem !== undefined) throw problem;
    return applied(current, config, { ...writer, force });
  };
}

/** The preconditions of a DELETE. */
export function preconditionsOf({ body }: ModelRequest): Preconditions {
  const options = (body === "" ? {} : parsedBody(body)) as { readonly preconditions?: Preconditions };
  return options.preconditions ?? {};
}

/** What a DELETE asks of the object that is there. */
interface Preconditions {
  readonly uid?: string;
  readonly resourceVersion?: string;
}
