import { isDeepStrictEqual } from "node:util";
import { selectorOfName } from "../../kube/field-selector.ts";
import { areSameFields, convertedFields, isOtherVersion } from "../../../api/managed-fields.ts";
import type { ManagedFieldsEntry, ObjectMeta, PartialObjectMetadata } from "../../../api/meta.ts";
import { REWRITE_FIELD_MANAGER } from "../../../api/names.ts";
import { isNewer } from "../../../api/resource-version.ts";
import { writtenIn } from "../../kube/answered-object.ts";
import { failureKindOf, isReinitializing } from "../../kube/failure.ts";
import { itemsOf, type ListAnswer } from "../../kube/listed-items.ts";
import type { ListedObject } from "../../kube/listed-object.ts";
import {
  ACCEPT_METADATA,
  ACCEPT_METADATA_LIST,
  collectionPath,
  MERGE_PATCH,
  objectPath,
} from "../../kube/resources.ts";
import type { ObjectFailure, Tally } from "./counts.ts";
import { isOfTheObject, reasonOf } from "./failure-reason.ts";
import { rewriteObject } from "./rewrite.ts";
import type { ObjectOutcome, RewriteContext } from "./rewrite-context.ts";

/** What became of managedFields that named another version. */
export interface FieldsReport {
  /** Objects whose entries name the storage version now. */
  readonly converted: number;
  /** Objects whose entries are as they were. */
  readonly kept: number;
  /** The first hundred of those, and why. */
  readonly keptObjects: readonly ObjectFailure[];
}

/** Objects that a run converted. Each is converted once, whatever of the run is counted again. */
export interface Converted {
  count: number;
}

/** What a result says of the conversion. @param tally of the objects that it had to do with */
export function fieldsReportOf({ count }: Converted, { kept, keptObjects }: Tally): FieldsReport {
  return { converted: count, kept, keptObjects };
}

/** What a pass over all objects is told, where it converts managedFields. */
export interface WayOfPass {
  readonly fieldVersions: true;
  readonly isDueLate: (object: ListedObject) => boolean;
  readonly rewrite: (context: RewriteContext, object: ListedObject) => Promise<ObjectOutcome>;
}

/** How often an object is read again that others write at the same time. */
const MAX_TRIES = 5;
/** How often a patch is sent that fails with a plain 500, which may come from the object: over some seconds. */
const MAX_FAULTS = 5;
const NOT_AS_WANTED = "a dry run shows that the API server, or what it asks, would change something else";

/**
 * How often an object is read while the API server cannot fill its watch cache: over some ten seconds, since one that has just followed a
 * change of the CRD answers so, too. An object in etcd that an earlier CRD of another scope left keeps it from that for good.
 */
const MAX_REFUSED_READS = 7;

/** What one request of the conversion keeps failing with, where other requests may not. */
class ConversionFault extends Error {
  override readonly name = "ConversionFault";
}

type Attempt =
  | { readonly outcome: ObjectOutcome }
  /** Why the entries are left as they are; missing where there is nothing left to convert. */
  | { readonly reason?: string };

/**
 * Rewrites objects, and with the same write has the entries of their managedFields that name another version of the group name the
 * storage version: server-side apply fails once the CRD has no such version any more
 * (https://github.com/kubernetes/kubernetes/issues/111937). Only for CRDs whose conversion moves no field.
 *
 * An apply must not carry managedFields, and a patch that does makes an API server drop or alter all of them where it cannot
 * read one. So each write is tried as a dry run, and only sent if the answer differs from the object in what is wanted alone.
 * Any other object is rewritten as usual.
 */
export class FieldsConversion {
  readonly #apiVersion: string;
  readonly converted: Converted;
  /** One, once an object could not be read: each of thousands would wait as long. */
  #maxRefusedReads = MAX_REFUSED_READS;

  /**
   * @param apiVersion group and version that every entry is to name
   * @param converted counts on from there
   */
  constructor(apiVersion: string, converted: Converted = { count: 0 }) {
    this.#apiVersion = apiVersion;
    this.converted = converted;
  }

  /** How a pass goes about it. */
  get wayOfPass(): WayOfPass {
    const { isDueLate, rewrite } = this;
    return { fieldVersions: true, isDueLate, rewrite };
  }

  /** Whether an object that a page lists has an entry that names another version. */
  readonly isDueLate = ({ fieldVersions = [] }: ListedObject): boolean =>
    fieldVersions.some((one) => isOtherVersion(one, this.#apiVersion));

  /** In place of {@link rewriteObject}. @throws as that one. */
  readonly rewrite = async (context: RewriteContext, object: ListedObject): Promise<ObjectOutcome> => {
    const attempt: Attempt = this.isDueLate(object) ? await this.#convert(context, object) : {};
    if ("outcome" in attempt) {
      return attempt.outcome;
    }
    const outcome = await asUsual(context, object);
    const isKept = attempt.reason !== undefined && outcome.kind !== "failed" && outcome.kind !== "gone";
    return isKept ? { ...outcome, keptFields: attempt.reason } : outcome;
  };

  async #convert(context: RewriteContext, object: ListedObject): Promise<Attempt> {
    let conflict: unknown;
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      try {
        return await this.#attempt(context, object, conflict !== undefined);
      } catch (error) {
        if (error instanceof ConversionFault) {
          this.#maxRefusedReads = isReinitializing(error.cause) ? 1 : this.#maxRefusedReads;
          return { reason: reasonOf(error.cause) };
        }
        const kind = failureKindOf(error);
        if (kind === undefined) {
          throw error;
        }
        if (kind !== "conflict") {
          return { reason: reasonOf(error) };
        }
        conflict = error;
      }
    }
    return { reason: reasonOf(conflict) };
  }

