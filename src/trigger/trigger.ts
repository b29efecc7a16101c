import type { CrdMode } from "../api/migration.ts";
import type { Logger } from "pino";
import { CRDS, STORAGE_VERSIONS } from "../old/kube/resources.ts";
import type { MigrationFeed } from "../migrations/migration-feed.ts";
import { FailureLog } from "../observability/failure-log.ts";
import { CrdSights } from "./crd-sights.ts";
import { followNames } from "./follow.ts";
import { DEFAULT_INTERVAL_MS } from "./heartbeat-limit.ts";
import { MigrationIndex } from "./migration-index.ts";
import { Observer, type ObserverOptions } from "./observer.ts";
import { Reconciler } from "./reconciler.ts";
import type { TriggerReport } from "./report.ts";
import { ServerClock, type SharedClock } from "../old/kube/server-clock.ts";
import { resourceNameOfStorageVersion } from "../old/apiservers/storage-version-facts.ts";
import { NO_PULSE, type Pulse } from "../pulse.ts";
import { NO_WATCH, type TriggerWatch } from "./trigger-watch.ts";
import { WorkQueue } from "./work-queue.ts";

/** What a {@link Trigger} needs. */
export interface TriggerOptions extends ObserverOptions {
  readonly logger: Logger;
  readonly feed: Pick<MigrationFeed, "follow">;
  /** Milliseconds between two looks at the whole of discovery (`--trigger-interval`). @default 240000 (4 minutes) */
  readonly intervalMs?: number;
  /** What migrations do with a CRD. @default "manage" */
  readonly crdMode?: CrdMode;
  /** Told after each look at the whole of discovery which resources are gone. @default none */
  readonly onPoll?: (isGone: (name: string) => boolean) => void;
  /** Beats with every look, and while there is nothing to look at. @default none */
  readonly pulse?: Pulse;
  /** Watches it, for metrics. @default none */
  readonly watch?: TriggerWatch;
  /** What this process saw of CRDs, also while it led before. @default nothing */
  readonly sights?: CrdSights;
  /** What heartbeats are written and judged by. @default the API server's clock */
  readonly sharedClock?: SharedClock;
}

type Followed = "migrations" | "crds" | "storageVersions";

const POLL_RETRY_MS = 10_000;

/**
 * Creates StorageVersionMigrations where objects may be stored in another version than the current one, and keeps
 * StorageStates, as in the proposals "Storage migration triggering controller" and "StorageVersion API for HA API servers".
 * One runs at a time: who leads.
 */
