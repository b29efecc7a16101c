import { MigrationQueue, type QueuedMigration } from "../../src/controller/migration-queue.ts";

/** When they are all created where a test does not say. */
export const CREATED = "2026-01-01T00:00:00Z";

/** A migration in a queue, of the resource `${name}s.example.com`. */
export function queued(name: string, fields: Partial<QueuedMigration> = {}): QueuedMigration {
  return {
    name,
    uid: name,
    resourceVersion: "1",
    resource: `${name}s.example.com`,
    created: CREATED,
    state: "Pending",
    isSuspended: false,
    isLowPriority: false,
    isShownToKstatus: true,
    conditions: [],
    ...fields,
  };
}

/** A queue that holds them. */
export function queueOf(migrations: readonly QueuedMigration[]): MigrationQueue {
  const queue = new MigrationQueue();
  for (const migration of migrations) queue.set(migration);
  return queue;
}
