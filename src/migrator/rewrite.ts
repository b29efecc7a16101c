import type { ObjectMeta, PartialObjectMetadata } from "../api/meta.ts";
import { isNewer } from "../api/resource-version.ts";
import type { Clock } from "../clock.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { ApiError } from "../kube/errors.ts";
import { failedWebhookOf, failureKindOf, isInvalidGroupVersion } from "../kube/failure.ts";
import { ACCEPT_METADATA, APPLY_PATCH, MERGE_PATCH, objectPath, type Resource } from "../kube/resources.ts";
import type { Transport } from "../kube/transport.ts";
import { noOpWrite } from "./no-op-write.ts";
import type { Pacer } from "./pacer.ts";
import type { Retrier, RetryState } from "./retrier.ts";
import { type StuckRequest, WaitingForOthers } from "./start-again.ts";

/** What became of one object. */
export type ObjectOutcome =
  /** It was written. `changed` where admission changed more than the encoding: the generation moved. */
  | { readonly kind: "migrated"; readonly changed: boolean }
  /** It was stored in the storage version already: the API server wrote nothing. */
  | { readonly kind: "current" }
  /** Somebody wrote it after the watermark, in the storage version. */
  | { readonly kind: "newer" }
  /** It does not exist any more. */
  | { readonly kind: "gone" }
  /** It is still stored as it was, and this is why. */
  | { readonly kind: "failed"; readonly reason: string };

/** What {@link rewriteObject} needs besides the object. */
export interface RewriteContext {
  readonly transport: Transport;
  readonly clock: Clock;
  readonly retrier: Retrier;
  readonly pacer: Pacer;
  readonly resource: Resource;
  readonly kind: string;
  readonly watermark: string;
  /** Sends the writes as dry-runs: admission and validation speak, nothing is stored. */
  readonly dryRun: boolean;
  readonly signal: AbortSignal;
}

/** How often an object that admission or validation rejects is tried: an admission webhook may have hiccuped. */
const MAX_REJECTIONS = 3;
/** How often an object is read again that somebody else writes at the same time, without ever passing the watermark. */
const MAX_CONFLICTS = 20;
/** How long a 500 may come from one object, in milliseconds, while others pass, before it counts as that object's. */
const OBJECT_PATIENCE_MS = 60_000;

/**
 * Has one object stored in the storage version, by a server-side apply that owns no field.
 *
 * An apply, because a merge patch wipes all managedFields while a conversion webhook is down:
 * https://github.com/kubernetes/kubernetes/issues/136919
 *
 * @throws {KsvmError} VersionNotServed where the path itself is not served; RetryBudgetExceeded.
 */
