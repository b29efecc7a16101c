import type { Lease } from "../api/lease.ts";
import type { Clock } from "../clock.ts";
import type { ApiClient } from "../kube/client.ts";
import { LEASES } from "../kube/resources.ts";
import { type WatchEvent, watchObject } from "../kube/watch.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import type { Retrier } from "../retry/retrier.ts";
import { IDENTITY_LABEL, IDENTITY_NAMESPACE, identityRevision } from "./control-plane-objects.ts";
import { type IdentityChange, IdentityHistory } from "./identity-history.ts";

/** What an {@link IdentityWatch} takes of a run. */
export interface IdentityWatchContext {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  readonly signal: AbortSignal;
}

type LeaseEvent = Extract<WatchEvent<Lease>, { readonly object: Lease }>;

/** An API server renews its Lease every 10 s, so something comes from each that lives within this time, in milliseconds. */
const CATCH_UP_MS = 30_000;
const CATCH_UP_POLL_MS = 100;
/** Between two watches, where one after the other ends in a gap. */
const PACE = { minMs: 1_000, maxMs: 30_000 };

/** Watches the identity Leases: which API servers joined and left, also those that did both. */
export class IdentityWatch {
  readonly #context: IdentityWatchContext;
  readonly #history: IdentityHistory;
  readonly #abort = new AbortController();
  #isOver = false;
  #done: Promise<void> = Promise.resolve();

  private constructor(context: IdentityWatchContext, from: string) {
    this.#context = context;
    this.#history = new IdentityHistory(from);
  }

  /**
   * Begins to watch.
   * @param from the resourceVersion to tell of changes from, where an API server still knows that. @default now
   * @returns `undefined` where this user may not list them
   * @throws as `Retrier.run()`.
   */
  static async begin(context: IdentityWatchContext, from?: string): Promise<IdentityWatch | undefined> {
    const now = await currentOf(context);
    if (now === undefined) {
      return undefined;
    }
    const watch = new IdentityWatch(context, from ?? now);
    // What cannot be watched any more shows nothing, and that is how it is judged.
    watch.#done = watch.#follow().catch(() => undefined);
    return watch;
  }

  /** The resourceVersion up to which every change was seen. */
  get seenTo(): string {
    return this.#history.to;
  }

  /** Ends it, and waits for that. */
  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#done;
  }

  /** Whether an API server was seen to join or leave after this resourceVersion. */
  hasChangedSince(from: string): boolean {
    return this.#history.hasChangedSince(from);
  }

  /** Whether it is known that none joined or left after this resourceVersion, as far as the watch is. */
  isQuietSince(from: string): boolean {
    return this.#history.isQuiet(from, this.#history.to);
  }

  /**
   * The same up to now: waits until the watch is that far.
   * @throws as `Retrier.run()`.
   */
  async wasQuietUntilNow(from: string): Promise<boolean> {
    const { clock, signal } = this.#context;
    const now = (await currentOf(this.#context)) ?? "";
    const deadline = clock.monotonic() + CATCH_UP_MS;
    const mayBe = (): boolean => this.#history.reachesBackTo(from) && !this.#history.hasChangedSince(from);
    while (!this.#history.isQuiet(from, now) && mayBe() && !this.#isOver && clock.monotonic() < deadline) {
      await clock.sleep(CATCH_UP_POLL_MS, signal);
    }
    return this.#history.isQuiet(from, now);
  }

  /**
   * The resourceVersion of the Leases as they are now.
   * @throws as `Retrier.run()`.
   */
  async now(): Promise<string> {
    return (await currentOf(this.#context)) ?? "";
  }

  async #follow(): Promise<void> {
    const { client, clock } = this.#context;
    const signal = AbortSignal.any([this.#abort.signal, this.#context.signal]);
    const pace = new LoopPace({ clock, ...PACE });
    try {
      while (!signal.aborted) {
        await pace.turn(signal);
        const events = watchObject<Lease>(client.transport, LEASES, {
          namespace: IDENTITY_NAMESPACE,
          clock,
          signal,
          relistMs: Number.POSITIVE_INFINITY,
          resourceVersion: this.#history.to,
        });
        for await (const event of events) {
          await this.#take(event, signal);
        }
      }
    } finally {
      this.#isOver = true;
    }
  }

  async #take(event: WatchEvent<Lease>, signal: AbortSignal): Promise<void> {
    if (event.type === "GAP") {
      this.#history.missed((await currentOf({ ...this.#context, signal })) ?? "");
    } else {
      this.#history.add(event.type === "BOOKMARK" ? event : changeOf(event));
    }
  }
}

/** Others may keep Leases there as well: that they come and go shows nothing of API servers. */
function changeOf({ object, type }: LeaseEvent): IdentityChange {
  const { labels, resourceVersion } = object.metadata;
  return { type: labels?.[IDENTITY_LABEL.name] === undefined ? "BOOKMARK" : type, resourceVersion };
}

/** `undefined` where this user may not list them. */
async function currentOf({ client, retrier, signal }: IdentityWatchContext): Promise<string | undefined> {
  return await retrier.run(() => identityRevision(client, signal), signal);
}
