import { isDeepStrictEqual } from "node:util";
import { withKstatus } from "../api/kstatus.ts";
import {
  isFinished,
  isSuspended,
  type MigrationStatus,
  stateOf,
  type StorageVersionMigration,
} from "../api/migration.ts";
import { MAX_TOKEN_LENGTH } from "../api/parse-migration.ts";
import { KsvmError } from "../errors.ts";
import { type FreezeOwner, parseOwner } from "../freeze/freeze.ts";
import { OWNER } from "../freeze/rule.ts";
import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import { retry } from "../kube/retry.ts";
import { isThere, migrationOf, MigrationUnreadable } from "../migrations/read-migration.ts";
import type { Tally } from "../migrator/types.ts";
import { conditionsIn, type Phase, progressOf } from "./migration-status.ts";

/** Where a StorageVersionMigration is. */
export function migrationPath(name: string): string {
  return `/apis/migration.k8s.io/v1alpha1/storageversionmigrations/${encodeURIComponent(name)}`;
}

/** Ends a run that may not go on: its migration was deleted, suspended or taken over, or is over already. */
export class MigrationStopped extends KsvmError {
  override readonly name = "MigrationStopped";

  constructor(code: "NotFound" | "Interrupted" | "Conflict" | "OwnershipLost", migration: string, why: string) {
    super(code, `Cannot continue: StorageVersionMigration "${migration}" ${why}`);
  }

  static deleted(migration: string): MigrationStopped {
    return new MigrationStopped("NotFound", migration, "was deleted");
  }

  static suspended(migration: string): MigrationStopped {
    return new MigrationStopped("Interrupted", migration, "was suspended");
  }
}

/** What a {@link MigrationRecord} needs. */
export interface RecordOptions {
  readonly client: Client;
  /** Which replica leads, and by which Lease. */
  readonly owner: FreezeOwner;
  /** Throws where this replica does not lead any more. */
  readonly assertLeading: () => void;
}

/** What a run shows of itself. */
export interface Shown {
  phase: Phase;
  tally?: Readonly<Tally>;
  continueToken?: string | undefined;
}

/** A status as it is written. What is null is taken away. */
type StatusChange = Omit<MigrationStatus, "completionTime"> & { readonly completionTime?: string | null };

/** How long what fails is tried again, in milliseconds. Others have their turn then. */
const CLAIM_MS = 60_000;
/** What a run does is shown again soon. */
const SHOW_MS = 10_000;
/** Its work is done. */
const FINISH_MS = 600_000;
/** After a conflict, in milliseconds: at first, and at most. */
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 5_000;
const UNSERVED_MS = 60_000;

/**
 * What the leader writes to one StorageVersionMigration, one write after the other. Every write has the resourceVersion
 * as precondition, and the first one puts the leader's name on the object. A leader that wakes up after another one took
 * over meets a conflict, finds the other's name, and writes nothing.
 */
export class MigrationRecord {
  readonly #options: RecordOptions;
  #current: StorageVersionMigration;

  private constructor(options: RecordOptions, current: StorageVersionMigration) {
    this.#options = options;
    this.#current = current;
  }

  /**
   * Puts the leader's name on a migration.
   * @returns `undefined` where it is finished, suspended, deleted, or cannot be read
   */
  static async claim(
    options: RecordOptions,
    { name, uid }: { readonly name: string; readonly uid: string },
    signal: AbortSignal,
  ): Promise<MigrationRecord | undefined> {
    const limits = { signal, forMs: CLAIM_MS };
    const found = await readMigration(options.client, name, limits);
    if (!isThere(found, uid) || isFinished(found) || isSuspended(found)) return undefined;
    const record = new MigrationRecord(options, found);
    const mark = JSON.stringify(options.owner);
    if (found.metadata.annotations?.[OWNER] === mark) return record;
    try {
      await record.#patch({ metadata: { annotations: { [OWNER]: mark } } }, "", limits);
      return record;
    } catch (error) {
      if (isMissed(error)) return undefined;
      throw error;
    }
  }

