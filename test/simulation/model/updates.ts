import { modified, notFound } from "./answers.ts";
import { assertNamespace, isAnythingAsked, mutated, validate } from "./admission.ts";
import { createByApply } from "./creates.ts";
import { decoded, prepared } from "./strategies.ts";
import { isInOtherVersions, managersProblem } from "./managers-problem.ts";
import type { ModelObject } from "./model-object.ts";
import { asUpdated, cleaned, placed, withOldTimes } from "./object-meta.ts";
import type { ServerContext } from "./server-context.ts";
import { decode, decodeNow, encode, isNoOp, keyFor } from "./stored-objects.ts";
import type { EtcdEntry } from "./timeline.ts";
import { admittedOf, answered, type Change, keyOf, type Write, type Written } from "./write-request.ts";

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
    if (entry === undefined) {
      if (!mayCreate || write.subresource !== undefined) throw notFound(kind, name);
      const created = await createByApply(context, write, change);
      if (created !== undefined) return { object: created, wasCreated: true };
      continue;
    }
    const updated = await updateOnce(context, write, { change, entry });
    if (updated !== undefined) return { object: updated, wasCreated: false };
  }
}

/** @returns `undefined` where another write came in between */
async function updateOnce(
  context: ServerContext,
  write: Write,
  { change, entry }: { readonly change: Change; readonly entry: EtcdEntry },
): Promise<ModelObject | undefined> {
  const { isDryRun, kind, name, subresource } = write;
  const before = decodeNow(context, kind, entry) ?? (await decode(context, kind, entry));
  const problem = isInOtherVersions(kind, before) ? await managersProblem(context, kind, before) : undefined;
  const changed = placed(cleaned(change(before, problem)), write.namespace, name);
  const attributes = admittedOf(write, "UPDATE", { object: changed, oldObject: before });
  assertNamespace(context, attributes);
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
  const stored = await encode(context, kind, after);
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
  return answered(kind, written, after);
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
