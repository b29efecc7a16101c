import type { MigrationState, StorageVersionMigration } from "../api/migration.ts";
import { isNewer } from "../api/resource-version.ts";
import type { MigrationChange } from "./migration-feed.ts";
import { heldBy, isOver, nextOf, type QueuedMigration, queuedOf, takesFreezeOver } from "./migration-queue.ts";

/** What the controller knows of every migration: what the feed told last, or a newer answer to a write of its own. */
export class KnownMigrations {
  readonly #byUid = new Map<string, QueuedMigration>();

  get(uid: string): QueuedMigration | undefined {
    return this.#byUid.get(uid);
  }

  /** All of them, in no order. */
  all(): Iterable<QueuedMigration> {
    return this.#byUid.values();
  }

  /**
   * Takes in what the feed tells.
   * @returns those that are there no more
   */
  apply(change: MigrationChange): readonly QueuedMigration[] {
    switch (change.type) {
      case "listed": {
        const listed = new Set(change.migrations.map(({ metadata }) => metadata.uid));
        const gone = [...this.#byUid.values()].filter(({ uid }) => !listed.has(uid));
        gone.forEach(({ uid }) => this.#byUid.delete(uid));
        change.migrations.forEach((migration) => this.#byUid.set(migration.metadata.uid, queuedOf(migration)));
        return gone;
      }
      case "changed":
        this.#byUid.set(change.migration.metadata.uid, queuedOf(change.migration));
        return [];
      case "deleted": {
        const gone = this.#byUid.get(change.uid);
        this.#byUid.delete(change.uid);
        return gone === undefined ? [] : [gone];
      }
    }
  }

  /** Takes in what the API server answered to a write, ahead of the feed. */
  take(migration: StorageVersionMigration): void {
    const { resourceVersion, uid } = migration.metadata;
    const known = this.#byUid.get(uid);
    if (known !== undefined && isNewer(resourceVersion, known.resourceVersion)) {
      this.#byUid.set(uid, queuedOf(migration));
    }
  }

  /** Has one never begin again that is over, although the feed may be late to say so. What the feed said of its end stays. */
  end(uid: string, state: "Succeeded" | "Failed"): void {
    const known = this.#byUid.get(uid);
    if (known !== undefined && !isOver(known)) {
      this.#byUid.set(uid, { ...known, state });
    }
  }

  /** The migration to begin with, where the resources in `atWork` are being migrated already. */
  next(atWork: Iterable<string>): QueuedMigration | undefined {
    return nextOf(this.all(), new Set([...atWork, ...heldBy(this.all()).keys()]));
  }

  /** As {@link takesFreezeOver}. */
  takesFreezeOver(resource: string): boolean {
    return takesFreezeOver(this.all(), resource);
  }

  /** How many there are in each state. */
  states(): Readonly<Record<MigrationState, number>> {
    const states = { Pending: 0, Running: 0, Waiting: 0, Suspended: 0, Succeeded: 0, Failed: 0 };
    for (const { state } of this.all()) {
      states[state]++;
    }
    return states;
  }
}
