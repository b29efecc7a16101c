import type { Logger } from "pino";
import { isFinal, type MigrationState, type StorageVersionMigration } from "../api/migration.ts";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { FreezeOwner } from "../freeze/freeze.ts";
import type { Client } from "../kube/client.ts";
import type { MigrationFeed } from "../migrations/migration-feed.ts";
import type { RunSettings } from "../migrator/migrate.ts";
import { Waker } from "../waker.ts";
import { EventRecorder } from "./event-recorder.ts";
import { deleteExpired } from "./expiry.ts";
import { liftLeftFreezes } from "./freezes.ts";
import { idleStatuses, keepIdleStatuses } from "./idle-status.ts";
import type { LeaderElector } from "./leader-election.ts";
import { countStates, MigrationQueue, type QueuedMigration } from "./migration-queue.ts";
import { MigrationRecord, MigrationStopped, type RecordOptions } from "./migration-record.ts";
import { type RunContext, runMigration } from "./migration-run.ts";
import type { MigrationObserver } from "./observe.ts";
import { type ReplicaLoops, together } from "./replica.ts";

/** What a {@link MigrationController} needs. */
export interface MigrationControllerOptions {
  readonly client: Client;
  readonly logger: Logger;
  readonly feed: Pick<MigrationFeed, "follow">;
  readonly runs: RunSettings;
  /** Unique to this replica: host name and a random part. */
  readonly identity: string;
  readonly leadership: Pick<LeaderElector, "assertLeading" | "key">;
  /** How many resources are migrated at once. */
  readonly maxConcurrent: number;
  /** How many finished migrations of each resource stay; 0 keeps all of them. */
  readonly finishedLimit: number;
  /** Where its loops are watched. */
  readonly loops: Pick<ReplicaLoops, "add">;
  /** Watches the run on a resource (`plural.group`). */
  readonly observe: (resource: string) => MigrationObserver;
  /** Told how many migrations there are in each state, and how many wait for what, whenever that may have changed. */
  readonly onStates: (states: Readonly<Record<MigrationState, number>>, waiting: ReadonlyMap<string, number>) => void;
  /** Told now and then which CRDs are frozen. */
  readonly onSweep: (isFrozen: (crdName: string) => boolean) => void;
}

/** A migration that is being carried out. */
interface Worker {
  readonly name: string;
  readonly resource: string;
  readonly abort: AbortController;
  readonly done: Promise<void>;
}

/** A migration that begins again after a while. */
interface Pause {
  /** How many runs in a row did not bring it to its end. */
  readonly runs: number;
  /** Why it waits; what broke it off. */
  readonly reason: string;
  /** On the monotonic clock. */
  readonly until: number;
}

/** Milliseconds until a migration is tried again: longer each time, as each try takes the place of another one. */
const FIRST_PAUSE_MS = 5_000;
const LONGEST_PAUSE_MS = 60_000;
/** So much of that, as a part, is left to chance: many migrations may wait for the same thing. */
const JITTER = 0.25;
/** Where nothing changes, in milliseconds. */
const LOOK_EVERY_MS = 60_000;
/** A list of thousands comes as so many changes. */
const GATHER_MS = 50;

/**
 * Carries out StorageVersionMigrations. One replica at a time does, the leader: {@link run} is what it leads with. The
 * state is in the cluster alone, so that another replica goes on where this one stopped.
 */
export class MigrationController {
  readonly #options: MigrationControllerOptions;
  readonly #queue = new MigrationQueue();
  /** By uid. */
  readonly #workers = new Map<string, Worker>();
  /** By uid. */
  readonly #pauses = new Map<string, Pause>();
  readonly #changed = new Waker();
  readonly #shown = new Waker();
  readonly #recorder: EventRecorder;
  readonly #record: RecordOptions;
  readonly #context: RunContext;

  constructor(options: MigrationControllerOptions) {
    const { client, identity, leadership, logger, runs } = options;
    this.#options = options;
    this.#recorder = new EventRecorder(client, logger);
    const since = new Date(client.clock.now()).toISOString();
    const owner: FreezeOwner = { lease: leadership.key, identity, since };
    this.#record = { client, owner, assertLeading: () => leadership.assertLeading() };
    this.#context = { client, runs, recorder: this.#recorder, settled: new Set() };
  }

