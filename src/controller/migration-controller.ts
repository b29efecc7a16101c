import type { Logger } from "pino";
import { isFinal, type MigrationState } from "../api/migration.ts";
import type { Clock } from "../clock.ts";
import type { ApiClient } from "../old/kube/client.ts";
import type { LeaderElector } from "../old/lease/leader-election.ts";
import type { MigrationChange, MigrationFeed } from "../migrations/migration-feed.ts";
import { Retrier } from "../old/retry/retrier.ts";
import { Loop } from "../observability/loops.ts";
import { deleteExpired } from "./delete-expired.ts";
import { type IdleStatus, idleStatusesOf } from "./idle-phase.ts";
import { IdleWriter } from "./idle-writer.ts";
import { KnownMigrations } from "./known-migrations.ts";
import { MigrationJobs, type RunObserver } from "./migration-jobs.ts";
import type { QueuedMigration } from "./migration-queue.ts";
import { keepSweeping } from "./orphan-sweep.ts";
import type { ReplicaLoops } from "./replica-loops.ts";
import type { OpenRun } from "./run-factory.ts";
import { type Slot, Slots } from "./slots.ts";

/** What a {@link MigrationController} needs. */
export interface MigrationControllerOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly feed: Pick<MigrationFeed, "follow">;
  readonly openRun: OpenRun;
  /** Whether runs freeze CRDs: those that re-encrypt never do. @default true */
  readonly freezes?: boolean;
  /** Unique to this replica: host name and a random part. */
  readonly identity: string;
  /** The Lease of the leader, see {@link LeaderElector}. */
  readonly leadership: Pick<LeaderElector, "assertLeading" | "key" | "replaced">;
  /** How many resources are migrated at once. @default 1 */
  readonly maxConcurrent?: number;
  /** How many finished migrations of each resource stay; 0 keeps all of them. @default 0 */
  readonly finishedLimit?: number;
  /** Where its loops are watched. @default nowhere */
  readonly loops?: Pick<ReplicaLoops, "add">;
  /** Watches the run on a resource (`plural.group`). @default none */
  readonly observe?: (resource: string) => RunObserver;
  /** Told how many migrations there are in each state, and how many wait for what, whenever that may have changed. */
  readonly onStates?: (states: Readonly<Record<MigrationState, number>>, waiting: ReadonlyMap<string, number>) => void;
}

/**
 * Carries out StorageVersionMigrations. One replica at a time does, the leader: {@link run} is what it leads with. The
 * state is in the cluster alone, so that another replica goes on where this one stopped.
 */
export class MigrationController {
  readonly #options: MigrationControllerOptions;
  readonly #retrier: Retrier;
  readonly #known = new KnownMigrations();
  readonly #jobs: MigrationJobs;
  readonly #idle: IdleWriter;
  #slots = new Slots(0, { start: () => false, isThere: () => false });

