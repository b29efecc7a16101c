import { hasCondition, resourceNameOf, type StorageVersionMigration } from "../api/migration.ts";
import type { MigrationChange, MigrationFeed } from "../migrations/migration-feed.ts";

interface Progress {
  readonly resource: string;
  readonly text: string;
}

/** How far the migrations that are under way are, for the words of a denial. Every replica denies, one migrates. */
export class ProgressIndex {
  readonly #feed: Pick<MigrationFeed, "follow">;
  readonly #running = new Map<string, Progress>();

  constructor(feed: Pick<MigrationFeed, "follow">) {
    this.#feed = feed;
  }

  /** In a few words; `undefined` where no migration of this resource (`plural.group`) is under way. */
  of(resource: string): string | undefined {
    return [...this.#running.values()].find((progress) => progress.resource === resource)?.text;
  }

  /** Follows the migrations until the signal is aborted. */
  run(signal: AbortSignal): Promise<void> {
    return this.#feed.follow((change) => this.#apply(change), signal);
  }

  #apply(change: MigrationChange): void {
    if (change.type === "listed") {
      this.#running.clear();
      change.migrations.forEach((migration) => this.#take(migration));
    } else if (change.type === "changed") {
      this.#take(change.migration);
    } else if (change.type === "deleted") {
      this.#running.delete(change.uid);
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
