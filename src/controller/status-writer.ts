import { isDeepStrictEqual } from "node:util";
import type { Logger } from "pino";
import { withKstatus } from "../api/kstatus.ts";
import { type MigrationCondition, type MigrationStatus, stateOf } from "../api/migration.ts";
import type { Clock } from "../clock.ts";
import type { MigrationResult } from "../old/migrator/result.ts";
import type { Counts } from "../old/migrator/rewrite/counts.ts";
import type { EventRecorder } from "./event-recorder.ts";
import { resultTextOf } from "./event-text.ts";
import { MigrationOver } from "./migration-ends.ts";
import type { MigrationRecord } from "./migration-record.ts";
import { conditionsIn, type Phase, progressOf, reportIn } from "./migration-status.ts";

/** Which migration it is, and who is told of its end. */
export interface StatusWriterOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly record: MigrationRecord;
  readonly recorder: EventRecorder;
}

/** What else is known of the end of a migration. */
interface Ending {
  readonly result?: MigrationResult;
  /** Throws where the migration, as it was read last, must not end so. */
  readonly confirm?: () => void;
}

/** Writes the status of one migration while it is carried out. Every method throws as {@link MigrationRecord.update}. */
export class StatusWriter {
  readonly #options: StatusWriterOptions;
  #counts: Readonly<Counts> | undefined;
  #isReported = true;

  constructor(options: StatusWriterOptions) {
    this.#options = options;
  }

  /** Notes how far the run is, for the next {@link report}. */
  note(counts: Readonly<Counts>): void {
    this.#counts = counts;
    this.#isReported = false;
  }

  /** Whether the status says how far the run is. */
  get isReported(): boolean {
    return this.#isReported;
  }

  /** Shows the phase that begins. */
  enter(phase: Phase): Promise<void> {
    const now = this.#time();
    return this.#options.record.update((before) => ({
      ...before,
      // One that is carried out again, as its user has cleared its conditions, is not over.
      completionTime: null,
      startTime: before.startTime ?? now,
      conditions: conditionsIn(phase, before.conditions ?? [], now),
    }));
  }

  /** Shows how far the run is. */
  async report(more: Partial<MigrationStatus> = {}): Promise<void> {
    this.#isReported = true;
    const progress = this.#counts === undefined ? {} : progressOf(this.#counts);
    await this.#options.record.update((before) => ({ ...before, ...progress, ...more }));
  }

  /**
   * Shows how the migration ended, and records an Event of it.
   * @throws what `confirm` throws, which is called before each try to write that: nothing is shown then.
   */
  async finish(phase: Phase, { result, confirm }: Ending = {}): Promise<void> {
    const { logger, record, recorder } = this.#options;
    const now = this.#time();
    const report = result === undefined ? {} : reportIn(result);
    let sent: readonly MigrationCondition[] = [];
    try {
      await record.saveToken(undefined);
      await record.update((before) => {
        confirm?.();
        sent = conditionsIn(phase, before.conditions ?? [], now);
        return {
          ...before,
          ...report,
          completionTime: before.completionTime ?? now,
          conditions: sent,
        };
      });
    } catch (error) {
      const isOver = error instanceof MigrationOver;
      // A try whose answer was lost may have arrived: the next one finds the end that it wrote.
      if (!isOver || !isDeepStrictEqual(record.migration.status?.conditions, withKstatus(sent))) {
        if (isOver) {
          const late = { outcome: phase.type, reason: phase.reason, ended: stateOf(record.migration) };
          logger.warn(late, "The result of a run came too late: its migration is over already");
        }
        throw error;
      }
    }
    recorder.record(record.migration, resultTextOf(phase, result));
  }

  #time(): string {
    return new Date(this.#options.clock.now()).toISOString().replace(/\.\d+Z$/, "Z");
  }
}
