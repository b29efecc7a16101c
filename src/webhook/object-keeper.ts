import type { FastifyBaseLogger } from "fastify";
import type { Clock } from "../clock.ts";
import { type ApiClient, isConflict, type KubeObject } from "../kube/client.ts";
import { ApiError } from "../kube/errors.ts";
import { APPLY_PATCH, MERGE_PATCH, type Resource } from "../kube/resources.ts";
import { watchObject } from "../kube/watch.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import { FailureLog } from "../observability/failure-log.ts";
import { isAsWanted } from "./drift.ts";

/** The field manager of what is kept in force. It is not that of the runs, which own the guards of single CRDs. */
export const KEEPER_FIELD_MANAGER = "ksvm-webhook-configuration";

/** An object that is kept: a name, and the fields that are wanted. */
export type WantedObject = KubeObject & { readonly metadata: { readonly name: string } };

/** Fields that one manager applies. */
export interface AppliedPart {
  readonly fieldManager: string;
  readonly fields: WantedObject;
}

/** What is told of the kept object whenever it was read. */
export interface ObjectObserver {
  /** The newest resourceVersion that was seen. */
  readonly resourceVersion: string | undefined;
  /**
   * @param live the object as it was read; `undefined` where there is none
   * @param sentAfter for a read from etcd, {@link resourceVersion} as it was when the request was sent. @default it is no such read
   */
  saw(live: KubeObject | undefined, sentAfter?: string): void;
}

/** What an {@link ObjectKeeper} needs. */
export interface ObjectKeeperOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Pick<FastifyBaseLogger, "info" | "warn">;
  readonly resource: Resource;
  readonly name: string;
  /** Called whenever the object is looked at; `undefined` as long as it is not known how it is to be. */
  readonly wanted: () => WantedObject | undefined;
  /**
   * Brings what is wanted up to date before it is written over something else, which may be newer. Where it rejects, nothing is
   * written for now. @default what is wanted never changes
   */
  readonly freshen?: ((signal: AbortSignal) => Promise<void>) | undefined;
  /** What is applied, one after the other, over what is there, until that is as it is wanted. @default all that is wanted, as {@link KEEPER_FIELD_MANAGER} */
  readonly parts?: (wanted: WantedObject, live: KubeObject | undefined) => readonly AppliedPart[];
  /** Whether the fields of an object that is as wanted have the managers that they are to have. @default they have */
  readonly isOwned?: (live: KubeObject, wanted: WantedObject) => boolean;
  /** The body of a merge patch that takes out of the live object what was added to it. */
  readonly replacement: (live: KubeObject, wanted: WantedObject) => object;
  /** Told of the object whenever it was read. @default none */
  readonly observer?: ObjectObserver | undefined;
  /** Milliseconds after which the object is looked at although nothing was heard of it. @default 300000 */
  readonly resyncMs?: number;
}

const DEFAULT_RESYNC_MS = 300_000;

/** A client that resets the object in a loop is answered this many times a second, not as fast as it can go. */
const MIN_INTERVAL_MS = 100;

/** Between two watches, in milliseconds, where one after the other misses changes. */
const WATCH_INTERVAL_MS = 1_000;

/** Milliseconds before what failed is tried again: first, and at most. */
const RETRY_MS = 250;
const MAX_RETRY_MS = 15_000;

/** Keeps one cluster-scoped object as it is wanted: a watch sees that it was changed or deleted, and it is restored. */
export class ObjectKeeper {
  readonly #options: ObjectKeeperOptions;
  #kicked = Promise.withResolvers<void>();

  constructor(options: ObjectKeeperOptions) {
    this.#options = options;
  }

  /** Has the object looked at soon. */
  kick(): void {
    this.#kicked.resolve();
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#watchAll(signal), this.#repairAll(signal)]);
  }