  async #attempt(context: RewriteContext, object: ListedObject, isRepeated: boolean): Promise<Attempt> {
    const current = await readAgain(context, object, this.#maxRefusedReads);
    const entries = convertedFields(current?.managedFields ?? [], this.#apiVersion);
    if (current !== undefined && entries !== undefined) {
      return await this.#write(context, current, entries);
    }
    // A conflict may be with a write of this run whose answer was lost.
    this.converted.count += current !== undefined && isRepeated ? 1 : 0;
    return {};
  }

  async #write(context: RewriteContext, current: ObjectMeta, entries: readonly ManagedFieldsEntry[]): Promise<Attempt> {
    if (!isAsWanted(await patch({ ...context, dryRun: true }, current, entries), current, entries)) {
      return { reason: NOT_AS_WANTED };
    }
    if (context.dryRun) {
      this.converted.count++;
      return { outcome: { kind: "migrated", changed: false } };
    }
    const written = await patch(context, current, entries);
    if (written.uid !== current.uid) {
      return { reason: `the answer to the write is of another object, with the uid ${written.uid}` };
    }
    if (written.resourceVersion === current.resourceVersion) {
      return { reason: "the API server stored nothing" };
    }
    this.converted.count++;
    return { outcome: { kind: "migrated", changed: !isAsWanted(written, current, entries) } };
  }
}

async function asUsual(context: RewriteContext, object: ListedObject): Promise<ObjectOutcome> {
  return isNewer(object.resourceVersion, context.watermark) ? { kind: "newer" } : rewriteObject(context, object);
}

/** Where another client has written the object since the run listed it, {@link RewriteContext.reads} hears of it. */
async function readAgain(
  context: RewriteContext,
  object: ListedObject,
  maxRefused: number,
): Promise<ObjectMeta | undefined> {
  const { pacer, reads, waitSignal } = context;
  const current = await read(context, object, maxRefused);
  if (reads !== undefined && current !== undefined && current.resourceVersion !== object.resourceVersion) {
    await pacer.aside(() => reads.objectRead(), waitSignal);
  }
  return current;
}

/**
 * By a list, for which the right to list is enough; `undefined` where the object is gone, or is another one.
 * @throws {ConversionFault} where the API server cannot fill its watch cache, which pages and writes do without
 */
async function read(
  context: RewriteContext,
  { name, namespace, uid }: ListedObject,
  maxRefused: number,
): Promise<ObjectMeta | undefined> {
  const { pacer, resource, retrier, signal, transport, waitSignal } = context;
  const path = collectionPath(resource, namespace);
  const query = { fieldSelector: selectorOfName(name) };
  const request = { method: "GET", path, query, accept: ACCEPT_METADATA_LIST, signal } as const;
  let refused = 0;
  const list = async (): Promise<{ readonly body: ListAnswer<PartialObjectMetadata> }> => {
    try {
      return await pacer.observe(() => transport.request<ListAnswer<PartialObjectMetadata>>(request));
    } catch (error) {
      throw isReinitializing(error) && ++refused >= maxRefused ? new ConversionFault("", { cause: error }) : error;
    }
  };
  const { body } = await retrier.run(list, waitSignal);
  return itemsOf(body, path).find(({ metadata }) => metadata.uid === uid)?.metadata;
}

/**
 * A merge patch with uid and resourceVersion; a list that it carries replaces the one that there is.
 * @throws {ConversionFault} where it keeps failing, and the object may be why
 */
async function patch(
  { dryRun, kind, pacer, resource, retrier, signal, transport, waitSignal }: RewriteContext,
  { name, namespace, uid, resourceVersion }: ObjectMeta,
  managedFields: readonly ManagedFieldsEntry[],
): Promise<ObjectMeta> {
  const path = objectPath(resource, { name, ...(namespace === undefined ? {} : { namespace }) });
  const request = {
    method: "PATCH",
    path,
    query: { fieldManager: REWRITE_FIELD_MANAGER, dryRun: dryRun ? "All" : undefined },
    body: { kind, metadata: { uid, resourceVersion, managedFields } },
    contentType: MERGE_PATCH,
    accept: ACCEPT_METADATA,
    signal,
  } as const;
  await pacer.slot(waitSignal);
  const send = async (): Promise<PartialObjectMetadata> => {
    const { body } = await transport.request<PartialObjectMetadata>(request);
    return writtenIn(body, { verb: "patch", path, name, dryRun });
  };
  let faults = 0;
  const sendAgain = async (): Promise<PartialObjectMetadata> => {
    try {
      return await pacer.observe(send);
    } catch (error) {
      throw isOfTheObject(error) && ++faults >= MAX_FAULTS ? new ConversionFault("", { cause: error }) : error;
    }
  };
  return (await retrier.run(sendAgain, waitSignal)).metadata;
}

/** Whether nothing of the metadata differs but the entries, and those are as wanted. A change of the spec shows in the generation. */
function isAsWanted(answer: ObjectMeta, before: ObjectMeta, entries: readonly ManagedFieldsEntry[]): boolean {
  return areSameFields(answer.managedFields ?? [], entries) && isDeepStrictEqual(restOf(answer), restOf(before));
}

function restOf(metadata: ObjectMeta): object {
  return { ...metadata, managedFields: [], resourceVersion: "" };
}