  constructor(options: MigrationControllerOptions) {
    this.#options = options;
    const { clock } = options;
    // An API server that is down is waited for, however long that takes.
    const forever = { maxIdleMs: Number.POSITIVE_INFINITY, webhookWaitMs: Number.POSITIVE_INFINITY };
    this.#retrier = new Retrier({ clock, random: Math.random, ...forever });
    this.#jobs = new MigrationJobs({
      ...options,
      retrier: this.#retrier,
      isSlotWanted: () => this.#slots.isWanted,
      onOver: (uid, state) => this.#known.end(uid, state),
      onEnd: () => this.#changed(),
    });
    this.#idle = new IdleWriter({
      ...options,
      assertLeading: () => options.leadership.assertLeading(),
      due: () => this.#idleStatuses(),
      onWritten: (migration) => this.#known.take(migration),
    });
  }

  /**
   * Migrates until the signal is aborted: then every run ends cleanly, its freeze lifted, and the next leader resumes it.
   * To be called once.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, feed, maxConcurrent = 1, onStates } = this.#options;
    this.#slots = new Slots(maxConcurrent, {
      start: (slot) => this.#startNext(slot, signal),
      isThere: () => this.#next() !== undefined,
    });
    const loops = this.#options.loops ?? { add: () => new Loop(clock, Number.POSITIVE_INFINITY, () => undefined) };
    const others = [
      loops.add("queue").keep((loop) => this.#idle.run(signal, loop), signal),
      loops.add("expiry").keep((loop) => this.#deleteExpired(signal, loop.clock), signal),
    ];
    let sweeping: Promise<void> | undefined;
    const onChange = (change: MigrationChange): void => {
      if (change.type === "listing") {
        return;
      }
      this.#known.apply(change).forEach((gone) => this.#jobs.forget(gone));
      onStates?.(this.#known.states(), this.#known.queue.waiting);
      this.#changed();
      if (change.type === "listed") {
        // Not before all migrations are known: what they will take over is no orphan.
        sweeping ??= loops.add("sweep").keep((sweep) => this.#sweep(signal, sweep), signal);
      }
    };
    await loops.add("migration-watch").keep((loop) => {
      // It waits for the feed, which is a loop of its own.
      loop.rest();
      return feed.follow(onChange, signal);
    }, signal);
    await this.#jobs.ended();
    await Promise.all([sweeping, ...others]);
  }

  /** Stops what is suspended, begins what may begin, and has the rest say why it does neither. */
  #changed(): void {
    for (const uid of this.#jobs.atWork.keys()) {
      const { isSuspended, state = "Pending" } = this.#known.queue.get(uid) ?? {};
      if (isSuspended === true) {
        this.#jobs.suspend(uid);
      } else if (isFinal(state)) {
        this.#jobs.endRest(uid);
      }
    }
    this.#slots.dispatch();
    this.#idle.wake();
  }

  #idleStatuses(): readonly IdleStatus[] {
    const now = new Date(this.#options.clock.now()).toISOString().replace(/\.\d+Z$/, "Z");
    return idleStatusesOf(this.#known.queue, { atWork: new Set(this.#jobs.atWork.keys()), now });
  }

  #next(): QueuedMigration | undefined {
    return this.#known.queue.next(new Set([...this.#jobs.atWork.values()].map(({ resource }) => resource)));
  }

  #startNext(slot: Slot, signal: AbortSignal): boolean {
    const migration = signal.aborted ? undefined : this.#next();
    if (migration !== undefined) {
      this.#jobs.start(migration, slot, signal);
    }
    return migration !== undefined;
  }

  #deleteExpired(signal: AbortSignal, clock: Clock): Promise<void> {
    const { finishedLimit = 0, leadership } = this.#options;
    const idle = (): readonly QueuedMigration[] =>
      [...this.#known.queue].filter(({ uid }) => !this.#jobs.atWork.has(uid));
    const assertLeading = (): void => leadership.assertLeading();
    return deleteExpired({ ...this.#options, assertLeading, clock, finishedLimit, idle }, signal);
  }

  #sweep(signal: AbortSignal, loop: Loop): Promise<void> {
    const { client, identity, leadership, logger } = this.#options;
    // Runs hold their Leases where the leader holds its own.
    const [namespace = ""] = leadership.key.split("/");
    return keepSweeping({
      client,
      clock: loop.clock,
      logger,
      retrier: this.#retrier.with({ onRetry: (_, delayMs) => loop.pause(delayMs) }),
      identity: `${identity}/sweep`,
      namespace,
      isBusy: (crdName) => this.#isBusy(crdName),
      isDead: (holder) => this.#jobs.isDead(holder),
      assertLeading: () => leadership.assertLeading(),
      signal,
    });
  }

  /** Whether a freeze is one that a run of ours has, or soon goes on with. A run that waits for its turn has none. */
  #isBusy(crdName: string): boolean {
    const { freezes = true } = this.#options;
    if (!freezes) {
      return false;
    }
    const atWork = [...this.#jobs.atWork.values()].filter(({ resource, slot }) => resource === crdName && slot.isHeld);
    if (atWork.some(({ isReencryption }) => !isReencryption)) {
      return true;
    }
    const isBrokenOff = [...this.#known.queue.dueOf(crdName)].some(({ uid }) => this.#jobs.isBrokenOff(uid));
    return !isBrokenOff && this.#known.queue.takesFreezeOver(crdName);
  }
}
