import type { Logger } from "pino";
import { isSuspended, resourceNameOf } from "../api/migration.ts";
import { identityOfRun } from "../api/owner.ts";
import { MAX_WATERMARK_LENGTH } from "../api/parse-migration.ts";
import type { Clock } from "../clock.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { besideInTree } from "../old/migrator/beside-in-tree.ts";
import type { MigrationEvent } from "../old/migrator/events.ts";
import { migrate } from "../old/migrator/migrate.ts";
import type { MigrationResult } from "../old/migrator/result.ts";
import type { Retrier } from "../old/retry/retrier.ts";
import type { Pulse } from "../pulse.ts";
import type { EventRecorder } from "./event-recorder.ts";
import { eventTextOf, waitTextOf } from "./event-text.ts";
import { MigrationOver, MigrationSuspended } from "./migration-ends.ts";
import type { MigrationRecord } from "./migration-record.ts";
import { type Phase, phaseAfter } from "./migration-status.ts";
import type { OpenedRun, OpenRun } from "./run-factory.ts";
import { RunProgress } from "./run-progress.ts";
import { Failing } from "./run-verdict.ts";
import { assertStillWanted, type RunWish, runWishOf } from "./run-wish.ts";
import type { Slot } from "./slots.ts";
import { type Stall, stallOf } from "./stall-watch.ts";
import { StatusWriter } from "./status-writer.ts";

/** What a {@link MigrationRun} needs. */
export interface MigrationRunOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly recorder: EventRecorder;
  readonly record: MigrationRecord;
  readonly retrier: Retrier;
  readonly openRun: OpenRun;
  /** Of this replica. */
  readonly identity: string;
  /** Aborted when the migration is deleted, or this replica must stop. */
  readonly signal: AbortSignal;
  /** Given back while the run only waits. */
  readonly slot: Pick<Slot, "acquire" | "give">;
  /** Whether other migrations wait for a slot. */
  readonly isSlotWanted: () => boolean;
  /** Beats with every attempt and while the run waits on purpose; the engine's events tell of the rest. */
  readonly pulse: Pulse;
  /** Told of every event of the engine. */
  readonly onEvent: (event: MigrationEvent) => void;
}

/** Milliseconds until a migration that waits for others is tried again: longer each time, as each try takes a slot. */
const RETRY_AFTER_MS = 5_000;
const MAX_RETRY_AFTER_MS = 60_000;
/** So much of that, as a part, is left to chance: many migrations may wait for the same thing. */
const RETRY_JITTER = 0.25;
/** How long a look at Kubernetes' own migrator is tried in the slot, in milliseconds, before a run begins. */
const LOOK_PATIENCE = { maxIdleMs: 30_000, webhookWaitMs: 30_000 } as const;
/** How often a run looks whether it may go on, in milliseconds: its writes stop within 5 s of a deletion. */
const LOOK_EVERY_MS = 2_000;

/** One StorageVersionMigration from its beginning to its end. */
export class MigrationRun {
  readonly #options: MigrationRunOptions;
  readonly #resource: string;
  readonly #status: StatusWriter;
  /** What keeps the run from getting further, as its status says. */
  #stall: Stall | undefined;
  #isWaiting = false;
  #runs = 0;
  readonly #failing = new Failing();
  readonly #progress = new RunProgress();
  /** Whether this attempt got further than those before: that is progress, which no error that repeats makes again and again. */
  #gotFurther = false;

  constructor(options: MigrationRunOptions) {
    this.#options = options;
    this.#status = new StatusWriter(options);
    this.#resource = resourceNameOf(options.record.migration.spec.resource);
  }

  /**
   * Migrates until that has succeeded or failed, and says so in the status.
   * @throws the signal's reason where it is aborted; {MigrationDeleted}; {MigrationOver} where another client ended it;
   *   {KsvmError} OwnershipLost.
   */
  async run(): Promise<void> {
    const { clock, pulse, retrier, signal, slot } = this.#options;
    for (let retryAfterMs = RETRY_AFTER_MS; ; retryAfterMs = Math.min(2 * retryAfterMs, MAX_RETRY_AFTER_MS)) {
      this.#gotFurther = false;
      const phase = await this.#attempt();
      if (phase === undefined) {
        return;
      }
      // Its status may be what cannot be written.
      slot.give();
      await this.#status.enter(phase);
      if (this.#gotFurther) {
        retryAfterMs = RETRY_AFTER_MS;
      }
      const delayMs = retryAfterMs * (1 - RETRY_JITTER * retrier.random());
      pulse.pause(delayMs);
      await clock.sleep(delayMs, signal);
      await this.#acquireSlot(signal);
    }
  }

