import { isDeepStrictEqual } from "node:util";
import {
  isFinished,
  isSuspended,
  type MigrationCondition,
  type MigrationStatus,
  type StorageVersionMigration,
} from "../api/migration.ts";
import { withKstatus } from "../api/kstatus.ts";
import { OWNER_ANNOTATION } from "../api/names.ts";
import { MAX_TOKEN_LENGTH, parseMigration } from "../api/parse-migration.ts";
import { type FreezeOwner, formatOwner } from "../api/owner.ts";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import { isNotFound } from "../old/kube/absent.ts";
import { type ApiClient, isConflict } from "../old/kube/client.ts";
import { MERGE_PATCH, MIGRATIONS } from "../old/kube/resources.ts";
import { failureKindOf } from "../old/kube/failure.ts";
import { isThere, migrationOf } from "../migrations/read-migration.ts";
import { LoopPace } from "../old/retry/loop-pace.ts";
import type { Retrier } from "../old/retry/retrier.ts";
import { MigrationDeleted, MigrationOver, MigrationSuspended } from "./migration-ends.ts";
import type { StatusChange } from "./migration-status.ts";
import { MigrationTaken } from "./migration-taken.ts";

/** Between two writes of which the first met a conflict, in milliseconds: at first, and at most. */
const MIN_INTERVAL_MS = 50;
const MAX_INTERVAL_MS = 5_000;
const UNSERVED_PATIENCE_MS = 60_000;

/** What a {@link MigrationRecord} needs. */
export interface MigrationRecordOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  /** Without a limit: an API server that is down is waited for. */
  readonly retrier: Retrier;
  /** Which replica leads, and by which Lease. */
  readonly owner: FreezeOwner;
  /** Throws where this replica does not lead any more. */
  readonly assertLeading: () => void;
  readonly signal: AbortSignal;
}

/**
 * What the leader writes to one StorageVersionMigration. Every write has the resourceVersion as precondition, and the
 * first one puts the leader's name on the object: one that wakes up after another took over gets a conflict, finds the
 * other's name, and writes nothing.
 */
export class MigrationRecord {
  readonly #options: MigrationRecordOptions;
  #current: StorageVersionMigration;
  #writes: Promise<unknown> = Promise.resolve();

  private constructor(options: MigrationRecordOptions, current: StorageVersionMigration) {
    this.#options = options;
    this.#current = current;
  }

  /**
   * Puts the leader's name on a migration.
   * @returns `undefined` where it is finished, deleted, or cannot be read
   * @throws {MigrationSuspended}
   */
  static async claim(
    options: MigrationRecordOptions,
    ref: { readonly name: string; readonly uid: string },
  ): Promise<MigrationRecord | undefined> {
    const { client, retrier, signal } = options;
    const pace = paceOf(options);
    for (;;) {
      await pace.turn(signal);
      const answer = await retrier.run(() => client.find<unknown>(MIGRATIONS, ref, { signal }), signal);
      // One that cannot be read is left out and named by those that list all of them.
      const found = answer === undefined ? undefined : parseMigration(answer).object;
      if (!isThere(found, ref.uid) || isFinished(found)) {
        return undefined;
      }
      if (isSuspended(found)) {
        throw new MigrationSuspended(ref.name);
      }
      const record = new MigrationRecord(options, found);
      if (await record.#claim()) {
        return record;
      }
    }
  }

  /** The migration as it was last read or written. */
  get migration(): StorageVersionMigration {
    return this.#current;
  }