export async function rewriteObject(context: RewriteContext, object: PartialObjectMetadata): Promise<ObjectOutcome> {
  const attempt = new Rewrite(context, object.metadata);
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
  readonly #startedAt: number;
  #metadata: ObjectMeta;
  #patchType = APPLY_PATCH;
  #failures = 0;
  #failedSince: number | undefined;
  #rejections = 0;
  #conflicts = 0;

  constructor(context: RewriteContext, metadata: ObjectMeta) {
    this.#context = context;
    this.#metadata = metadata;
    this.#startedAt = context.clock.monotonic();
  }

  /** The write that is tried, for a probe to repeat. */
  get request(): StuckRequest {
    return { kind: "write", object: this.#metadata, patchType: this.#patchType };
  }

  /** One attempt; `undefined` where another is due. */
  async once(): Promise<ObjectOutcome | undefined> {
    let written: PartialObjectMetadata;
    try {
      written = await this.#patch();
    } catch (error) {
      return this.#afterFailure(error);
    }
    const { metadata } = written;
    const changed = metadata.generation !== this.#metadata.generation;
    // A dry-run never moves the resourceVersion.
    if (metadata.resourceVersion === this.#metadata.resourceVersion && !this.#context.dryRun) {
      return { kind: "current" };
    }
    return { kind: "migrated", changed };
  }

  #patch(): Promise<PartialObjectMetadata> {
    const { resource, kind, pacer, transport, signal, dryRun } = this.#context;
    const options = { patchType: this.#patchType, dryRun, signal };
    return pacer.observe(() => noOpWrite(transport, { ...resource, kind }, this.#metadata, options));
  }

  async #afterFailure(error: unknown): Promise<ObjectOutcome | undefined> {
    switch (failureKindOf(error)) {
      case "gone":
        return this.#isOurs(error) ? { kind: "gone" } : this.#stopUnserved(error);
      case "unserved":
        return this.#stopUnserved(error);
      case "conflict":
        return this.#afterConflict(error);
      case "transient":
        return this.#afterTransient(error);
      case "rejected":
        return this.#afterRejection(error);
      case "denied":
      case "expired":
        return { kind: "failed", reason: reasonOf(error) };
      case undefined:
        throw error;
    }
  }

  /** A 404 may also name something else than the object: its namespace, or a webhook's service. */
  #isOurs(error: unknown): boolean {
    const details = error instanceof ApiError ? error.answer?.details : undefined;
    const kinds = [this.#context.kind, this.#context.resource.resource];
    return details?.name === this.#metadata.name && (details.kind === undefined || kinds.includes(details.kind));
  }

  #stopUnserved(error: unknown): never {
    const { group, version, resource } = this.#context.resource;
    const text = `Cannot go on with "${resource}.${group}": version "${version}" answers 404: ${reasonOf(error)}`;
    throw new KsvmError("VersionNotServed", text, { cause: error });
  }

  /** A conflict alone proves nothing: only a resourceVersion beyond the watermark shows a write in the new version. */
  async #afterConflict(error: unknown): Promise<ObjectOutcome | undefined> {
    this.#conflicts++;
    let current: ObjectMeta;
    try {
      current = await this.#read();
    } catch (readError) {
      return this.#afterFailure(readError);
    }
    if (isNewer(current.resourceVersion, this.#context.watermark)) {
      return { kind: "newer" };
    }
    if (this.#conflicts > MAX_CONFLICTS) {
      return { kind: "failed", reason: reasonOf(error) };
    }
    this.#metadata = current;
    return undefined;
  }

  async #read(): Promise<ObjectMeta> {
    const { resource, transport, signal } = this.#context;
    const path = objectPath(resource, this.#metadata);
    const request = { method: "GET", path, accept: ACCEPT_METADATA, signal } as const;
    return (await transport.request<PartialObjectMetadata>(request)).body.metadata;
  }

  async #afterTransient(error: unknown): Promise<ObjectOutcome | undefined> {
    const { clock, retrier, signal } = this.#context;
    const patienceIsOver = clock.monotonic() - this.#startedAt > OBJECT_PATIENCE_MS;
    if (isOfTheObject(error) && patienceIsOver && retrier.lastProgress > this.#startedAt) {
      return { kind: "failed", reason: reasonOf(error) };
    }
    await retrier.pause(error, this.#retryState(), signal);
    return undefined;
  }

  #retryState(): RetryState {
    this.#failedSince ??= this.#context.clock.monotonic();
    return { attempt: this.#failures++, since: this.#failedSince };
  }

  async #afterRejection(error: unknown): Promise<ObjectOutcome | undefined> {
    if (isInvalidGroupVersion(error) && this.#patchType === APPLY_PATCH) {
      // managedFields name a version that is gone: https://github.com/kubernetes/kubernetes/issues/111937
      this.#patchType = MERGE_PATCH;
      return undefined;
    }
    this.#rejections++;
    if (this.#rejections >= MAX_REJECTIONS) {
      return { kind: "failed", reason: reasonOf(error) };
    }
    await this.#context.retrier.pause(error, this.#retryState(), this.#context.signal);
    return undefined;
  }
}

/** A plain 500 may come from the object itself; 429, 502 to 504, broken connections and a webhook that is down do not. */
function isOfTheObject(error: unknown): boolean {
  return error instanceof ApiError && error.status === 500 && failedWebhookOf(error) === undefined;
}

function reasonOf(error: unknown): string {
  return error instanceof ApiError ? error.said.replaceAll(/\s*\n\s*/g, " ") : messageOf(error);
}
