import type { Logger } from "pino";
import { type MigrationState, type StorageVersionMigration, SYSTEM_NAMESPACE } from "../api/migration.ts";
import type { FreezeOwner } from "../api/owner.ts";
import { isNewer } from "../api/resource-version.ts";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { failureKindOf } from "../kube/failure.ts";
import type { LeaderElector } from "../kube/leader-election.ts";
import type { EventSink } from "../migrator/events.ts";
import { DENIAL_PATIENCE_MS } from "../migrator/patience.ts";
import { Retrier } from "../migrator/retrier.ts";
import { EventRecorder } from "./event-recorder.ts";
import { type MigrationChange, migrationChanges } from "./migration-feed.ts";
import { type IdleStatus, idleStatusesOf } from "./idle-phase.ts";
import { IdleWriter } from "./idle-writer.ts";
import { heldBy, nextOf, type QueuedMigration, queuedOf, takesFreezeOver } from "./migration-queue.ts";
import { MigrationDeleted, MigrationRecord, MigrationSuspended } from "./migration-record.ts";
import { MigrationRun } from "./migration-run.ts";
import { sweepOrphans } from "./orphan-sweep.ts";
import type { OpenRun } from "./run-factory.ts";
import { type Slot, Slots } from "./slots.ts";
import { followSuspendMark, type SuspendMark } from "../suspend/suspend-mark.ts";

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
  /** Where the Lease is that suspends all migrations. @default the namespace of seed 000 */
  readonly namespace?: string;
  /** How many resources are migrated at once. @default 1 */
  readonly maxConcurrent?: number;
  /** Watches the run on a resource (`plural.group`). @default nobody does */
  readonly observe?: (resource: string) => RunObserver;
  /** Told how many migrations there are in each state, whenever that may have changed. */
  readonly onStates?: (states: Readonly<Record<MigrationState, number>>) => void;
}

interface Job {
  readonly name: string;
  readonly resource: string;
  readonly slot: Slot;
  readonly abort: AbortController;
  readonly done: Promise<void>;
}

