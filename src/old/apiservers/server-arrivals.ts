import type { Lease } from "../../api/lease.ts";
import { isNewer } from "../../api/resource-version.ts";
import type { Clock } from "../../clock.ts";
import { KsvmError, messageOf } from "../../errors.ts";
import type { Access } from "../kube/access.ts";
import type { ApiClient } from "../kube/client.ts";
import { isForbidden } from "../kube/failure.ts";
import { LEASES } from "../kube/resources.ts";
import type { CallContext } from "../retry/call-context.ts";
import { untilAborted } from "../retry/deadline.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import { StartAgain } from "../retry/start-again.ts";
import type { Arrivals } from "./arrivals.ts";
import type { Departures } from "./departures.ts";
import { ArrivalLog, shownOf } from "./arrival-log.ts";
import { IDENTITY_NAMESPACE, listIdentityLeases } from "./control-plane-objects.ts";
import { identityEvents, isUpTo } from "./identity-events.ts";

/** What watching identity Leases takes. */
export const WATCH_IDENTITIES: readonly Access[] = ["list", "watch"].map((verb) => ({
  verb,
  resource: LEASES,
  namespace: IDENTITY_NAMESPACE,
}));

/** An identity Lease is renewed every 10 s, and each renewal tells how far the watch is: so this is enough, in milliseconds. */
const CATCH_UP_MS = 45_000;
/**
 * The API server sends a bookmark two seconds before it ends a watch, which tells how far that one is. In seconds.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go
 */
const SHORT_WATCH_SECONDS = 3;
const PACE = { minMs: 1_000, maxMs: 10_000 };
/** So many lists may fail before the work begins without one: it cannot end well then, and says why. */
const FIRST_TRIES = 3;

interface Watching {
  readonly end: AbortController;
  readonly begun: Promise<void>;
  readonly ended: Promise<void>;
}

/**
 * Watches the identity Leases. An API server that joins, writes and leaves between two looks of a run is seen by nothing else: what
 * it wrote, in an old version or with an old key, is beyond the watermark. One for a whole process, as what one run shows may
 * have to hold until the last one has ended.
 */
export class ServerArrivals implements Arrivals {
  readonly #clock: Clock;
  readonly #departures: Departures | undefined;
  readonly #onJoin: (() => void) | undefined;
  readonly #log = new ArrivalLog();
  /** Every change up to this resourceVersion is in the log; empty before the first list. */
  #seen = "";
  #changedAt = Number.NEGATIVE_INFINITY;
  /** What `count` was when late writes were last waited for. */
  #settledCount: number | undefined;
  #failure: unknown;
  #users = 0;
  #watching: Watching | undefined;
  /** Ends the long watch that is open, so that all are listed again. */
  #round = new AbortController();

  /** @param departures is told of each one that leaves. @param onJoin called for each one that joins. @default nobody is told */
  constructor(clock: Clock, departures?: Departures, onJoin?: () => void) {
    this.#clock = clock;
    [this.#departures, this.#onJoin] = [departures, onJoin];
  }

  get count(): number {
    return this.#log.count;
  }

  get newest(): string {
    return this.#log.newest;
  }

  get changedAt(): number {
    return this.#settledCount === this.count ? this.#changedAt : this.#clock.monotonic();
  }

  get seenTo(): string {
    return this.#seen;
  }

  settled(count: number): void {
    this.#settledCount = count;
  }

  listed(seenBefore: string, resourceVersion: string): void {
    if (this.#seen !== "" && isNewer(seenBefore, resourceVersion)) {
      // A watch from there tells of nothing until etcd has got there again.
      this.#seen = "";
      this.#round.abort();
    }
  }

  async during<T>(client: ApiClient, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    this.#users++;
    this.#watching ??= this.#start(client);
    try {
      const { begun } = this.#watching;
      await (signal === undefined ? begun : untilAborted(begun, signal).catch(() => undefined));
      return await work();
    } finally {
      await this.#leave();
    }
  }

  /** Has what is watched for one run be watched until the next one, too, until `work` is done. */
  async throughout<T>(work: () => Promise<T>): Promise<T> {
    this.#users++;
    try {
      return await work();
    } finally {
      await this.#leave();
    }
  }

  async #leave(): Promise<void> {
    this.#users--;
    const watching = this.#watching;
    if (this.#users === 0 && watching !== undefined) {
      this.#watching = undefined;
      this.#seen = "";
      watching.end.abort();
      await watching.ended;
    }
  }

