import type { Logger } from "pino";
import type { FreezeOwner } from "../api/owner.ts";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import type { LeaderElector } from "../kube/leader-election.ts";
import type { EventSink } from "../migrator/events.ts";
import { Retrier } from "../migrator/retrier.ts";
import { EventRecorder } from "./event-recorder.ts";
import { type MigrationChange, migrationChanges } from "./migration-feed.ts";
import { isOver, nextOf, type QueuedMigration, queuedOf } from "./migration-queue.ts";
import { MigrationDeleted, MigrationRecord } from "./migration-record.ts";
import { MigrationRun } from "./migration-run.ts";
import type { MigrationState } from "./migration-status.ts";
import { sweepOrphans } from "./orphan-sweep.ts";
import type { OpenRun } from "./run-factory.ts";
import { Slots } from "./slots.ts";

/** What watches one run, for metrics. */
export interface RunObserver {
  readonly event: EventSink;
  /** Called when the run has ended. */
  readonly end: () => void;
}

/** What a {@link MigrationController} needs. */
export interface MigrationControllerOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly openRun: OpenRun;
  /** Unique to this replica: host name and a random part. */
  readonly identity: string;
  /** The Lease of the leader, see {@link LeaderElector}. */
  readonly leadership: Pick<LeaderElector, "assertLeading" | "key" | "replaced">;
  /** How many resources are migrated at once. @default 1 */
  readonly maxConcurrent?: number;
  /** Watches the run on a resource (`plural.group`). @default nobody does */
  readonly observe?: (resource: string) => RunObserver;
  /** Told how many migrations there are in each state, whenever that may have changed. */
  readonly onStates?: (states: Readonly<Record<MigrationState, number>>) => void;
}

interface Job {
  readonly resource: string;
  readonly abort: AbortController;
  readonly done: Promise<void>;
}

/** How often freezes of dead runs are looked for, in milliseconds. */
const SWEEP_EVERY_MS = 60_000;
/** After a run that was broken off, in milliseconds. */
const RETRY_AFTER_MS = 5_000;

const NOBODY: RunObserver = { event: () => undefined, end: () => undefined };

/**
 * Carries out StorageVersionMigrations. One replica at a time does, the leader: {@link run} is what it leads with. The
 * state is in the cluster alone, so that another replica goes on where this one stopped.
 */
export class MigrationController {
  readonly #options: MigrationControllerOptions;
  readonly #retrier: Retrier;
  readonly #recorder: EventRecorder;
  readonly #known = new Map<string, QueuedMigration>();
  readonly #jobs = new Map<string, Job>();
  #slots = new Slots(0, () => undefined);

  constructor(options: MigrationControllerOptions) {
    this.#options = options;
    const { clock } = options;
    // An API server that is down is waited for, however long that takes.
    const forever = { maxIdleMs: Number.POSITIVE_INFINITY, webhookWaitMs: Number.POSITIVE_INFINITY };
    this.#retrier = new Retrier({ clock, random: Math.random, ...forever });
    this.#recorder = new EventRecorder(options);
  }