  /** @returns the phase to wait in; `undefined` where the migration has ended */
  async #attempt(): Promise<Phase | undefined> {
    const { clock, logger, record, recorder, signal } = this.#options;
    try {
      await this.#runOnce();
      return undefined;
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof MigrationSuspended || error instanceof MigrationOver) {
        throw error;
      }
      // Whether the object is still there, and still ours, decides over whatever went wrong.
      await record.check();
      const { isNew, phase } = this.#failing.failed(error, clock.monotonic());
      logger.warn({ err: error, phase: phase.type }, "An attempt to migrate ended with an error");
      if (phase.type === "Waiting") {
        if (isNew) {
          recorder.record(record.migration, waitTextOf(phase));
        }
        return phase;
      }
      await this.#status.finish(phase);
      return undefined;
    }
  }

  async #runOnce(): Promise<void> {
    const { logger, record } = this.#options;
    const patient = this.#options.retrier.with({ ...LOOK_PATIENCE, isPlaceWanted: this.#options.isSlotWanted });
    const context = { ...this.#options, beforehand: patient };
    const wish = runWishOf(record.migration);
    const result = await besideInTree(context, this.#resource, async (running) => {
      await this.#status.enter({ type: "Running" });
      return this.#migrate(running, wish);
    });
    logger.info({ outcome: result.outcome, counts: result.counts }, "A migration ended");
    await this.#status.finish(phaseAfter(result), { result, confirm: () => assertStillWanted(record.migration, wish) });
  }

  async #migrate(signal: AbortSignal, wish: RunWish): Promise<MigrationResult> {
    const { identity, openRun, record } = this.#options;
    this.#runs++;
    // The run before this one may have ended in the middle of a wait.
    this.#isWaiting = false;
    const abort = new AbortController();
    const ended = new AbortController();
    const running = AbortSignal.any([signal, abort.signal]);
    const run = openRun({
      ...wish,
      resource: this.#resource,
      identity: identityOfRun(identity, record.migration.metadata.uid, this.#runs),
      purpose: `StorageVersionMigration ${record.migration.metadata.uid}`,
      signal: running,
      emit: (event) => this.#onEvent(event, abort),
      onAdvance: (advance) => {
        if (this.#progress.advanced(advance)) {
          this.#gotFurther = true;
          this.#failing.progressed();
        }
      },
      isPlaceWanted: this.#options.isSlotWanted,
      awaitTurn: () => this.#awaitTurn(running),
      onPageDone: async ({ watermark, continueToken }) => {
        // It serves only those who watch. One that our CRD does not take is left out.
        await this.#status.report(watermark.length > MAX_WATERMARK_LENGTH ? {} : { watermark });
        await record.saveToken(continueToken);
      },
    });
    const looking = this.#lookOut(run, abort, ended.signal);
    try {
      return await migrate(run.context, this.#resource);
    } catch (error) {
      signal.throwIfAborted();
      abort.signal.throwIfAborted();
      throw error;
    } finally {
      ended.abort();
      await looking;
      await run.close();
      this.#stall = undefined;
    }
  }

  /** While a run goes on: ends it where its object is gone, and reports how far it is. */
  async #lookOut(run: OpenedRun, abort: AbortController, ended: AbortSignal): Promise<void> {
    const { clock, record, signal } = this.#options;
    const looking = AbortSignal.any([signal, ended]);
    while (!looking.aborted && !abort.signal.aborted) {
      await clock.sleep(LOOK_EVERY_MS, looking).catch(() => undefined);
      try {
        await (this.#status.isReported ? record.check() : this.#status.report());
        if (isSuspended(record.migration)) {
          // The watch may be late, or deaf.
          throw new MigrationSuspended(record.migration.metadata.name);
        }
        await this.#tellOfStall(run.stall());
      } catch (error) {
        if (!looking.aborted) {
          abort.abort(error);
        }
      }
    }
  }

  #onEvent(event: MigrationEvent, abort: AbortController): void {
    const { logger, onEvent, record, recorder } = this.#options;
    onEvent(event);
    if (event.type === "progress") {
      this.#status.note(event.counts);
      return;
    }
    logger.debug({ event }, "Run event");
    const text = eventTextOf(event);
    if (text !== undefined) {
      recorder.record(record.migration, text);
    }
    this.#follow(event)?.catch((error: unknown) => abort.abort(error));
  }

  /** A run that waits, without a freeze, gives its slot up until it may go on. */
  #follow(event: MigrationEvent): Promise<void> | undefined {
    if (event.type !== "waiting") {
      return undefined;
    }
    const { waitsFor, webhook, reason } = event;
    const stall = waitsFor === undefined ? stallOf(webhook, reason) : { reason: waitsFor, message: reason };
    this.#options.logger.warn({ ...stall, budgetMs: event.budgetMs }, "A migration waits, without a freeze");
    this.#stall = undefined;
    const entered = this.#status.enter({ type: "Waiting", ...stall });
    // One that waits on says so again.
    if (!this.#isWaiting) {
      this.#isWaiting = true;
      this.#options.slot.give();
    }
    return entered;
  }

  /** However long others take. */
  async #acquireSlot(signal: AbortSignal): Promise<void> {
    const { pulse, slot } = this.#options;
    pulse.rest();
    await slot.acquire(signal);
    pulse.beat();
  }

  async #awaitTurn(signal: AbortSignal): Promise<void> {
    const { isSlotWanted, logger } = this.#options;
    if (isSlotWanted()) {
      const message = "what it waited for works again; it continues when its turn comes";
      await this.#status.enter({ type: "Waiting", reason: "Queued", message });
    }
    await this.#acquireSlot(signal);
    this.#isWaiting = false;
    logger.info("Continued migration");
    await this.#status.enter({ type: "Running" });
  }

  /** A run that gets no further while it has its freeze says why. */
  async #tellOfStall(stall: Stall | undefined): Promise<void> {
    const { logger } = this.#options;
    // The rest of a message may be another one with every try.
    if (
      this.#isWaiting ||
      (stall?.reason === this.#stall?.reason && (stall === undefined) === (this.#stall === undefined))
    ) {
      return;
    }
    this.#stall = stall;
    if (stall === undefined) {
      logger.info("A migration makes progress again");
    } else {
      logger.warn({ ...stall }, "A migration makes no progress; its CRD stays frozen for a while");
    }
    await this.#status.enter({ type: "Running", ...stall });
  }
}
