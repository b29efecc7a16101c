import { isDeepStrictEqual } from "node:util";
import type { Logger } from "pino";
import { resourceNameOf, type StorageVersionMigration } from "../api/migration.ts";
import { FORCE_ANNOTATION, REENCRYPT_ANNOTATION } from "../api/names.ts";
import { type ReencryptionWish, reencryptionWishOf } from "../api/reencryption.ts";
import { KsvmError, messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { migrate, type RunSettings } from "../migrator/migrate.ts";
import type { MigrationEvent, MigrationResult } from "../migrator/types.ts";
import { Waker } from "../waker.ts";
import { encryptionEvidence } from "../reencrypt/evidence.ts";
import { reencryptResource } from "../reencrypt/reencrypt.ts";
import { type EventRecorder, eventText, phaseText } from "./event-recorder.ts";
import { type MigrationRecord, MigrationStopped, type Shown } from "./migration-record.ts";
import { type Phase, phaseAfter, phaseAfterError, phaseIn, reportIn } from "./migration-status.ts";

/** What the runs of a replica share. */
export interface RunContext {
  readonly client: Client;
  readonly runs: RunSettings;
  readonly recorder: EventRecorder;
  /** What was waited for already, since this replica leads: see `BuiltInOptions`. */
  readonly settled: Set<string>;
}

/** One run of a migration. */
export interface RunOptions extends RunContext {
  /** Unique to this replica and this migration. */
  readonly identity: string;
  readonly logger: Logger;
  /** Why the run before this one waits; empty where it does not. It is told once. */
  readonly waitedFor: string;
  /** Told of every event of the engine. */
  readonly onEvent: (event: MigrationEvent) => void;
  /** Aborted when the migration is deleted or suspended, or this replica must stop. */
  readonly signal: AbortSignal;
}

/** How often the status shows how far a run is, in milliseconds. */
const SHOW_EVERY_MS = 2_000;

/**
 * Carries a migration out once: until it has succeeded or failed, or waits for what may pass. Its status says which.
 * @throws {MigrationStopped}; the signal's reason; {ApiError} where the status cannot be written
 */
export async function runMigration(record: MigrationRecord, options: RunOptions): Promise<Phase> {
  const { client, logger, onEvent, recorder, signal, waitedFor } = options;
  const stopped = new AbortController();
  const ended = new AbortController();
  const running = AbortSignal.any([signal, stopped.signal]);
  const shown: Shown = { phase: { type: "Running" } };
  const changed = new Waker();

  const takeIn = (event: MigrationEvent): void => {
    onEvent(event);
    if (event.type === "progress") {
      shown.tally = { ...event.tally };
      shown.continueToken = event.continueToken ?? shown.continueToken;
    } else {
      logger.debug({ event }, "Run event");
      const text = eventText(event);
      if (text !== undefined) recorder.record(record.migration, text);
    }
    const phase = phaseIn(event);
    if (phase === undefined || isDeepStrictEqual(phase, shown.phase)) return;
    if (phase.type === "Waiting") logger.warn({ ...phase }, "A migration waits, without a freeze");
    shown.phase = phase;
    changed.wake();
  };

  const keepShowing = async (): Promise<void> => {
    for (const until = AbortSignal.any([running, ended.signal]); !until.aborted; ) {
      changed.begin();
      try {
        await record.show(shown, until);
      } catch (error) {
        if (error instanceof MigrationStopped) stopped.abort(error);
        else logger.debug({ reason: messageOf(error) }, "Cannot show how far a migration is; trying again");
      }
      await changed.wait(SHOW_EVERY_MS, client.clock, until).catch(() => undefined);
    }
  };

  await record.show(shown, signal);
  const showing = keepShowing();
  try {
    const wish = wishOf(record.migration);
    const result = await migrateAsWished(record.migration, wish, { ...options, signal: running, onEvent: takeIn });
    ended.abort();
    await showing;
    logger.info({ outcome: result.outcome, tally: result.tally }, "A migration ended");
    const phase = phaseAfter(result);
    await record.finish(phase, reportIn(result), signal, (migration) => assertStillWanted(migration, wish));
    recorder.record(record.migration, phaseText(phase, result));
    return phase;
  } catch (error) {
    ended.abort();
    await showing;
    running.throwIfAborted();
    if (error instanceof MigrationStopped) throw error;
    const phase = phaseAfterError(error);
    logger.warn({ err: error, phase: phase.type }, "An attempt to migrate ended with an error");
    if (phase.type === "Failed") await record.finish(phase, {}, signal);
    else await record.show({ phase }, signal);
    if (phase.reason !== waitedFor) recorder.record(record.migration, phaseText(phase));
    return phase;
  }
}

/** By the workflow of `ksvm migrate`, or by that of `ksvm reencrypt`. */
async function migrateAsWished(
  { spec }: StorageVersionMigration,
  { force, reencryption }: Wish,
  { client, identity, onEvent, runs, settled, signal }: RunOptions,
): Promise<MigrationResult> {
  const resource = resourceNameOf(spec.resource);
  const options = { ...runs, identity, force, signal, onEvent };
  if (reencryption !== undefined) {
    const evidence = encryptionEvidence({ ...reencryption, namedBy: `the annotation ${REENCRYPT_ANNOTATION}` });
    return reencryptResource(client, resource, { ...options, evidence, settled });
  }
  const [end] = await migrate(client, [resource], { ...options, ...(force ? {} : { settled }) });
  if (end === undefined) throw new KsvmError("Internal", `the run of "${resource}" has no end`);
  if ("error" in end) throw end.error;
  return end.result;
}

/** What the annotations of a migration ask of its runs. */
interface Wish {
  /** Every object is written again, also where the CRD is clean. A re-encryption does that by itself. */
  readonly force: boolean;
  /** Missing where it does not re-encrypt. */
  readonly reencryption: ReencryptionWish | undefined;
}

/** @throws {KsvmError} AnnotationInvalid */
function wishOf({ metadata: { annotations } }: StorageVersionMigration): Wish {
  const reencryption = reencryptionWishOf(annotations);
  return { force: annotations?.[FORCE_ANNOTATION] === "true" || reencryption !== undefined, reencryption };
}

/**
 * A user who asks for more while a run goes on must not read that it succeeded. One who no longer asks for force gets
 * more than that.
 *
 * @throws {KsvmError} Conflict: the migration begins again
 */
function assertStillWanted(migration: StorageVersionMigration, done: Wish): void {
  const now = wishOf(migration);
  const isOther = !isDeepStrictEqual(now.reencryption, done.reencryption);
  if (!isOther && (done.force || !now.force)) return;
  const text = `its annotation ${isOther ? REENCRYPT_ANNOTATION : FORCE_ANNOTATION} was changed during the run`;
  const { name } = migration.metadata;
  throw new KsvmError("Conflict", `Cannot end StorageVersionMigration "${name}": ${text}; it begins again`);
}