  async catchUp({ client, signal }: Pick<CallContext, "client" | "signal">): Promise<void> {
    const within = AbortSignal.any([signal, this.#clock.timeout(CATCH_UP_MS)]);
    const pace = new LoopPace({ clock: this.#clock, ...PACE });
    let upTo: string | undefined;
    while (upTo === undefined || !isUpTo(this.#seen, upTo)) {
      try {
        await pace.turn(within);
        upTo ??= await this.#upToNow(client, within);
        await this.#readUpTo(client, upTo, within);
      } catch (error) {
        signal.throwIfAborted();
        if (within.aborted) {
          throw this.#lags();
        }
        // An API server that just started knows no roles yet, so also a refusal has to last.
        this.#failure = error;
      }
    }
  }

  async #upToNow(client: ApiClient, signal: AbortSignal): Promise<string> {
    const before = this.#seen;
    const { resourceVersion } = await listIdentityLeases(client, this.#clock, signal);
    this.listed(before, resourceVersion);
    return resourceVersion;
  }

  #lags(): KsvmError {
    const cause = this.#failure;
    const begin = "Cannot tell whether an API server joined and left during the run";
    if (isForbidden(cause)) {
      const missing =
        'this user may not list and watch leases.coordination.k8s.io in namespace "kube-system"; grant that';
      return new KsvmError("Forbidden", `${begin}: ${missing}`, { cause });
    }
    const why = cause === undefined ? "" : `; it fails: ${messageOf(cause)}`;
    return new StartAgain("WatchFailed", `${begin}: the watch of the identity Leases lags behind${why}`, { cause });
  }

  /** Opens one more watch for a moment: the next renewal, which would tell how far the other one is, may be 10 s away. */
  async #readUpTo(client: ApiClient, resourceVersion: string, signal: AbortSignal): Promise<void> {
    const isEnough = (): boolean => isUpTo(this.#seen, resourceVersion);
    if (this.#seen !== "" && !isEnough()) {
      await this.#read(client, { signal, timeoutSeconds: SHORT_WATCH_SECONDS }, isEnough);
    }
  }

  #start(client: ApiClient): Watching {
    const end = new AbortController();
    const { promise: begun, resolve } = Promise.withResolvers<void>();
    return { end, begun, ended: this.#watch(client, end.signal, resolve) };
  }

  async #watch(client: ApiClient, signal: AbortSignal, onBegun: () => void): Promise<void> {
    const pace = new LoopPace({ clock: this.#clock, ...PACE });
    for (let tries = 1; !signal.aborted; tries++) {
      try {
        await pace.turn(signal);
        if (this.#seen === "") {
          await this.#list(client, signal);
          pace.reset();
        }
        onBegun();
        this.#round = new AbortController();
        const round = AbortSignal.any([signal, this.#round.signal]);
        const end = await this.#read(client, { signal: round }, () => false);
        // Another watch may have begun, which knows where it is.
        signal.throwIfAborted();
        if (end === "gap") {
          this.#seen = "";
        }
      } catch (error) {
        // Nothing is missed: it goes on from where it was, and catchUp() waits until it got there.
        this.#failure = signal.aborted ? this.#failure : error;
      }
      if (tries >= FIRST_TRIES) {
        onBegun();
      }
    }
    onBegun();
  }

  async #list(client: ApiClient, signal: AbortSignal): Promise<void> {
    const { leases, resourceVersion } = await listIdentityLeases(client, this.#clock, signal);
    // The work that this watch was for has ended, and another watch may have begun.
    signal.throwIfAborted();
    this.#log.listed(leases);
    this.#seen = resourceVersion;
    this.#changedAt = this.#clock.monotonic();
  }

  /** Reads until that is enough, until the signal is aborted, or until changes may have been missed. */
  async #read(
    client: ApiClient,
    options: { readonly signal: AbortSignal; readonly timeoutSeconds?: number },
    isEnough: () => boolean,
  ): Promise<"gap" | undefined> {
    const health = {
      onOpen: () => (this.#failure = undefined),
      onFailure: (error: unknown) => (this.#failure = error),
    };
    for await (const event of identityEvents(client, this.#clock, { ...options, ...health, from: this.#seen })) {
      if (event.type === "GAP") {
        return "gap";
      }
      if (event.type === "BOOKMARK") {
        this.#advance(event.resourceVersion);
      } else {
        this.#told(event.type, event.object);
      }
      if (isEnough()) {
        return undefined;
      }
    }
    return undefined;
  }

  #told(type: "ADDED" | "MODIFIED" | "DELETED", lease: Lease): void {
    const before = this.#log.count;
    this.#log.told({ type, lease: shownOf(lease) });
    if (this.#log.count > before) {
      this.#changedAt = this.#clock.monotonic();
      if (type === "DELETED") {
        this.#departures?.left(lease.metadata, this.#changedAt);
      } else {
        this.#onJoin?.();
      }
    }
    if (type !== "DELETED") {
      this.#departures?.renewed(lease.metadata);
    }
    this.#advance(lease.metadata.resourceVersion);
  }

  /** Of two watches the one that is further counts: both have told of everything up to where they are. */
  #advance(resourceVersion: string): void {
    if (this.#seen !== "" && isNewer(resourceVersion, this.#seen)) {
      this.#seen = resourceVersion;
    }
  }
}
