import type { Logger } from "pino";
import { stateOf } from "../api/migration.ts";
import type { FreezeOwner } from "../api/owner.ts";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { ApiClient } from "../old/kube/client.ts";
import type { LeaderElector } from "../old/lease/leader-election.ts";
import type { EventSink } from "../old/migrator/events.ts";
import type { Retrier } from "../old/retry/retrier.ts";
import { NO_PULSE, type Pulse } from "../pulse.ts";
import { EventRecorder } from "./event-recorder.ts";
import type { QueuedMigration } from "./migration-queue.ts";
import { MigrationDeleted, MigrationOver, MigrationSuspended } from "./migration-ends.ts";
import { MigrationRecord } from "./migration-record.ts";
import { MigrationRun } from "./migration-run.ts";
import { MigrationTaken } from "./migration-taken.ts";
import type { OpenRun } from "./run-factory.ts";
import type { Slot } from "./slots.ts";

/** What watches one run, for metrics. */
export interface RunObserver {
  readonly event: EventSink;
  /** Called when the run has brought the migration to its end. */
  readonly completed: (result: "Succeeded" | "Failed") => void;
  /** What the run shows by that it is alive while it waits. */
  readonly pulse: Pulse;
  /** Called when the run has ended. */
  readonly end: () => void;
}

/** What {@link MigrationJobs} need. */
export interface MigrationJobsOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly openRun: OpenRun;
  /** Unique to this replica: host name and a random part. */
  readonly identity: string;
  /** The Lease of the leader, see {@link LeaderElector}. */
  readonly leadership: Pick<LeaderElector, "assertLeading" | "key" | "replaced">;
  /** Watches the run on a resource (`plural.group`). @default none */
  readonly observe?: ((resource: string) => RunObserver) | undefined;
  /** Without a limit: an API server that is down is waited for. */
  readonly retrier: Retrier;
  /** Whether other migrations wait for a slot. */
  readonly isSlotWanted: () => boolean;
  /** Told of one that is over, and how, ahead of the feed. */
  readonly onOver: (uid: string, state: "Succeeded" | "Failed") => void;
  /** Told that one is at work no more. */
  readonly onEnd: () => void;
}

/** A migration that is being carried out, or waits with its run. */
export interface Job extends Pick<QueuedMigration, "name" | "resource" | "isReencryption"> {
  readonly slot: Slot;
}

interface StoppableJob extends Job {
  readonly abort: AbortController;
  readonly done: Promise<void>;
}

/** After a run that was broken off, in milliseconds: longer each time that the same migration is. */
const RETRY_AFTER_MS = 5_000;
const MAX_RETRY_AFTER_MS = 60_000;
/**
 * At most, where another replica takes the migration over while this one leads, in milliseconds. Then there are two installations, each of
 * which ends the run of the other one: one gets to the end once the other stays away for long enough.
 */
const MAX_TAKEN_MS = 3_600_000;
/** How long a migration that cannot be begun may be tried in its slot, in milliseconds. */
const CLAIM_PATIENCE = { maxIdleMs: 60_000, webhookWaitMs: 60_000 } as const;

const NOBODY: RunObserver = {
  event: () => undefined,
  completed: () => undefined,
  pulse: NO_PULSE,
  end: () => undefined,
};

/** The migrations that are being carried out. One that fails keeps no other from its turn. */
export class MigrationJobs {
  readonly #options: MigrationJobsOptions;
  readonly #recorder: EventRecorder;
  readonly #jobs = new Map<string, StoppableJob>();
  /** By uid: how often a migration was broken off, how often because another installation took it over, and why the last time. */
  readonly #brokenOff = new Map<string, { readonly times: number; readonly taken: number; readonly reason: string }>();
  /** By uid: ends the wait of one that was broken off. */
  readonly #resting = new Map<string, AbortController>();

  constructor(options: MigrationJobsOptions) {
    this.#options = options;
    this.#recorder = new EventRecorder(options);
  }

  /** By uid. */
  get atWork(): ReadonlyMap<string, Job> {
    return this.#jobs;
  }

  /** Whether its last run was broken off: it begins again after a while. */
  isBrokenOff(uid: string): boolean {
    return this.#brokenOff.has(uid);
  }

  /** Whether a run is one of the leader that this one replaced. */
  isDead(holder: string): boolean {
    // Its Leases need not be watched: for as long as they last, the leader's own was watched before it was taken over.
    const { replaced } = this.#options.leadership;
    return replaced !== undefined && holder.startsWith(`${replaced}/`);
  }

  /** Carries a migration out until it is over, the signal is aborted, or it is ended here. */
  start(migration: QueuedMigration, slot: Slot, signal: AbortSignal): void {
    const abort = new AbortController();
    const working = this.#work(migration, { slot, signal: AbortSignal.any([signal, abort.signal]) });
    const done = working.finally(() => {
      this.#jobs.delete(migration.uid);
      slot.give();
      this.#options.onEnd();
    });
    const { isReencryption, name, resource, uid } = migration;
    this.#jobs.set(uid, { name, resource, isReencryption, slot, abort, done });
  }

  /** Ends one whose user wants it stopped. */
  suspend(uid: string): void {
    const { abort, name = "" } = this.#jobs.get(uid) ?? {};
    if (abort?.signal.aborted === false) {
      abort.abort(new MigrationSuspended(name));
    }
  }

  /** Ends the wait of one that was broken off, and that another client has brought to its end: the next one of its resource has its turn. */
  endRest(uid: string): void {
    const resting = this.#resting.get(uid);
    if (resting?.signal.aborted === false) {
      this.#brokenOff.delete(uid);
      resting.abort();
    }
  }