  /**
   * Migrates until the signal is aborted: then every run ends cleanly, its freeze lifted, and the next leader resumes it.
   * A migration that fails keeps no other from its turn.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { client, clock, logger, maxConcurrent = 1 } = this.#options;
    this.#known.clear();
    this.#slots = new Slots(maxConcurrent, () => this.#startNext(signal));
    let sweeping: Promise<void> | undefined;
    const onError = (error: unknown): void =>
      logger.warn({ reason: messageOf(error) }, "cannot watch StorageVersionMigrations; trying again");
    for await (const change of migrationChanges({ client, clock, signal, onError })) {
      this.#apply(change);
      this.#startNext(signal);
      // Not before all migrations are known: what they will take over is no orphan.
      sweeping ??= this.#sweepForEver(signal);
    }
    await Promise.all([...this.#jobs.values()].map(({ done }) => done));
    await sweeping;
    await this.#recorder.close();
  }

  #apply(change: MigrationChange): void {
    switch (change.type) {
      case "listed": {
        const listed = new Set(change.migrations.map(({ metadata }) => metadata.uid));
        for (const uid of this.#known.keys()) {
          if (!listed.has(uid)) {
            this.#forget(uid);
          }
        }
        for (const migration of change.migrations) {
          this.#known.set(migration.metadata.uid, queuedOf(migration));
        }
        break;
      }
      case "changed":
        this.#known.set(change.migration.metadata.uid, queuedOf(change.migration));
        break;
      case "deleted":
        this.#forget(change.uid);
    }
    this.#tellStates();
  }

  #forget(uid: string): void {
    const name = this.#known.get(uid)?.name ?? uid;
    this.#known.delete(uid);
    this.#jobs.get(uid)?.abort.abort(new MigrationDeleted(name));
  }

  #startNext(signal: AbortSignal): void {
    if (signal.aborted) {
      return;
    }
    const busy = new Set([...this.#jobs.values()].map(({ resource }) => resource));
    for (const migration of nextOf(this.#known.values(), busy, this.#slots.free)) {
      this.#slots.take();
      this.#start(migration, signal);
    }
  }

  #start(migration: QueuedMigration, signal: AbortSignal): void {
    const abort = new AbortController();
    const done = this.#work(migration, AbortSignal.any([signal, abort.signal])).finally(() => {
      this.#jobs.delete(migration.uid);
      this.#slots.give();
    });
    this.#jobs.set(migration.uid, { resource: migration.resource, abort, done });
  }

  /** Never throws: what goes wrong with one migration is in its status, or its next attempt sees it again. */
  async #work(migration: QueuedMigration, signal: AbortSignal): Promise<void> {
    const { clock, logger, observe } = this.#options;
    const { name, resource, uid } = migration;
    const log = logger.child({ migration: name, resource });
    const observer = observe?.(resource) ?? NOBODY;
    try {
      const record = await MigrationRecord.claim({ ...this.#recordParts(), signal }, migration);
      if (record !== undefined) {
        log.info("began a migration");
        await this.#runOf(record, { log, observer, signal }).run();
      }
      // The watch may be late to say that it is over.
      if (this.#known.has(uid)) {
        this.#known.set(uid, { ...migration, state: "Succeeded" });
      }
    } catch (error) {
      if (!signal.aborted && !(error instanceof MigrationDeleted)) {
        log.error({ err: error }, "a migration was broken off; trying again");
        await clock.sleep(RETRY_AFTER_MS, signal).catch(() => undefined);
      }
    } finally {
      observer.end();
    }
  }

  #recordParts() {
    const { client, clock, identity, leadership } = this.#options;
    const since = new Date(clock.now()).toISOString();
    const owner: FreezeOwner = { lease: leadership.key, identity, since };
    return { client, clock, owner, retrier: this.#retrier, assertLeading: () => leadership.assertLeading() };
  }

  #runOf(
    record: MigrationRecord,
    { log, observer, signal }: { log: Logger; observer: RunObserver; signal: AbortSignal },
  ): MigrationRun {
    return new MigrationRun({
      ...this.#options,
      openRun: (parts) => this.#options.openRun({ ...parts, isDead: (holder) => this.#isDead(holder) }),
      logger: log,
      recorder: this.#recorder,
      retrier: this.#retrier,
      record,
      signal,
      park: (wait) => this.#slots.parked(wait),
      onWaiting: (isWaiting) => (isWaiting ? this.#slots.give() : this.#slots.take()),
      onEvent: observer.event,
    });
  }

  async #sweepForEver(signal: AbortSignal): Promise<void> {
    const { client, clock, identity, logger } = this.#options;
    const isBusy = (crdName: string): boolean =>
      [...this.#known.values()].some((migration) => migration.resource === crdName && !isOver(migration)) ||
      [...this.#jobs.values()].some(({ resource }) => resource === crdName);
    const { leadership } = this.#options;
    const parts = { client, clock, logger, retrier: this.#retrier, signal, told: new Set<string>() };
    const isDead = (holder: string): boolean => this.#isDead(holder);
    const assertLeading = (): void => leadership.assertLeading();
    // Runs hold their Leases where the leader holds its own.
    const [namespace = ""] = leadership.key.split("/");
    while (!signal.aborted) {
      const sweep = sweepOrphans({ ...parts, identity: `${identity}/sweep`, namespace, isBusy, isDead, assertLeading });
      await sweep.catch((error: unknown) => {
        if (!signal.aborted) {
          logger.warn({ reason: messageOf(error) }, "cannot look for freezes of dead runs; trying again later");
        }
      });
      await clock.sleep(SWEEP_EVERY_MS, signal).catch(() => undefined);
    }
  }

  /**
   * Whether a run is one of the leader that this one replaced. Its Leases need not be watched: for as long as they last,
   * the leader's own was watched before it was taken over.
   */
  #isDead(holder: string): boolean {
    const { replaced } = this.#options.leadership;
    return replaced !== undefined && holder.startsWith(`${replaced}/`);
  }

  #tellStates(): void {
    const states = { Pending: 0, Running: 0, Waiting: 0, Succeeded: 0, Failed: 0 };
    for (const { state } of this.#known.values()) {
      states[state]++;
    }
    this.#options.onStates?.(states);
  }
}