  async #repairAll(signal: AbortSignal): Promise<void> {
    const { clock, resyncMs = DEFAULT_RESYNC_MS } = this.#options;
    await this.#retrying(signal, async () => {
      // From here on a kick is for the next round: it may be about a change that this one does not see.
      this.#kicked = Promise.withResolvers();
      await this.#repair(signal);
      const enough = new AbortController();
      const resync = clock.sleep(resyncMs, AbortSignal.any([signal, enough.signal])).catch(() => undefined);
      await Promise.race([this.#kicked.promise, resync]);
      enough.abort();
      await clock.sleep(MIN_INTERVAL_MS, signal);
    });
  }

  async #watchAll(signal: AbortSignal): Promise<void> {
    const { client, clock, logger, resource, name } = this.#options;
    const pace = new LoopPace({ clock, minMs: WATCH_INTERVAL_MS });
    const failures = new FailureLog({
      clock,
      logger,
      facts: { resource: resource.resource, name },
      failing: "Cannot watch an object; trying again",
      working: "Watching an object again",
    });
    const onFailure = (error: unknown): void => failures.failed(error);
    const onOpen = (): void => failures.worked();
    await this.#retrying(signal, async () => {
      await pace.turn(signal);
      const { metadata } = await client.listMetadata(resource, { limit: 1, signal });
      // What happened before this resourceVersion is not seen by the watch.
      this.kick();
      const options = { name, resourceVersion: metadata.resourceVersion ?? "0", signal, clock, onOpen, onFailure };
      for await (const event of watchObject(client.transport, resource, options)) {
        if ("object" in event) {
          this.#options.observer?.saw(event.type === "DELETED" ? undefined : event.object);
        }
        const wanted = this.#options.wanted();
        if (event.type !== "BOOKMARK" && !("object" in event && wanted && this.#isRight(event, wanted))) {
          this.kick();
        }
      }
    });
  }

  #isRight(event: { readonly type: string; readonly object: KubeObject }, wanted: WantedObject): boolean {
    return event.type !== "DELETED" && this.#isKept(event.object, wanted);
  }

  #isKept(live: KubeObject | undefined, wanted: WantedObject): boolean {
    const { isOwned } = this.#options;
    return live !== undefined && isAsWanted(live, wanted) && (isOwned?.(live, wanted) ?? true);
  }

  /** A write of another client in between is looked at again: what it wrote may be as it is wanted. */
  async #repair(signal: AbortSignal): Promise<void> {
    try {
      await this.#repairOnce(signal);
    } catch (error) {
      if (!isConflict(error)) {
        throw error;
      }
      this.kick();
    }
  }

  async #repairOnce(signal: AbortSignal): Promise<void> {
    const { client, freshen, logger, resource, name, observer } = this.#options;
    const sentAfter = observer?.resourceVersion;
    const found = await client.find<KubeObject>(resource, { name }, { signal });
    observer?.saw(found, sentAfter);
    const known = this.#options.wanted();
    if (known === undefined || this.#isKept(found, known)) {
      return;
    }
    // In this order: what is wanted is then as new as what it is written over.
    await freshen?.(signal);
    const wanted = this.#options.wanted();
    if (wanted === undefined || this.#isKept(found, wanted)) {
      return;
    }
    const applied = await this.#apply(wanted, found, signal);
    observer?.saw(applied);
    logger.info({ resource: resource.resource, name, wasMissing: found === undefined }, "Restored object");
    if (!isAsWanted(applied, wanted)) {
      await this.#replace(applied, wanted, signal);
    }
  }

  /** @returns what the object then is; with additions of others it may still not be as it is wanted */
  async #apply(wanted: WantedObject, found: KubeObject | undefined, signal: AbortSignal): Promise<KubeObject> {
    const { parts = allAtOnce } = this.#options;
    let live = found;
    try {
      for (const part of parts(wanted, found)) {
        if (!this.#isKept(live, wanted)) {
          live = await this.#applyPart(part, live, signal);
        }
      }
    } catch (error) {
      // What is wanted and what another client added can be invalid together, such as a url beside a service.
      if (live === undefined || !isInvalid(error)) {
        throw error;
      }
    }
    return live ?? wanted;
  }

  #applyPart({ fieldManager, fields }: AppliedPart, live: KubeObject | undefined, signal: AbortSignal) {
    const { client, resource, name } = this.#options;
    const { resourceVersion, uid } = live?.metadata ?? {};
    const body = live === undefined ? fields : { ...fields, metadata: { ...fields.metadata, uid, resourceVersion } };
    const options = { fieldManager, force: true, signal };
    return client.patch<KubeObject>(resource, { name }, { type: APPLY_PATCH, body }, options);
  }

  /** Puts what is wanted in the place of what is there: server-side apply leaves alone what others added. */
  async #replace(live: KubeObject, wanted: WantedObject, signal: AbortSignal): Promise<void> {
    const { client, logger, resource, name, replacement } = this.#options;
    // What is carried over of the live object may have changed in between: then the resourceVersion refuses the write.
    const { resourceVersion } = live.metadata;
    const body = { metadata: { resourceVersion }, ...replacement(live, wanted) };
    await client.patch(resource, { name }, { type: MERGE_PATCH, body }, { fieldManager: KEEPER_FIELD_MANAGER, signal });
    logger.info({ resource: resource.resource, name }, "Removed what another client had added to object");
  }

  /** Does `work` again and again, also after it failed. */
  async #retrying(signal: AbortSignal, work: () => Promise<void>): Promise<void> {
    const { clock, logger, resource, name } = this.#options;
    let delayMs = RETRY_MS;
    while (!signal.aborted) {
      try {
        await work();
        delayMs = RETRY_MS;
      } catch (error) {
        if (signal.aborted) {
          return;
        }
        logger.warn({ err: error, resource: resource.resource, name, delayMs }, "Failed to keep an object");
        await clock.sleep(delayMs, signal).catch(() => undefined);
        delayMs = Math.min(2 * delayMs, MAX_RETRY_MS);
      }
    }
  }
}

function isInvalid(error: unknown): boolean {
  return error instanceof ApiError && error.status === 422;
}

function allAtOnce(fields: WantedObject): readonly AppliedPart[] {
  return [{ fieldManager: KEEPER_FIELD_MANAGER, fields }];
}
