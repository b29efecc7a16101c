import type { Logger } from "pino";
import { hasCondition, resourceNameOf, type StorageVersionMigration } from "../api/migration.ts";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { migrationChanges } from "./migration-feed.ts";

interface Progress {
  readonly resource: string;
  readonly text: string;
}

/** What a {@link ProgressIndex} needs. */
export interface ProgressIndexOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** How far the migrations that are under way are, for the words of a denial. Every replica denies, one migrates. */
export class ProgressIndex {
  readonly #options: ProgressIndexOptions;
  readonly #running = new Map<string, Progress>();

  constructor(options: ProgressIndexOptions) {
    this.#options = options;
  }

  /** In a few words; `undefined` where no migration of this resource (`plural.group`) is under way. */
  of(resource: string): string | undefined {
    return [...this.#running.values()].find((progress) => progress.resource === resource)?.text;
  }

  /** Follows the migrations until the signal is aborted. @param clock what it waits by */
  async run(signal: AbortSignal, clock: Clock = this.#options.clock): Promise<void> {
    const { client, logger } = this.#options;
    const onError = (error: unknown): void =>
      logger.debug({ reason: messageOf(error) }, "Cannot watch StorageVersionMigrations; trying again");
    for await (const change of migrationChanges({ client, clock, signal, onError })) {
      if (change.type === "listed") {
        this.#running.clear();
        for (const migration of change.migrations) {
          this.#take(migration);
        }
      } else if (change.type === "changed") {
        this.#take(change.migration);
      } else {
        this.#running.delete(change.uid);
      }
    }
  }

  #take(migration: StorageVersionMigration): void {
    const { uid, name } = migration.metadata;
    if (!hasCondition(migration, "Running")) {
      this.#running.delete(uid);
      return;
    }
    const { progress } = migration.status ?? {};
    const text = `migrations/${name}${progress === undefined || progress === "" ? "" : `: ${progress} objects`}`;
    this.#running.set(uid, { resource: resourceNameOf(migration.spec.resource), text });
  }
}
