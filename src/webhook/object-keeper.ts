import { isConflict, type KubeObject } from "../old/kube/client.ts";
import { watchObject } from "../old/kube/watch.ts";
import { FailureLog } from "../observability/failure-log.ts";
import { LoopPace } from "../old/retry/loop-pace.ts";
import { ObjectRepair, type ObjectRepairOptions } from "./object-repair.ts";

/** What an {@link ObjectKeeper} needs. */
export interface ObjectKeeperOptions extends ObjectRepairOptions {
  /** Milliseconds after which the object is looked at although nothing was heard of it. @default 300000 */
  readonly resyncMs?: number;
}

const DEFAULT_RESYNC_MS = 300_000;

/** Between two watches, in milliseconds, where one after the other misses changes. */
const WATCH_INTERVAL_MS = 1_000;

/** Between two looks, in milliseconds. */
const LOOK_INTERVAL_MS = 100;

/** Milliseconds before what failed is tried again: first, and at most. */
const RETRY_MS = 250;
const MAX_RETRY_MS = 15_000;

/**
 * Keeps one cluster-scoped object as it is wanted: a watch sees that it was changed or deleted, and it is restored.
 */
export class ObjectKeeper {
  readonly #options: ObjectKeeperOptions;
  readonly #repair: ObjectRepair;
  #kicked = Promise.withResolvers<void>();

  constructor(options: ObjectKeeperOptions) {
    this.#options = options;
    this.#repair = new ObjectRepair(options);
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
      const lookAgainMs = await this.#look(signal);
      const enough = new AbortController();
      const waitMs = Math.min(resyncMs, lookAgainMs);
      const resync = clock.sleep(waitMs, AbortSignal.any([signal, enough.signal])).catch(() => undefined);
      await Promise.race([this.#kicked.promise, resync]);
      enough.abort();
      await clock.sleep(LOOK_INTERVAL_MS, signal);
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
        if (event.type !== "BOOKMARK" && !("object" in event && this.#isRight(event))) {
          this.kick();
        }
      }
    });
  }

  #isRight({ type, object }: { readonly type: string; readonly object: KubeObject }): boolean {
    return type !== "DELETED" && this.#repair.isRight(object);
  }

  /**
   * A write of another client in between is looked at again: what it wrote may be as it is wanted.
   * @returns milliseconds until the object has to be looked at again, whatever is heard
   */
  async #look(signal: AbortSignal): Promise<number> {
    try {
      return await this.#repair.once(signal);
    } catch (error) {
      if (!isConflict(error)) {
        throw error;
      }
      return 0;
    }
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