  /** Ends one that was deleted. */
  forget({ name, uid }: QueuedMigration): void {
    this.#brokenOff.delete(uid);
    this.#jobs.get(uid)?.abort.abort(new MigrationDeleted(name));
  }

  /** Resolves when all of them have ended, and their Events are written. */
  async ended(): Promise<void> {
    await Promise.all([...this.#jobs.values()].map(({ done }) => done));
    await this.#recorder.close();
  }

  /** Never throws: what goes wrong with one migration is in its status, or its next attempt sees it again. */
  async #work(
    migration: QueuedMigration,
    { slot, signal }: { readonly slot: Slot; readonly signal: AbortSignal },
  ): Promise<void> {
    const { logger, observe } = this.#options;
    const { name, resource, uid } = migration;
    const log = logger.child({ migration: name, resource });
    const observer = observe?.(resource) ?? NOBODY;
    let record: MigrationRecord | undefined;
    try {
      record = await this.#claim(migration, observer.pulse, signal);
      if (record !== undefined) {
        log.info("Started a migration");
        await this.#runOf(record, { log, observer, slot, signal }).run();
        observer.completed(endOf(record));
      }
      this.#over(uid, record);
    } catch (error) {
      if (error instanceof MigrationOver) {
        this.#over(uid, record);
      } else if (!signal.aborted && error instanceof MigrationSuspended) {
        // The watch, which says the same, is late.
        await this.#rest(uid, RETRY_AFTER_MS, { pulse: observer.pulse, slot, signal });
      } else if (!signal.aborted && !(error instanceof MigrationDeleted)) {
        await this.#rest(uid, this.#brokeOff(uid, error, log), { pulse: observer.pulse, slot, signal });
      }
    } finally {
      observer.end();
    }
  }

  /** It may be the first in the queue again: others have their turn until then, or it would be the only one forever. */
  async #rest(
    uid: string,
    ms: number,
    { pulse, slot, signal }: { readonly pulse: Pulse; readonly slot: Slot; readonly signal: AbortSignal },
  ): Promise<void> {
    const rest = new AbortController();
    this.#resting.set(uid, rest);
    pulse.pause(ms);
    slot.give();
    await this.#options.clock.sleep(ms, AbortSignal.any([signal, rest.signal])).catch(() => undefined);
    this.#resting.delete(uid);
  }

  #over(uid: string, record: MigrationRecord | undefined): void {
    this.#brokenOff.delete(uid);
    this.#options.onOver(uid, record === undefined ? "Succeeded" : endOf(record));
  }

  /** One that cannot be written, as where a webhook fails for it alone, is broken off, so that others have their turn. */
  #claim(migration: QueuedMigration, pulse: Pulse, signal: AbortSignal): Promise<MigrationRecord | undefined> {
    const { isSlotWanted } = this.#options;
    const retrier = this.#retrierFor(pulse).with({ ...CLAIM_PATIENCE, isPlaceWanted: isSlotWanted });
    return MigrationRecord.claim({ ...this.#recordParts(), retrier, signal }, migration);
  }

  /** An API server that is down is waited for on purpose. */
  #retrierFor(pulse: Pulse): Retrier {
    return this.#options.retrier.with({ onRetry: (_, delayMs) => pulse.pause(delayMs) });
  }

  /**
   * One that the API server refuses to store fails in the same way each time: that is said once.
   * @returns milliseconds until it may begin again
   */
  #brokeOff(uid: string, error: unknown, log: Logger): number {
    const before = this.#brokenOff.get(uid);
    const isTaken = error instanceof MigrationTaken && error.isOfOthers;
    const [times, taken] = [(before?.times ?? 0) + 1, (before?.taken ?? 0) + (isTaken ? 1 : 0)];
    const reason = messageOf(error);
    this.#brokenOff.set(uid, { times, taken, reason });
    const level = before?.reason === reason ? "debug" : "error";
    log[level]({ err: error }, "A migration was broken off; trying again");
    // A webhook that failed for a while is no other installation.
    const [mostMs, count] = isTaken ? [MAX_TAKEN_MS, taken] : [MAX_RETRY_AFTER_MS, times];
    return Math.min(mostMs, RETRY_AFTER_MS * 2 ** (count - 1));
  }

  #recordParts() {
    const { client, clock, identity, leadership } = this.#options;
    const since = new Date(clock.now()).toISOString();
    const owner: FreezeOwner = { lease: leadership.key, identity, since };
    return { client, clock, owner, assertLeading: () => leadership.assertLeading() };
  }

  #runOf(
    record: MigrationRecord,
    parts: { readonly log: Logger; readonly observer: RunObserver; readonly slot: Slot; readonly signal: AbortSignal },
  ): MigrationRun {
    const { log, observer, signal, slot } = parts;
    return new MigrationRun({
      ...this.#options,
      retrier: this.#retrierFor(observer.pulse),
      pulse: observer.pulse,
      openRun: (run) =>
        this.#options.openRun({
          ...run,
          isDead: (holder) => this.isDead(holder),
          assertLeading: () => this.#options.leadership.assertLeading(),
        }),
      logger: log,
      recorder: this.#recorder,
      record,
      signal,
      slot,
      onEvent: observer.event,
    });
  }
}

function endOf({ migration }: MigrationRecord): "Succeeded" | "Failed" {
  return stateOf(migration) === "Failed" ? "Failed" : "Succeeded";
}
