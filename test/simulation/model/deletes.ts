import { conflict, notFound } from "./answers.ts";
import type { Preconditions } from "./requests.ts";
import { isAnythingAsked, validate } from "./admission.ts";
import { CRD_FINALIZER, isCrdKind, withTerminating } from "./crd-strategy.ts";
import type { ModelObject } from "./model-object.ts";
import type { ServedKind } from "./served-kinds.ts";
import { type ServerContext, timeText } from "./server-context.ts";
import { decode, decodeNow, encode, isNoOp, keyFor, viewOf } from "./stored-objects.ts";
import type { EtcdEntry } from "./timeline.ts";
import { admittedOf, keyOf, type Write } from "./write-request.ts";

/** Deletes an object, or marks it where it has finalizers. @returns what to answer @throws {Refusal} */
export async function remove(context: ServerContext, write: Write, preconditions: Preconditions): Promise<object> {
  const { isDryRun, kind, name } = write;
  for (;;) {
    const entry = context.etcd.get(keyOf(write));
    if (entry === undefined) throw notFound(kind, name);
    const object = decodeNow(context, kind, entry) ?? (await decode(context, kind, entry));
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
        : await putMarked(context, kind, entry, marked);
    if (written === undefined) continue;
    await context.io.hold("written");
    return marked === undefined ? success : viewOf(written, kind);
  }
}

async function putMarked(
  context: ServerContext,
  kind: ServedKind,
  entry: EtcdEntry,
  marked: ModelObject,
): Promise<EtcdEntry | undefined> {
  const stored = await encode(context, kind, marked);
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
      ? `Precondition failed: UID in precondition: ${uid}, UID in object meta: ${found}`
      : `the UID in the precondition (${uid}) does not match the UID in record (${found}). The object might have been deleted and then recreated`;
    throw conflict(of, name, why);
  }
  if (resourceVersion !== undefined && resourceVersion !== metadata.resourceVersion) {
    const found = metadata.resourceVersion ?? "";
    const why = isCrd
      ? `Precondition failed: ResourceVersion in precondition: ${resourceVersion}, ResourceVersion in object meta: ${found}`
      : `the ResourceVersion in the precondition (${resourceVersion}) does not match the ResourceVersion in record (${found}). The object might have been modified`;
    throw conflict(of, name, why);
  }
}