  /**
   * Writes the status that `change` makes of the one that is there. How a migration ended is written once, by the
   * first writer: it is never overwritten.
   * @throws {MigrationDeleted}; {MigrationUnreadable}; {MigrationOver}; {KsvmError} OwnershipLost where another replica took
   *   over.
   */
  update(change: (before: MigrationStatus) => StatusChange): Promise<void> {
    const shown = ({ metadata, status = {} }: StorageVersionMigration): StatusChange =>
      shownOf(change(status), metadata.generation);
    return this.#inTurn(async () => {
      const answer = await this.#write((before) => ({ status: shown(before) }), "status");
      assertStored(answer, shown(answer).conditions ?? []);
    });
  }

  /**
   * Writes `spec.continueToken`, or takes it away.
   * @throws as {@link update}.
   */
  saveToken(continueToken: string | undefined): Promise<void> {
    // It serves only those who watch. One that our CRD does not take is left out.
    const shown = (continueToken?.length ?? 0) > MAX_TOKEN_LENGTH ? undefined : continueToken;
    return this.#inTurn(async () => {
      if ((this.#current.spec.continueToken ?? "") !== (shown ?? "")) {
        await this.#write(() => ({ spec: { continueToken: shown ?? null } }));
      }
    });
  }

  /**
   * Makes sure that the migration is there, ours, and not over.
   * @throws as {@link update}.
   */
  check(): Promise<void> {
    return this.#inTurn(() => this.#readAgain());
  }

  async #claim(): Promise<boolean> {
    try {
      await this.#patch({ metadata: { annotations: { [OWNER_ANNOTATION]: formatOwner(this.#options.owner) } } });
      return true;
    } catch (error) {
      if (isConflict(error) || isNotFound(error)) {
        return false;
      }
      throw error;
    }
  }

  /** One write after the other: each needs the resourceVersion that the one before it left. */
  #inTurn(work: () => Promise<void>): Promise<void> {
    const turn = this.#writes.then(work);
    this.#writes = turn.catch(() => undefined);
    return turn;
  }

  async #write(
    bodyOf: (before: StorageVersionMigration) => object,
    subresource?: string,
  ): Promise<StorageVersionMigration> {
    const pace = paceOf(this.#options);
    for (;;) {
      await pace.turn(this.#options.signal);
      this.#assertUnfinished();
      try {
        return await this.#patch(bodyOf(this.#current), subresource);
      } catch (error) {
        if (!isConflict(error) && !isNotFound(error)) {
          throw error;
        }
        await this.#readAgain();
      }
    }
  }

  async #patch(body: object, subresource?: string): Promise<StorageVersionMigration> {
    const { assertLeading, client, retrier, signal } = this.#options;
    const { uid, resourceVersion } = this.#current.metadata;
    const metadata = { ...(body as { metadata?: object }).metadata, uid, resourceVersion };
    const patch = { type: MERGE_PATCH, body: { ...body, metadata } };
    const options = subresource === undefined ? { signal } : { signal, subresource };
    const send = (): Promise<unknown> => {
      assertLeading();
      return client.patch<unknown>(MIGRATIONS, this.#current.metadata, patch, options);
    };
    this.#current = migrationOf(await retrier.run(send, signal));
    return this.#current;
  }

  /**
   * Of several API servers one may not serve our CRD yet, or a proxy may answer: a 404 that does not name the migration
   * says nothing about it. After a minute of them the run is broken off, and tried again later.
   */
  async #whileServed<T>(read: () => Promise<T>): Promise<T> {
    const { clock, signal } = this.#options;
    const pace = paceOf(this.#options);
    const deadline = clock.monotonic() + UNSERVED_PATIENCE_MS;
    for (;;) {
      await pace.turn(signal);
      try {
        return await read();
      } catch (error) {
        if (failureKindOf(error) !== "unserved" || clock.monotonic() >= deadline) {
          throw error;
        }
      }
    }
  }

  async #readAgain(): Promise<void> {
    const { client, owner, retrier, signal } = this.#options;
    const { name, uid } = this.#current.metadata;
    const find = (): Promise<unknown> => client.find(MIGRATIONS, { name }, { signal });
    const answer = await this.#whileServed(() => retrier.run(find, signal));
    const found = answer === undefined ? undefined : migrationOf(answer);
    if (!isThere(found, uid)) {
      throw new MigrationDeleted(name);
    }
    const shown = found.metadata.annotations?.[OWNER_ANNOTATION];
    if (shown !== formatOwner(owner)) {
      throw new MigrationTaken(name, owner, shown);
    }
    this.#current = found;
    this.#assertUnfinished();
  }

  #assertUnfinished(): void {
    if (isFinished(this.#current)) {
      throw new MigrationOver(this.#current);
    }
  }
}

/** Other clients that write it at the same time, or an API server that answers 404, are not met as fast as it goes. */
function paceOf({ clock }: MigrationRecordOptions): LoopPace {
  return new LoopPace({ clock, minMs: MIN_INTERVAL_MS, maxMs: MAX_INTERVAL_MS });
}

/** A status as it is written: with what kstatus reads. The resourceVersion that goes with it is of that generation. */
function shownOf(status: StatusChange, generation: number | undefined): StatusChange {
  const observed = generation === undefined ? {} : { observedGeneration: generation };
  return { ...status, ...observed, conditions: withKstatus(status.conditions ?? []) };
}

/** A write to a status that is no subresource answers 200 and does nothing: what counts is what came back. */
function assertStored({ metadata, status }: StorageVersionMigration, wanted: readonly MigrationCondition[]): void {
  if (!isDeepStrictEqual(status?.conditions ?? [], wanted)) {
    const text = `Cannot write the status of StorageVersionMigration "${metadata.name}": it reads back differently`;
    throw new KsvmError("ApiRequestFailed", `${text}; check its CRD`);
  }
}