/** How often freezes of dead runs are looked for, in milliseconds. */
const SWEEP_EVERY_MS = 60_000;
/** After a run that was broken off, in milliseconds: longer each time that the same migration is. */
const RETRY_AFTER_MS = 5_000;
const MAX_RETRY_AFTER_MS = 60_000;
/** How long a migration that cannot be begun may be tried in its slot, in milliseconds. */
const CLAIM_PATIENCE = { maxIdleMs: 60_000, webhookWaitMs: 60_000 } as const;

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
  /** By uid: how often in a row a migration was broken off. */
  readonly #brokenOff = new Map<string, number>();
  readonly #idle: IdleWriter;
  #slots = new Slots(0, { start: () => false, isThere: () => false });
  /** What suspends all migrations; `null` until that is known. */
  #mark: SuspendMark | null | undefined = null;

  constructor(options: MigrationControllerOptions) {
    this.#options = options;
    const { clock } = options;
    // An API server that is down is waited for, however long that takes.
    const forever = { maxIdleMs: Number.POSITIVE_INFINITY, webhookWaitMs: Number.POSITIVE_INFINITY };
    this.#retrier = new Retrier({ clock, random: Math.random, ...forever });
    this.#recorder = new EventRecorder(options);
    this.#idle = new IdleWriter({
      ...options,
      assertLeading: () => options.leadership.assertLeading(),
      due: () => this.#idleStatuses(),
      onWritten: (migration) => this.#take(migration),
    });
  }

  /**
   * Migrates until the signal is aborted: then every run ends cleanly, its freeze lifted, and the next leader resumes it.
   * A migration that fails keeps no other from its turn.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { client, clock, logger, maxConcurrent = 1 } = this.#options;
    this.#known.clear();
    this.#brokenOff.clear();
    this.#mark = null;
    this.#slots = new Slots(maxConcurrent, {
      start: (slot) => this.#startNext(slot, signal),
      isThere: () => this.#next() !== undefined,
    });
    const others = [this.#idle.run(signal), this.#followMark(signal)];
    let sweeping: Promise<void> | undefined;
    const onError = (error: unknown): void =>
      logger.warn({ reason: messageOf(error) }, "cannot watch StorageVersionMigrations; trying again");
    const onUnreadable = (migration: string): void =>
      logger.warn({ migration }, "left a StorageVersionMigration out: it does not say what it migrates");
    for await (const change of migrationChanges({ client, clock, signal, onError, onUnreadable })) {
      this.#apply(change);
      this.#changed();
      // Not before all migrations are known: what they will take over is no orphan.
      sweeping ??= this.#sweepForEver(signal);
    }
    await Promise.all([...this.#jobs.values()].map(({ done }) => done));
    await Promise.all([sweeping, ...others]);
    await this.#recorder.close();
  }

  /** Nothing begins before it is known whether all migrations are suspended. */
  #followMark(signal: AbortSignal): Promise<void> {
    const { clock, logger, namespace = SYSTEM_NAMESPACE } = this.#options;
    let deniedSince: number | undefined;
    const onMark = (mark: SuspendMark | undefined): void => {
      if (mark !== undefined && this.#mark?.since !== mark.since) {
        logger.warn({ ...mark }, "all migrations are suspended");
      } else if (mark === undefined && this.#mark !== undefined && this.#mark !== null) {
        logger.info("migrations are no longer suspended all together");
      }
      this.#mark = mark;
      this.#changed();
    };
    const onError = (error: unknown): void => {
      logger.warn({ reason: messageOf(error) }, "cannot see whether all migrations are suspended; trying again");
      deniedSince = failureKindOf(error) === "denied" ? (deniedSince ?? clock.monotonic()) : undefined;
      const isDenied = deniedSince !== undefined && clock.monotonic() - deniedSince >= DENIAL_PATIENCE_MS;
      if (this.#mark === null && isDenied) {
        // Where Leases of ours cannot be listed, none of them can suspend anything: migrations go on as they did. An API
        // server that has just started denies for a moment what it allows.
        onMark(undefined);
      }
    };
    return followSuspendMark({ ...this.#options, namespace, onMark, onError, signal });
  }

  /** Stops what is suspended, begins what may begin, and has the rest say why it does neither. */
  #changed(): void {
    for (const [uid, { abort, name }] of this.#jobs) {
      if (this.#isStopped(this.#known.get(uid)) && !abort.signal.aborted) {
        abort.abort(new MigrationSuspended(name));
      }
    }
    this.#slots.dispatch();
    this.#idle.wake();
  }

  #isStopped(migration: QueuedMigration | undefined): boolean {
    return migration?.isSuspended === true || (this.#mark !== undefined && this.#mark !== null);
  }

  #idleStatuses(): readonly IdleStatus[] {
    if (this.#mark === null) {
      return [];
    }
    const names = [...this.#jobs].map(([uid, { name }]) => [uid, name] as const);
    const running = [...this.#jobs.values()].filter(({ slot }) => slot.isHeld).map(({ name }) => name);
    const now = new Date(this.#options.clock.now()).toISOString().replace(/\.\d+Z$/, "Z");
    return idleStatusesOf(this.#known.values(), { atWork: new Map(names), running, mark: this.#mark, now });
  }

  #take(migration: StorageVersionMigration): void {
    const { resourceVersion, uid } = migration.metadata;
    const known = this.#known.get(uid);
    if (known !== undefined && isNewer(resourceVersion, known.resourceVersion)) {
      this.#known.set(uid, queuedOf(migration));
    }
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
    this.#brokenOff.delete(uid);
    this.#jobs.get(uid)?.abort.abort(new MigrationDeleted(name));
  }

  #next(): QueuedMigration | undefined {
    if (this.#mark !== undefined) {
      return undefined;
    }
    const atWork = [...this.#jobs.values()].map(({ resource }) => resource);
    return nextOf(this.#known.values(), new Set([...atWork, ...heldBy(this.#known.values()).keys()]));
  }

  #startNext(slot: Slot, signal: AbortSignal): boolean {
    const migration = signal.aborted ? undefined : this.#next();
    if (migration === undefined) {
      return false;
    }
    const abort = new AbortController();
    const working = this.#work(migration, { slot, signal: AbortSignal.any([signal, abort.signal]) });
    const done = working.finally(() => {
      this.#jobs.delete(migration.uid);
      slot.give();
      this.#changed();
    });
    this.#jobs.set(migration.uid, { name: migration.name, resource: migration.resource, slot, abort, done });
    return true;
  }

  /** Never throws: what goes wrong with one migration is in its status, or its next attempt sees it again. */
  async #work(
    migration: QueuedMigration,
    { slot, signal }: { readonly slot: Slot; readonly signal: AbortSignal },
  ): Promise<void> {
    const { clock, logger, observe } = this.#options;
    const { name, resource, uid } = migration;
    const log = logger.child({ migration: name, resource });
    const observer = observe?.(resource) ?? NOBODY;
    try {
      const record = await this.#claim(migration, signal);
      if (record !== undefined) {
        log.info("began a migration");
        await this.#runOf(record, { log, observer, slot, signal }).run();
      }
      this.#brokenOff.delete(uid);
      // The watch may be late to say that it is over.
      if (this.#known.has(uid)) {
        this.#known.set(uid, { ...migration, state: "Succeeded" });
      }
    } catch (error) {
      if (!signal.aborted && error instanceof MigrationSuspended) {
        // The watch, which says the same, is late.
        slot.give();
        await clock.sleep(RETRY_AFTER_MS, signal).catch(() => undefined);
      } else if (!signal.aborted && !(error instanceof MigrationDeleted)) {
        log.error({ err: error }, "a migration was broken off; trying again");
        // It is the first in the queue again: others have their turn until then, or it would be the only one forever.
        slot.give();
        await clock.sleep(this.#retryAfterMs(uid), signal).catch(() => undefined);
      }
    } finally {
      observer.end();
    }
  }

  /** One that cannot be written, as where a webhook fails for it alone, is broken off, so that others have their turn. */
  #claim(migration: QueuedMigration, signal: AbortSignal): Promise<MigrationRecord | undefined> {
    const parts = this.#recordParts();
    const retrier = this.#retrier.with({ ...CLAIM_PATIENCE, isPlaceWanted: () => this.#slots.isWanted });
    return MigrationRecord.claim({ ...parts, retrier, signal }, migration);
  }

  #retryAfterMs(uid: string): number {
    const times = (this.#brokenOff.get(uid) ?? 0) + 1;
    if (this.#known.has(uid)) {
      this.#brokenOff.set(uid, times);
    }
    return Math.min(MAX_RETRY_AFTER_MS, RETRY_AFTER_MS * 2 ** (times - 1));
  }

  #recordParts() {
    const { client, clock, identity, leadership } = this.#options;
    const since = new Date(clock.now()).toISOString();
    const owner: FreezeOwner = { lease: leadership.key, identity, since };
    return { client, clock, owner, retrier: this.#retrier, assertLeading: () => leadership.assertLeading() };
  }

  #runOf(
    record: MigrationRecord,
    parts: { readonly log: Logger; readonly observer: RunObserver; readonly slot: Slot; readonly signal: AbortSignal },
  ): MigrationRun {
    const { log, observer, signal, slot } = parts;
    return new MigrationRun({
      ...this.#options,
      openRun: (run) => this.#options.openRun({ ...run, isDead: (holder) => this.#isDead(holder) }),
      logger: log,
      recorder: this.#recorder,
      retrier: this.#retrier,
      record,
      signal,
      slot,
      isSlotWanted: () => this.#slots.isWanted,
      onEvent: observer.event,
    });
  }

  async #sweepForEver(signal: AbortSignal): Promise<void> {
    const { client, clock, identity, logger } = this.#options;
    const isBusy = (crdName: string): boolean => this.#isBusy(crdName);
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

  /** Whether a freeze is one that a run of ours has, or soon goes on with. A run that waits for its turn has none. */
  #isBusy(crdName: string): boolean {
    if ([...this.#jobs.values()].some(({ resource, slot }) => resource === crdName && slot.isHeld)) {
      return true;
    }
    const isStopped = this.#mark !== undefined && this.#mark !== null;
    const isBrokenOff = [...this.#known.values()].some(
      ({ resource, uid }) => resource === crdName && this.#brokenOff.has(uid),
    );
    return !isStopped && !isBrokenOff && takesFreezeOver(this.#known.values(), crdName);
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
    const states = { Pending: 0, Running: 0, Waiting: 0, Suspended: 0, Succeeded: 0, Failed: 0 };
    for (const { state } of this.#known.values()) {
      states[state]++;
    }
    this.#options.onStates?.(states);
  }
}
