import { isNewer } from "../../../api/resource-version.ts";
import { DoubtfulAnswer } from "../../kube/errors.ts";
import { failureKindOf, isInvalidGroupVersion } from "../../kube/failure.ts";
import type { ListedObject } from "../../kube/listed-object.ts";
import { APPLY_PATCH, MERGE_PATCH } from "../../kube/resources.ts";
import { backoffMs } from "../../retry/backoff.ts";
import { isAboutValues, isOfTheObject, reasonOf } from "./failure-reason.ts";
import { isApplyInvisible } from "./apply-trial.ts";
import { noOpWrite } from "./no-op-write.ts";
import { otherScopeOf } from "./other-scope.ts";
import { type ObjectState, readObjectState, withStatusDigest } from "./object-state.ts";
import { namedObjectOf } from "../../kube/named-object.ts";
import type { RetryState } from "../../retry/retrier.ts";
import type { ObjectOutcome, RewriteContext } from "./rewrite-context.ts";
import { type StuckRequest, WaitingForOthers } from "../../retry/start-again.ts";

/** How often an object is read again that another client writes at the same time, without ever passing the watermark. */
const MAX_CONFLICTS = 20;
/** The backoff after a 500 of one object grows up to this attempt, to 6.4 s: well below the patience with it. */
const MAX_FAULT_ATTEMPT = 6;
/** The longest pause between two requests that the authorizer refuses, in milliseconds. */
const MAX_DENIAL_PAUSE_MS = 2_000;
/** How often a conflict may come although the object was read at the resourceVersion that it was sent with. */
const MAX_UNEXPLAINED_CONFLICTS = 5;

/**
 * Has one object stored in the storage version, by a write that changes nothing that a user sees: a server-side apply
 * that owns no field, since a merge patch wipes all managedFields while a conversion webhook is down
 * (https://github.com/kubernetes/kubernetes/issues/136919); or a merge patch where the object has no managedFields and an
 * apply, tried as a dry run, gives it an entry `before-first-apply` that owns every field.
 *
 * @throws {KsvmError} VersionNotServed where the path itself is not served; RetryBudgetExceeded.
 */
export async function rewriteObject(context: RewriteContext, object: ListedObject): Promise<ObjectOutcome> {
  const otherScope = otherScopeOf(context.scope, object);
  if (otherScope !== undefined) {
    return { kind: "failed", reason: otherScope };
  }
  const attempt = new Rewrite(context, object);
  try {
    for (;;) {
      const outcome = await attempt.once();
      if (outcome !== undefined) {
        return outcome;
      }
    }
  } catch (error) {
    throw error instanceof WaitingForOthers ? error.about(attempt.request) : error;
  }
}

class Rewrite {
  readonly #context: RewriteContext;
  #object: ListedObject;
  #patchType: string;
  #failures = 0;
  #failedSince: number | undefined;
  #denials = 0;
  #deniedSince: number | undefined;
  #conflicts = 0;
  #unexplainedConflicts = 0;
  /** The object that a dry run was made with, and showed what to write it by. */
  #tried: ListedObject | undefined;

  constructor(context: RewriteContext, object: ListedObject) {
    this.#context = context;
    this.#object = object;
    this.#patchType = patchTypeFor(object);
  }

  /** The write that is tried, for a probe to repeat. */
  get request(): StuckRequest {
    const { subresource } = this.#context;
    return { kind: "write", object: this.#object, patchType: this.#patchType, subresource };
  }

  /** One attempt; `undefined` where another is due. */
  async once(): Promise<ObjectOutcome | undefined> {
    let written: ListedObject;
    try {
      written = await this.#patch();
    } catch (error) {
      return this.#afterFailure(error);
    }
    if (written.uid !== this.#object.uid) {
      // Through the status subresource a uid is no precondition, an aggregated API server may look at none, and a proxy may mix answers up.
      return this.#look(
        new DoubtfulAnswer(`the answer to the write is of another object, with the uid ${written.uid}`),
      );
    }
    const changed = this.#hasChanged(written);
    // A dry-run never moves the resourceVersion.
    if (written.resourceVersion === this.#object.resourceVersion && !this.#context.dryRun) {
      return { kind: "current" };
    }
    if (!this.#context.dryRun) {
      this.#context.objectsSeen?.wrote(written);
    }
    return { kind: "migrated", changed };
  }