  /** The migration as it was last read or written. */
  get migration(): StorageVersionMigration {
    return this.#current;
  }

  /**
   * Shows what it does, and how far it is.
   * @throws {MigrationStopped}; {ApiError} where it cannot be written for some seconds
   */
  async show({ continueToken, phase, tally }: Shown, signal: AbortSignal): Promise<void> {
    const limits = { signal, forMs: SHOW_MS };
    await this.#saveToken(continueToken, limits, assertWanted);
    const now = this.#time();
    await this.#writeStatus(limits, (migration) => {
      assertWanted(migration);
      const { completionTime: _, ...before } = migration.status ?? {};
      return {
        ...before,
        ...(tally === undefined ? {} : progressOf(tally)),
        // One that is carried out again, as its user has cleared its conditions, is not over.
        completionTime: null,
        startTime: before.startTime ?? now,
        conditions: conditionsIn(phase, before.conditions ?? [], now),
      };
    });
  }

  /**
   * Shows how it ended. How a migration ended is written once, by the first writer, and never overwritten.
   * @param confirm throws where the migration, as it was read last, must not end so
   * @throws what `confirm` throws; {MigrationStopped}; {ApiError} where it is refused
   */
  async finish(
    phase: Phase,
    report: Partial<MigrationStatus>,
    signal: AbortSignal,
    confirm: (migration: StorageVersionMigration) => void = () => undefined,
  ): Promise<void> {
    const limits = { signal, forMs: FINISH_MS };
    const now = this.#time();
    let sent: MigrationStatus["conditions"];
    try {
      await this.#saveToken(undefined, limits);
      await this.#writeStatus(limits, (migration) => {
        confirm(migration);
        const before = migration.status ?? {};
        const conditions = conditionsIn(phase, before.conditions ?? [], now);
        sent = withKstatus(conditions);
        return { ...before, ...report, completionTime: before.completionTime ?? now, conditions };
      });
    } catch (error) {
      // A try whose answer was lost may have arrived: the next one finds the end that it wrote.
      if (!isFinished(this.#current) || !isDeepStrictEqual(this.#current.status?.conditions, sent)) throw error;
    }
  }

  async #saveToken(
    token: string | undefined,
    limits: Limits,
    confirm: (migration: StorageVersionMigration) => void = () => undefined,
  ): Promise<void> {
    // It serves only those who watch. One that our CRD does not take is left out.
    const shown = (token?.length ?? 0) > MAX_TOKEN_LENGTH ? undefined : token;
    await this.#write(limits, "", (migration) => {
      confirm(migration);
      const isShown = (migration.spec.continueToken ?? "") === (shown ?? "");
      return isShown ? undefined : { spec: { continueToken: shown ?? null } };
    });
  }

  /** The conditions get those that kstatus reads. */
  async #writeStatus(limits: Limits, change: (migration: StorageVersionMigration) => StatusChange): Promise<void> {
    const wanted = (migration: StorageVersionMigration): StatusChange => {
      const { generation } = migration.metadata;
      const status = change(migration);
      const observed = generation === undefined ? {} : { observedGeneration: generation };
      return { ...status, ...observed, conditions: withKstatus(status.conditions ?? []) };
    };
    await this.#write(limits, "/status", (migration) => {
      const { completionTime, ...status } = wanted(migration);
      const shown = { ...status, ...(typeof completionTime === "string" ? { completionTime } : {}) };
      return isDeepStrictEqual(shown, migration.status) ? undefined : { status: { ...status, completionTime } };
    });
    // A write to a status that is no subresource answers 200 and does nothing: what counts is what came back.
    const { metadata, status } = this.#current;
    if (!isDeepStrictEqual(status?.conditions ?? [], wanted(this.#current).conditions)) {
      const text = `Cannot write the status of StorageVersionMigration "${metadata.name}": it reads back differently`;
      throw new KsvmError("ApiRequestFailed", `${text}; check its CRD`);
    }
  }

  /** @param body of a merge patch; `undefined` where nothing is to be written */
  async #write(
    limits: Limits,
    subresource: "" | "/status",
    body: (migration: StorageVersionMigration) => object | undefined,
  ): Promise<void> {
    const { clock } = this.#options.client;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
      const patch = body(this.#current);
      if (patch === undefined) return;
      try {
        await this.#patch(patch, subresource, limits);
        return;
      } catch (error) {
        if (!isMissed(error)) throw error;
      }
      await clock.sleep(pauseMs, limits.signal);
      await this.#readAgain(limits);
    }
  }

  async #patch(body: { readonly metadata?: object }, subresource: "" | "/status", limits: Limits): Promise<void> {
    const { assertLeading, client } = this.#options;
    const { name, resourceVersion, uid } = this.#current.metadata;
    const patch = { ...body, metadata: { ...body.metadata, uid, resourceVersion } };
    const path = `${migrationPath(name)}${subresource}`;
    const send = (): Promise<unknown> => {
      assertLeading();
      return client.patch(path, patch, { signal: limits.signal });
    };
    this.#current = migrationOf(await retry(client, send, limits));
  }

  /** @throws {MigrationStopped} where it is not ours any more, whatever went wrong */
  async #readAgain(limits: Limits): Promise<void> {
    const { client, owner } = this.#options;
    const { name, uid } = this.#current.metadata;
    const found = await readMigration(client, name, limits);
    if (!isThere(found, uid)) throw MigrationStopped.deleted(name);
    const shown = found.metadata.annotations?.[OWNER];
    if (shown !== JSON.stringify(owner)) throw takenOver(name, owner, parseOwner(shown));
    this.#current = found;
    if (isFinished(found)) throw new MigrationStopped("Conflict", name, `is ${stateOf(found)} already`);
  }

  #time(): string {
    return new Date(this.#options.client.clock.now()).toISOString().replace(/\.\d+Z$/, "Z");
  }
}

