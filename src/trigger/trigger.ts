import type { Logger } from "pino";
import { CRDS, STORAGE_VERSIONS } from "../kube/resources.ts";
import { FailureLog } from "../observability/failure-log.ts";
import { followNames, keepFollowing } from "./follow.ts";
import { DEFAULT_INTERVAL_MS } from "./heartbeat-limit.ts";
import { MigrationIndex } from "./migration-index.ts";
import { Observer, type ObserverOptions } from "./observer.ts";
import { Reconciler } from "./reconciler.ts";
import type { TriggerReport } from "./report.ts";
import { ServerClock, type SharedClock } from "./server-clock.ts";
import { resourceNameOfStorageVersion } from "../migrator/storage-version-facts.ts";
import { NO_PULSE, type Pulse } from "../pulse.ts";
import { WorkQueue } from "./work-queue.ts";

/** What a {@link Trigger} needs. */
export interface TriggerOptions extends ObserverOptions {
  readonly logger: Logger;
  /** Milliseconds between two looks at the whole of discovery (`--trigger-interval`). @default 240000 (4 minutes) */
  readonly intervalMs?: number;
  /** Whether migrations freeze CRDs and prune storedVersions. @default true */
  readonly managesStoredVersions?: boolean;
  /** Beats with every look, and while there is nothing to look at. @default nobody watches it */
  readonly pulse?: Pulse;
  /** What heartbeats are written and judged by. @default the API server's clock */
  readonly sharedClock?: SharedClock;
}

type Followed = "migrations" | "crds" | "storageVersions";

const POLL_RETRY_MS = 10_000;
const WATCH_RETRY_MS = 1_000;

/**
 * Creates StorageVersionMigrations where objects may be stored in another version than the current one, and keeps
 * StorageStates (seeds 001 and 003). One runs at a time: who leads.
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
  readonly #failures: Readonly<Record<Followed | "discovery", FailureLog>>;
  /** Resolved when a watch began for the first time. */
  readonly #following = {
    migrations: Promise.withResolvers<void>(),
    crds: Promise.withResolvers<void>(),
    storageVersions: Promise.withResolvers<void>(),
  };

  constructor(options: TriggerOptions) {
    this.#options = options;
    const { client, clock, logger, intervalMs = DEFAULT_INTERVAL_MS, managesStoredVersions = true } = options;
    const follow = (what: string): FailureLog =>
      new FailureLog({
        clock,
        logger,
        failing: `cannot follow ${what}; trying again`,
        working: `following ${what} again`,
      });
    this.#failures = {
      migrations: follow("StorageVersionMigrations"),
      crds: follow("CustomResourceDefinitions"),
      storageVersions: follow("StorageVersions"),
      discovery: new FailureLog({
        clock,
        logger,
        failing: "cannot read discovery; trying again",
        working: "reading discovery again",
      }),
    };
    this.#queue = new WorkQueue(clock);
    this.#index = new MigrationIndex({ client, clock, onChange: (name) => this.#queue.add(name) });
    this.#reconciler = new Reconciler({
      client,
      clock,
      logger,
      intervalMs,
      managesStoredVersions,
      sharedClock: options.sharedClock ?? new ServerClock(client, clock),
      observer: new Observer(options),
      index: this.#index,
      queue: this.#queue,
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
    const aborted = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => aborted.resolve(), { once: true });
    const work = async (): Promise<void> => {
      // What changes while discovery is read must not be missed, so the watches come first.
      const following = Object.values(this.#following).map(({ promise }) => promise);
      await Promise.race([Promise.all(following), aborted.promise]);
      await this.#work(signal);
    };
    await Promise.all([
      this.#follow("migrations", () => this.#followMigrations(signal), signal),
      this.#follow("crds", () => this.#followCrds(signal), signal),
      this.#follow("storageVersions", () => this.#followStorageVersions(signal), signal),
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
    const { clock, intervalMs = DEFAULT_INTERVAL_MS } = this.#options;
    try {
      this.#pollAt = clock.monotonic() + intervalMs;
      await this.#reconciler.poll(signal);
      this.#failures.discovery.worked();
      this.#hasPolled = true;
    } catch (error) {
      if (!signal.aborted) {
        this.#failures.discovery.failed(error);
        this.#pollAt = clock.monotonic() + Math.min(intervalMs, POLL_RETRY_MS);
      }
    }
  }

  #followMigrations(signal: AbortSignal): Promise<void> {
    return this.#index.follow(() => this.#onFollowing("migrations"), signal);
  }

  #followCrds(signal: AbortSignal): Promise<void> {
    return followNames({
      ...this.#options,
      resource: CRDS,
      signal,
      onStart: () => this.#onFollowing("crds"),
      onChange: (name) => this.#queue.add(name),
    });
  }

  async #followStorageVersions(signal: AbortSignal): Promise<void> {
    await followNames({
      ...this.#options,
      resource: STORAGE_VERSIONS,
      signal,
      onStart: () => this.#onFollowing("storageVersions"),
      onChange: (name) => this.#queue.add(resourceNameOfStorageVersion(name)),
    });
    // Not served: there is nothing to follow.
    this.#following.storageVersions.resolve();
  }

  /** Whatever happened before a watch began was not seen. */
  #onFollowing(what: Followed): void {
    this.#failures[what].worked();
    this.#following[what].resolve();
    if (this.#hasPolled) {
      this.pollSoon();
    }
  }

  #follow(what: Followed, follow: () => Promise<void>, signal: AbortSignal): Promise<void> {
    const { clock, intervalMs = DEFAULT_INTERVAL_MS, pulse = NO_PULSE } = this.#options;
    return keepFollowing(follow, {
      clock,
      signal,
      // The StorageVersion API is rarely served; where it appears, the next poll sees it first.
      pauseMs: what === "storageVersions" ? Math.min(intervalMs, POLL_RETRY_MS) : WATCH_RETRY_MS,
      onError: (error) => {
        this.#failures[what].failed(error);
        if (!this.#hasPolled) {
          // The first look waits for the watches on purpose: what is not there to be watched, a restart does not bring.
          pulse.beat();
        }
      },
    });
  }
}
