import { isFinal, type MigrationState, type StorageVersionMigration } from "../api/migration.ts";
import { isNewer } from "../api/resource-version.ts";
import type { MigrationChange } from "../migrations/migration-feed.ts";
import { MigrationQueue, type QueuedMigration, queuedOf } from "./migration-queue.ts";

/** What the controller knows of every migration: what the feed told last, or a newer answer to a write of its own. */
export class KnownMigrations {
  /** In their order. */
  readonly queue = new MigrationQueue();

  /**
   * Takes in what the feed tells.
   * @returns those that are there no more
   */
  apply(change: MigrationChange): readonly QueuedMigration[] {
    switch (change.type) {
      case "listing":
        return [];
      case "listed": {
        const listed = new Set(change.migrations.map(({ metadata }) => metadata.uid));
        const gone = [...this.queue].filter(({ uid }) => !listed.has(uid));
        gone.forEach(({ uid }) => this.queue.delete(uid));
        // Whatever their resourceVersions: after a restore of etcd they are lower than those known.
        change.migrations.forEach((migration) => this.queue.set(queuedOf(migration)));
        return gone;
      }
      case "changed":
        if (this.queue.get(change.migration.metadata.uid) === undefined) {
          this.queue.set(queuedOf(change.migration));
        } else {
          this.take(change.migration);
        }
        return [];
      case "deleted": {
        const gone = this.queue.delete(change.uid);
        return gone === undefined ? [] : [gone];
      }
    }
  }

  /** Takes in what the API server answered to a write, ahead of the feed. */
  take(migration: StorageVersionMigration): void {
    const { resourceVersion, uid } = migration.metadata;
    const known = this.queue.get(uid);
    if (known !== undefined && isNewer(resourceVersion, known.resourceVersion)) {
      this.queue.set(queuedOf(migration));
    }
  }

  /** Has one never begin again that is over, although the feed may be late to say so. What the feed said of its end stays. */
  end(uid: string, state: "Succeeded" | "Failed"): void {
    const known = this.queue.get(uid);
    if (known !== undefined && !isFinal(known.state)) {
      this.queue.set({ ...known, state, isShownToKstatus: true });
    }
  }

  /** How many there are in each state. */
  states(): Readonly<Record<MigrationState, number>> {
    return this.queue.states;
  }
}