export class Trigger {
  readonly #options: TriggerOptions;
  readonly #queue: WorkQueue;
  readonly #index: MigrationIndex;
  readonly #reconciler: Reconciler;
  /** On the monotonic clock. */
  #pollAt = Number.NEGATIVE_INFINITY;
  #hasPolled = false;
  #isIdle = false;
  readonly #failures: FailureLog;
  /** Resolved when a watch began for the first time. */
  readonly #following = {
    migrations: Promise.withResolvers<void>(),
    crds: Promise.withResolvers<void>(),
    storageVersions: Promise.withResolvers<void>(),
  };

  constructor(options: TriggerOptions) {
    this.#options = options;
    const { client, clock, logger, intervalMs = DEFAULT_INTERVAL_MS, crdMode = "manage" } = options;
    const { sights = new CrdSights() } = options;
    this.#failures = new FailureLog({
      clock,
      logger,
      failing: "Cannot read discovery; trying again",
      working: "Reading discovery again",
    });
    this.#queue = new WorkQueue(clock);
    this.#index = new MigrationIndex((name) => this.#reconciler.onMigration(name));
    this.#reconciler = new Reconciler({
      client,
      clock,
      logger,
      intervalMs,
      crdMode,
      onPoll: options.onPoll,
      watch: options.watch ?? NO_WATCH,
      sharedClock: options.sharedClock ?? new ServerClock(client, clock),
      observer: new Observer({ ...options, sawCrds: (crds) => sights.sawAll(crds) }),
      index: this.#index,
      queue: this.#queue,
      sights,
    });
  }

  /** What is left out, hidden or waiting, and why. */
  report(): TriggerReport {
    return this.#reconciler.report();
  }

  /** Whether discovery was read, everything in it was looked after, and nothing is due. */
  get isIdle(): boolean {
    return this.#isIdle;
  }

  /** Works until the signal is aborted, and ends promptly then. Failures are logged and tried again. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, watch = NO_WATCH } = this.#options;
    watch.polled(clock.now());
    const aborted = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => aborted.resolve(), { once: true });
    const work = async (): Promise<void> => {
      // What changes while discovery is read must not be missed, so the watches come first.
      const following = Object.values(this.#following).map(({ promise }) => promise);
      const { pulse = NO_PULSE } = this.#options;
      // What is not there to be watched, a restart does not bring.
      pulse.rest();
      await Promise.race([Promise.all(following), aborted.promise]);
      pulse.beat();
      await this.#work(signal);
    };
    await Promise.all([
      this.#followMigrations(signal),
      this.#followCrds(signal),
      this.#followStorageVersions(signal),
      work(),
    ]);
  }

  /** Reads the whole of discovery as soon as what is under way is done. */
  pollSoon(): void {
    this.#pollAt = Number.NEGATIVE_INFINITY;
    this.#queue.wake();
  }

  async #work(signal: AbortSignal): Promise<void> {
    // By turns, so that none of them starves the others: a CRD may change all the time, and a poll may find thousands.
    const turns = [this.#pollWhenDue, this.#lookAtNext, this.#nextOfPoll];
    const { pulse = NO_PULSE } = this.#options;
    while (!signal.aborted) {
      let isIdle = true;
      for (const turn of turns) {
        pulse.beat();
        const didWork = !signal.aborted && (await turn(signal));
        isIdle &&= !didWork;
      }
      if (isIdle && !signal.aborted) {
        await this.#rest(signal);
      }
    }
  }

  /** @returns whether there was anything to do, as the other turns */
  readonly #pollWhenDue = async (signal: AbortSignal): Promise<boolean> => {
    const isDue = this.#options.clock.monotonic() >= this.#pollAt;
    if (isDue) {
      await this.#poll(signal);
    }
    return isDue;
  };

  readonly #lookAtNext = async (signal: AbortSignal): Promise<boolean> => {
    // Only the whole of discovery shows which resources share their objects, so it comes first.
    const name = this.#hasPolled ? this.#queue.take() : undefined;
    if (name !== undefined) {
      await this.#reconciler.lookAt(name, signal);
    }
    return name !== undefined;
  };

  readonly #nextOfPoll = (signal: AbortSignal): Promise<boolean> => this.#reconciler.nextOfPoll(signal);

  async #rest(signal: AbortSignal): Promise<void> {
    const { clock, pulse = NO_PULSE } = this.#options;
    const untilPoll = this.#pollAt - clock.monotonic();
    pulse.pause(untilPoll);
    if (!this.#hasPolled) {
      await clock.sleep(untilPoll, signal).catch(() => undefined);
      return;
    }
    this.#isIdle = true;
    await this.#queue.wait(untilPoll, signal);
    this.#isIdle = false;
  }

  async #poll(signal: AbortSignal): Promise<void> {
    const { clock, intervalMs = DEFAULT_INTERVAL_MS, watch = NO_WATCH } = this.#options;
    try {
      this.#pollAt = clock.monotonic() + intervalMs;
      await this.#reconciler.poll(signal);
      this.#failures.worked();
      this.#hasPolled = true;
    } catch (error) {
      if (!signal.aborted) {
        this.#failures.failed(error);
        watch.retried("discovery");
        this.#pollAt = clock.monotonic() + Math.min(intervalMs, POLL_RETRY_MS);
      }
    }
  }

  #followMigrations(signal: AbortSignal): Promise<void> {
    return this.#options.feed.follow((change) => {
      this.#index.apply(change);
      if (change.type === "listed") {
        this.#onFollowing("migrations");
      }
    }, signal);
  }

  #followCrds(signal: AbortSignal): Promise<void> {
    return followNames({
      ...this.#options,
      resource: CRDS,
      what: "CustomResourceDefinitions",
      cost: "the trigger sees their changes with its next look at the whole of discovery",
      costOfList: "the trigger looks at nothing until this user may list them",
      signal,
      onStart: () => this.#onFollowing("crds"),
      onNothing: () => this.#following.crds.resolve(),
      onChange: (name) => this.#queue.add(name),
    });
  }

  #followStorageVersions(signal: AbortSignal): Promise<void> {
    return followNames({
      ...this.#options,
      resource: STORAGE_VERSIONS,
      what: "StorageVersions",
      cost: "the trigger reads the storageVersionHash in discovery, as where they are not served",
      signal,
      onStart: () => this.#onFollowing("storageVersions"),
      onNothing: () => this.#following.storageVersions.resolve(),
      onChange: (name) => this.#queue.add(resourceNameOfStorageVersion(name)),
    });
  }

  /** Whatever happened before a watch began was not seen. */
  #onFollowing(what: Followed): void {
    this.#following[what].resolve();
    if (this.#hasPolled) {
      this.pollSoon();
    }
  }
}
