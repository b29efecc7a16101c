import { alreadyExists, conflict, invalid, Refusal } from "./answers.ts";
import { assertNamespace, isAnythingAsked, mutated, validate } from "./admission.ts";
import { decoded, prepared } from "./strategies.ts";
import { managedByUpdate } from "./managed-fields.ts";
import { type ModelObject, without } from "./model-object.ts";
import { asCreated, assertKind, cleaned, placed, withManaged, writerOf } from "./object-meta.ts";
import type { ServerContext } from "./server-context.ts";
import { encode, keyFor } from "./stored-objects.ts";
import {
  admittedOf,
  answered,
  assertNotTerminating,
  type Change,
  keyOf,
  type Write,
  type Written,
} from "./write-request.ts";

/** Creates an object. @throws {Refusal} */
export async function create(context: ServerContext, write: Omit<Write, "name">, body: unknown): Promise<Written> {
  const { kind, manager, namespace } = write;
  assertKind(body, kind);
  assertNotTerminating(kind, body.metadata.name ?? "");
  const sent = placed(cleaned(body), namespace);
  if (sent.metadata.name === undefined && sent.metadata.generateName === undefined) {
    const cause = {
      field: "metadata.name",
      body: "Required value: name or generateName is required",
      reason: "FieldValueRequired",
    };
    throw invalid(kind, "", [cause]);
  }
  const wiped = { ...sent, metadata: without(sent.metadata, "uid", "creationTimestamp", "deletionTimestamp") };
  const whole = decoded(kind, wiped);
  const managed = managedByUpdate(undefined, whole, writerOf(context, kind, { manager, subresource: undefined }));
  const object = await admittedCreate(context, { ...write, name: "" }, withManaged(whole, managed));
  return { object: await store(context, { ...write, name: object.metadata.name ?? "" }, object), wasCreated: true };
}

/** Creates what an apply finds nothing of. @returns `undefined` where another client created it in between */
export async function createByApply(
  context: ServerContext,
  write: Write,
  change: Change,
): Promise<ModelObject | undefined> {
  const { kind, name, namespace } = write;
  const changed = placed(cleaned(change(undefined)), namespace, name);
  if (changed.metadata.uid !== undefined) {
    const { uid } = changed.metadata;
    throw conflict(
      kind,
      name,
      `uid mismatch: the provided object specified uid ${uid}, and no existing object was found`,
    );
  }
  assertNotTerminating(kind, name);
  const object = await admittedCreate(context, write, changed);
  try {
    return await store(context, write, object);
  } catch (error) {
    if (error instanceof Refusal && error.status.reason === "AlreadyExists") return undefined;
    throw error;
  }
}

async function admittedCreate(context: ServerContext, write: Write, object: ModelObject): Promise<ModelObject> {
  const { kind } = write;
  const named = { ...write, name: object.metadata.name ?? "" };
  const attributes = admittedOf(named, "CREATE", { object, oldObject: undefined });
  assertNamespace(context, attributes);
  const isAsked = isAnythingAsked(context, attributes);
  const wanted = isAsked ? ((await mutated(context, attributes)) ?? object) : object;
  const created = prepared(kind, undefined, asCreated(context, kind, cleaned(decoded(kind, wanted))), undefined);
  if (isAsked) await validate(context, { ...attributes, name: created.metadata.name ?? "", object: created });
  return withManaged(created, created.metadata.managedFields);
}

async function store(context: ServerContext, write: Write, object: ModelObject): Promise<ModelObject> {
  const { isDryRun, kind, name } = write;
  const stored = await encode(context, kind, object);
  await context.io.hold("admitted");
  const key = keyOf(write);
  if (isDryRun) {
    if (context.etcd.get(key) !== undefined) throw alreadyExists(kind, name);
    return object;
  }
  const written = context.etcd.put(key, { object: stored, encryptionKey: keyFor(context, kind) }, 0);
  if (written === undefined) throw alreadyExists(kind, name);
  await context.io.hold("written");
  return answered(kind, written, object);
}