  /**
   * Migrates until the signal is aborted. Then every run ends cleanly, its freeze lifted, and the next leader resumes it.
   * To be called once.
   */
  async run(leading: AbortSignal): Promise<void> {
    const { client, feed, finishedLimit, leadership, logger, loops, onSweep } = this.#options;
    const shared = { client, logger, assertLeading: () => leadership.assertLeading() };
    const isIdle = ({ uid }: QueuedMigration): boolean => !this.#workers.has(uid);
    const isBusy = (crdName: string): boolean => this.#busy().has(crdName);
    const onFrozen = (names: ReadonlySet<string>): void => onSweep((name) => names.has(name) || isBusy(name));
    await together(leading, [
      (signal) => loops.add("queue").keep(({ clock }) => this.#dispatch(clock, signal), signal),
      (signal) =>
        loops.add("statuses").keep(({ clock }) => {
          const now = (): string => new Date(clock.now()).toISOString().replace(/\.\d+Z$/, "Z");
          const due = () => idleStatuses(this.#queue, { atWork: new Set(this.#workers.keys()), now: now() });
          const onWritten = (migration: StorageVersionMigration): void => this.#queue.take(migration);
          return keepIdleStatuses({ ...shared, clock, changed: this.#shown, due, onWritten }, signal);
        }, signal),
      (signal) =>
        loops.add("expiry").keep(({ clock }) => {
          const idle = (): Iterable<QueuedMigration> => [...this.#queue].filter(isIdle);
          return deleteExpired({ ...shared, clock, finishedLimit, idle }, signal);
        }, signal),
      (signal) =>
        loops.add("sweep").keep(({ clock }) => liftLeftFreezes({ client, clock, logger, onFrozen }, signal), signal),
      (signal) =>
        loops.add("migration-watch").keep((loop) => {
          // It waits for the feed, which is a loop of its own.
          loop.rest();
          return feed.follow((change) => {
            this.#queue.apply(change);
            this.#changed.wake();
          }, signal);
        }, signal),
    ]);
  }

  /** Stops what is suspended or gone, begins what may begin, and has the rest say why it does neither. */
  async #dispatch(clock: Clock, signal: AbortSignal): Promise<void> {
    const { maxConcurrent, onStates } = this.#options;
    while (!signal.aborted) {
      this.#changed.begin();
      for (const [uid, { abort, name }] of this.#workers) {
        const known = this.#queue.get(uid);
        if (known === undefined) abort.abort(MigrationStopped.deleted(name));
        else if (known.isSuspended) abort.abort(MigrationStopped.suspended(name));
      }
      const now = clock.monotonic();
      for (const uid of this.#pauses.keys()) {
        if (isFinal(this.#queue.get(uid)?.state ?? "Succeeded")) this.#pauses.delete(uid);
      }
      // One that had a turn waits for those that had none, or an earlier one: what it waits for may still be there.
      const turn = ({ uid }: QueuedMigration): number => this.#pauses.get(uid)?.until ?? Number.NEGATIVE_INFINITY;
      for (const migration of this.#queue.heads(turn)) {
        const isPaused = (this.#pauses.get(migration.uid)?.until ?? Number.NEGATIVE_INFINITY) > now;
        if (this.#workers.size >= maxConcurrent) break;
        if (!isPaused && !this.#busy().has(migration.resource)) this.#start(migration, signal);
      }
      const { states, waiting } = countStates(this.#queue);
      onStates(states, waiting);
      this.#shown.wake();
      const pauses = [...this.#pauses.values()].map(({ until }) => until - clock.monotonic());
      const waitMs = Math.min(LOOK_EVERY_MS, ...pauses.filter((ms) => ms > 0));
      await this.#changed.wait(waitMs, clock, signal).catch(() => undefined);
      await clock.sleep(GATHER_MS, signal).catch(() => undefined);
    }
    await Promise.all([...this.#workers.values()].map(({ done }) => done));
    await this.#recorder.close();
  }

  /** The resources that are being migrated. */
  #busy(): ReadonlySet<string> {
    return new Set([...this.#workers.values()].map(({ resource }) => resource));
  }

  #start(migration: QueuedMigration, signal: AbortSignal): void {
    const { name, resource, uid } = migration;
    const abort = new AbortController();
    const done = this.#work(migration, AbortSignal.any([signal, abort.signal])).finally(() => {
      this.#workers.delete(uid);
      this.#changed.wake();
    });
    this.#workers.set(uid, { name, resource, abort, done });
  }

  /** Never throws: what goes wrong with one migration is in its status, or its next run sees it again. */
  async #work(migration: QueuedMigration, signal: AbortSignal): Promise<void> {
    const { identity, observe } = this.#options;
    const { name, resource, uid } = migration;
    const logger = this.#options.logger.child({ migration: name, resource });
    const before = this.#pauses.get(uid);
    const observer = observe(resource);
    // One that cannot be begun is over or suspended, and the feed is late to say so.
    let reason = "";
    try {
      const record = await MigrationRecord.claim(this.#record, migration, signal);
      if (record !== undefined) {
        logger.info("Started a migration");
        const phase = await runMigration(record, {
          ...this.#context,
          identity: `${identity}/${name}`,
          logger,
          waitedFor: before?.reason ?? "",
          onEvent: observer.event,
          signal,
        });
        this.#queue.take(record.migration);
        if (phase.type === "Succeeded" || phase.type === "Failed") observer.completed(phase.type);
        reason = phase.reason ?? "";
      }
    } catch (error) {
      reason = messageOf(error);
      if (error instanceof MigrationStopped) logger.info({ reason }, "A migration was stopped");
      // One that the API server refuses to store fails in the same way each time.
      else if (!signal.aborted) {
        logger[before?.reason === reason ? "debug" : "error"](
          { err: error },
          "A migration was broken off; trying again",
        );
      }
    } finally {
      observer.end();
    }
    const { client } = this.#options;
    const runs = (before?.runs ?? 0) + 1;
    const pauseMs = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (runs - 1)) * (1 - JITTER * client.random());
    this.#pauses.set(uid, { runs, reason, until: client.clock.monotonic() + pauseMs });
  }
}