  /**
   * The generation shows a change of the spec, where the kind has one; the digest one of labels, annotations and the like, and
   * of the status in a write through it.
   * A merge patch in place of an apply may change managedFields by itself: the API server empties those that name a version which is gone.
   */
  #hasChanged(written: ListedObject): boolean {
    const before = this.#object;
    const isComparable = this.#patchType === APPLY_PATCH || !before.hasManagedFields;
    const isOther = isComparable ? written.digest !== before.digest : !written.hasManagedFields;
    return isOther || written.generation !== before.generation;
  }

  async #patch(): Promise<ListedObject> {
    const { resource, kind, pacer, transport, signal, dryRun, subresource, write = noOpWrite } = this.#context;
    if (subresource !== undefined) this.#object = await withStatusDigest(this.#context, this.#object);
    if (!dryRun && subresource === undefined) await this.#choosePatchType();
    const options = { patchType: this.#patchType, subresource, dryRun, signal };
    return pacer.observe(() => write(transport, { ...resource, kind }, this.#object, options));
  }

  /** Where the object has no managedFields, a dry run says how to write it. */
  async #choosePatchType(): Promise<void> {
    const object = this.#object;
    if (!object.hasManagedFields && this.#tried !== object) {
      this.#patchType = (await isApplyInvisible(this.#context, object)) ? APPLY_PATCH : patchTypeFor(object);
      this.#tried = object;
    }
  }

  async #afterFailure(error: unknown): Promise<ObjectOutcome | undefined> {
    switch (failureKindOf(error)) {
      case "gone":
      case "unserved":
      case "conflict":
        return this.#look(error);
      case "transient":
        return this.#afterTransient(error);
      case "rejected":
        return this.#afterRejection(error);
      case "denied":
        return this.#afterDenial(error);
      case "expired":
        return { kind: "failed", reason: reasonOf(error) };
      case undefined:
        throw error;
    }
  }

  /**
   * After a 404 or 409, neither of which proves anything by itself: the 404 may name another thing, such as the
   * namespace; and only a resourceVersion beyond the watermark shows a write in the new version.
   */
  async #look(error: unknown): Promise<ObjectOutcome | undefined> {
    const { retrier, resource, transport, signal, waitSignal, watermark } = this.#context;
    let state: ObjectState;
    try {
      state = await retrier.run(() => readObjectState(transport, resource, this.#object, { signal }), waitSignal);
    } catch (lookError) {
      return this.#afterFailedLook(lookError);
    }
    if (state.kind === "gone") {
      return { kind: "gone" };
    }
    const { object } = state;
    if (isNewer(object.resourceVersion, watermark)) {
      return { kind: state.kind === "replaced" ? "gone" : "newer" };
    }
    if (state.kind === "present" && failureKindOf(error) !== "conflict") {
      return { kind: "failed", reason: reasonOf(error) };
    }
    return this.#afterConflict(error, object);
  }

  /** The next try is made with what was read. */
  async #afterConflict(error: unknown, current: ListedObject): Promise<ObjectOutcome | undefined> {
    const isUnexplained = current.resourceVersion === this.#object.resourceVersion;
    const isOver = isUnexplained
      ? ++this.#unexplainedConflicts > MAX_UNEXPLAINED_CONFLICTS
      : ++this.#conflicts > MAX_CONFLICTS;
    if (isOver) {
      return { kind: "failed", reason: reasonOf(error) };
    }
    this.#object = current;
    const { pacer, reads, waitSignal } = this.#context;
    if (reads !== undefined) {
      await pacer.aside(() => reads.objectRead(), waitSignal);
    }
    this.#patchType = patchTypeFor(current);
    if (isUnexplained) {
      await this.#pause(this.#unexplainedConflicts);
    }
    return undefined;
  }

  async #afterFailedLook(error: unknown): Promise<ObjectOutcome | undefined> {
    switch (failureKindOf(error)) {
      case "denied":
        return this.#afterDenial(error);
      case "gone":
      case "unserved":
      case "transient":
      case undefined:
        throw error;
      case "conflict":
      case "rejected":
      case "expired":
        return { kind: "failed", reason: reasonOf(error) };
    }
  }

  /** An API server that just started may not know the roles yet. */
  async #afterDenial(error: unknown): Promise<ObjectOutcome | undefined> {
    const { clock, patience } = this.#context;
    const now = clock.monotonic();
    this.#deniedSince ??= now;
    if (patience.givesUpDenied(this.#deniedSince, now)) {
      return { kind: "failed", reason: reasonOf(error) };
    }
    await this.#pause(this.#denials++);
    return undefined;
  }

  async #pause(attempt: number): Promise<void> {
    const { clock, pacer, retrier, waitSignal } = this.#context;
    const ms = Math.min(MAX_DENIAL_PAUSE_MS, backoffMs(attempt, retrier.random()));
    await pacer.aside(() => clock.sleep(ms, waitSignal), waitSignal);
  }

  async #afterTransient(error: unknown): Promise<ObjectOutcome | undefined> {
    const { pacer, retrier, waitSignal } = this.#context;
    if (isOfTheObject(error) && (await this.#givesUpFault())) {
      return { kind: "failed", reason: reasonOf(error) };
    }
    const state = this.#retryState();
    const attempt = isOfTheObject(error) ? Math.min(state.attempt, MAX_FAULT_ATTEMPT) : state.attempt;
    await pacer.aside(() => retrier.pause(error, { ...state, attempt }, waitSignal), waitSignal);
    return undefined;
  }

  async #givesUpFault(): Promise<boolean> {
    const { clock, patience, resource, retrier, signal, transport } = this.#context;
    const now = clock.monotonic();
    const { lastProgress } = retrier;
    const verdict = patience.judgeFault(this.#failedSince ?? now, now, lastProgress);
    if (verdict === "wait") {
      return false;
    }
    if (verdict === "look") {
      try {
        await readObjectState(transport, resource, this.#object, { signal });
      } catch {
        signal.throwIfAborted();
        return false;
      }
    }
    patience.gaveUpFault(now, lastProgress);
    return true;
  }

  #retryState(): RetryState {
    this.#failedSince ??= this.#context.clock.monotonic();
    return { attempt: this.#failures++, since: this.#failedSince, object: namedObjectOf(this.#object) };
  }

  #afterRejection(error: unknown): ObjectOutcome | undefined {
    if (isInvalidGroupVersion(error) && this.#patchType === APPLY_PATCH) {
      // managedFields name a version that is gone: https://github.com/kubernetes/kubernetes/issues/111937
      this.#patchType = MERGE_PATCH;
      return undefined;
    }
    const { adviceOnRejection } = this.#context;
    const advice = adviceOnRejection !== undefined && isAboutValues(error) ? `; ${adviceOnRejection}` : "";
    return { kind: "failed", reason: `${reasonOf(error)}${advice}` };
  }
}

function patchTypeFor({ hasManagedFields }: ListedObject): string {
  return hasManagedFields ? APPLY_PATCH : MERGE_PATCH;
}