/** The watch may be late, or deaf. */
function assertWanted(migration: StorageVersionMigration): void {
  if (isSuspended(migration)) throw MigrationStopped.suspended(migration.metadata.name);
}

interface Limits {
  readonly signal: AbortSignal;
  readonly forMs: number;
}

/** Whether another client wrote it meanwhile, or it may be gone. */
function isMissed(error: unknown): boolean {
  return whose(error) === "conflict" || whose(error) === "gone";
}

/**
 * Of several API servers one may not serve our CRD yet, or a proxy may answer: a 404 that does not name the migration
 * says nothing about it. After a minute of them the run ends.
 *
 * @returns `undefined` where it is gone, or cannot be read: those that list all of them name it
 */
async function readMigration(
  client: Client,
  name: string,
  limits: Limits,
): Promise<StorageVersionMigration | undefined> {
  const { clock } = client;
  const find = (): Promise<unknown> => client.find(migrationPath(name), { signal: limits.signal });
  for (const end = clock.monotonic() + UNSERVED_MS; ; ) {
    try {
      const found = await retry(client, find, limits);
      return found === undefined ? undefined : migrationOf(found);
    } catch (error) {
      if (error instanceof MigrationUnreadable) return undefined;
      if (whose(error) !== "gone" || clock.monotonic() >= end) throw error;
    }
    await clock.sleep(LONGEST_PAUSE_MS, limits.signal);
  }
}

/** A migration that has the name of another replica by now, of a later leader or of another installation, or none. */
function takenOver(migration: string, own: FreezeOwner, other: FreezeOwner | undefined): MigrationStopped {
  if (other === undefined) {
    const why = "says no longer who carries it out: another client changed its annotation";
    return new MigrationStopped("OwnershipLost", migration, why);
  }
  const advice = other.lease === own.lease ? "" : "; remove one of the two installations of ksvm";
  const why = `was taken over by replica "${other.identity}", which leads by Lease "${other.lease}"${advice}`;
  return new MigrationStopped("OwnershipLost", migration, why);
}
