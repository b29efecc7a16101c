import type { Logger } from "pino";
import { isFinal, type StorageVersionMigration } from "../api/migration.ts";
import { parseMigration } from "../api/parse-migration.ts";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import { isNotFound } from "../old/kube/absent.ts";
import { type ApiClient, isConflict } from "../old/kube/client.ts";
import { failedWebhookOf, failureKindOf } from "../old/kube/failure.ts";
import { MERGE_PATCH, MIGRATIONS } from "../old/kube/resources.ts";
import { LoopPace } from "../old/retry/loop-pace.ts";
import { NO_PULSE, type Pulse } from "../pulse.ts";
import type { IdleStatus } from "./idle-phase.ts";
import type { QueuedMigration } from "./migration-queue.ts";

/** What an {@link IdleWriter} needs. */
export interface IdleWriterOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Throws where this replica does not lead any more. */
  readonly assertLeading: () => void;
  /** What is to be written now. */
  readonly due: () => readonly IdleStatus[];
  /** Told of what was written, ahead of the watch. */
  readonly onWritten: (migration: StorageVersionMigration) => void;
}

/** Milliseconds between two rounds, and writes of one round: what the API server answers to them begins the next one. */
const MIN_INTERVAL_MS = 2_000;
const MAX_WRITES = 200;
const WRITE_TIMEOUT_MS = 10_000;
/** A status that was refused is tried again after so many milliseconds without a change. */
const REFUSED_AGAIN_MS = 60_000;

/**
 * Writes the status of migrations that are not being carried out: that they wait or are suspended, and for
 * kstatus what those that are over do not show.
 */
export class IdleWriter {
  readonly #options: IdleWriterOptions;
  /** By uid: why the status of a migration cannot be written, which is said once. */
  readonly #told = new Map<string, string>();
  #woken = Promise.withResolvers<void>();

  constructor(options: IdleWriterOptions) {
    this.#options = options;
  }

  /** Says that something may have changed. */
  wake(): void {
    this.#woken.resolve();
  }

  /** Writes until the signal is aborted. What cannot be written is tried again in a later round; a refusal, with the next change or after a minute. */
  async run(signal: AbortSignal, pulse: Pulse = NO_PULSE): Promise<void> {
    const { clock, due } = this.#options;
    const pace = new LoopPace({ clock, minMs: MIN_INTERVAL_MS });
    signal.addEventListener("abort", () => this.wake(), { once: true });
    this.#told.clear();
    while (!signal.aborted) {
      await pace.turn(signal).catch(() => undefined);
      pulse.rest();
      await this.#untilWoken(signal);
      pulse.beat();
      // From here on a wake is for the next round.
      this.#woken = Promise.withResolvers();
      const dueNow = due();
      this.#forgetAllBut(dueNow);
      for (const status of this.#inTurn(dueNow).slice(0, MAX_WRITES)) {
        if (signal.aborted || !(await this.#write(status, signal))) {
          break;
        }
        pulse.beat();
      }
    }
  }

  async #untilWoken(signal: AbortSignal): Promise<void> {
    const woken = new AbortController();
    const within = AbortSignal.any([signal, woken.signal]);
    const waited = this.#options.clock.sleep(REFUSED_AGAIN_MS, within).catch(() => undefined);
    await (this.#told.size === 0 ? this.#woken.promise : Promise.race([this.#woken.promise, waited]));
    woken.abort();
  }

  /** One that has begun, or is gone, is not written here any more. */
  #forgetAllBut(due: readonly IdleStatus[]): void {
    if (this.#told.size > 0) {
      const uids = new Set(due.map(({ migration }) => migration.uid));
      [...this.#told.keys()].filter((uid) => !uids.has(uid)).forEach((uid) => this.#told.delete(uid));
    }
  }

  /** Those that were refused come last: they keep no other from its turn. */
  #inTurn(due: readonly IdleStatus[]): readonly IdleStatus[] {
    const isTold = ({ migration }: IdleStatus): boolean => this.#told.has(migration.uid);
    return this.#told.size === 0 ? due : [...due.filter((one) => !isTold(one)), ...due.filter(isTold)];
  }

  /** @returns whether to go on with the others */
  async #write(status: IdleStatus, signal: AbortSignal): Promise<boolean> {
    const { assertLeading, client, clock, onWritten } = this.#options;
    const { name, uid } = status.migration;
    const body = bodyOf(status);
    const within = AbortSignal.any([signal, clock.timeout(WRITE_TIMEOUT_MS)]);
    try {
      assertLeading();
      const options = { subresource: "status", signal: within };
      const patch = { type: MERGE_PATCH, body };
      const { object } = parseMigration(await client.patch<unknown>(MIGRATIONS, { name }, patch, options));
      if (object !== undefined) {
        onWritten(object);
      }
      this.#told.delete(uid);
      this.#logWritten(status);
      return true;
    } catch (error) {
      if (isConflict(error) || isNotFound(error)) {
        return true;
      }
      return this.#failed(status.migration, error, signal);
    }
  }

  #logWritten({ migration, phase }: IdleStatus): void {
    const { logger } = this.#options;
    const { conditions, name, resource, state } = migration;
    if (isFinal(phase.type)) {
      logger.debug({ migration: name, resource }, "Wrote for kstatus how a migration ended");
      return;
    }
    const isNew = state !== phase.type || conditions.length === 0;
    const what = phase.type === "Suspended" ? "A migration is suspended" : "A migration is in the queue";
    logger[isNew ? "info" : "debug"]({ migration: name, resource, reason: phase.message }, what);
  }

  /** What is wrong with one migration alone keeps no other from showing its status. */
  #failed({ name, uid }: QueuedMigration, error: unknown, signal: AbortSignal): boolean {
    const { logger } = this.#options;
    if (signal.aborted) {
      return false;
    }
    const reason = messageOf(error);
    const isRefused = failureKindOf(error) === "rejected";
    logger[this.#told.get(uid) === reason ? "debug" : "warn"](
      { migration: name, reason },
      "Cannot write the status of a migration; trying again",
    );
    this.#told.set(uid, reason);
    if (!isRefused) {
      this.wake();
    }
    return isRefused || failedWebhookOf(error) !== undefined;
  }
}

/** One that was written since, or that has begun, says by a conflict that this is out of date. */
function bodyOf({ migration, conditions }: IdleStatus): object {
  const { generation, resourceVersion, uid } = migration;
  const observed = generation === undefined ? {} : { observedGeneration: generation };
  return {
    metadata: { uid, resourceVersion },
    status: { ...observed, conditions },
  };
}
