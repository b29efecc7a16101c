import pino from "pino";
import tap from "tap";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { parseMigration } from "../../src/api/parse-migration.ts";
import { deleteExpired } from "../../src/controller/delete-expired.ts";
import { pastEndOf } from "../../src/controller/expiry.ts";
import { type QueuedMigration, queuedOf } from "../../src/controller/migration-queue.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { prune } from "../../src/json/json-projection.ts";
import { MIGRATION_FIELDS } from "../../src/migrations/migration-fields.ts";
import { ManualClock } from "../manual-clock.ts";

const ENDED = "2025-01-01T00:00:00Z";

function migration(name: string, deletionTimestamp?: string): StorageVersionMigration {
  return {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: {
      name,
      uid: name,
      resourceVersion: "1",
      ...(deletionTimestamp === undefined ? {} : { deletionTimestamp }),
    },
    spec: { resource: { group: "", version: "v1", resource: "pods" }, ttlSecondsAfterFinished: 1 },
    status: { conditions: [{ type: "Succeeded", status: "True" }], completionTime: ENDED },
  };
}

/** As the controller reads it. */
function asRead(deletionTimestamp?: string): StorageVersionMigration {
  const { object } = parseMigration(prune(migration("one", deletionTimestamp), MIGRATION_FIELDS));
  if (object === undefined) throw new Error("it can be read");
  return object;
}

await tap.test("one that is deleted already, and kept by a finalizer, is not due", async (t) => {
  t.ok(pastEndOf(asRead()), "negative control");
  t.equal(pastEndOf(asRead(ENDED)), undefined);
});

await tap.test("deleteExpired() gets to all others where the cluster refuses to delete some", async (t) => {
  const clock = new ManualClock();
  const abort = new AbortController();
  const names = Array.from({ length: 120 }, (_, number) => `m${number}`);
  const left = new Map<string, QueuedMigration>(names.map((name) => [name, queuedOf(migration(name))]));
  const refused = new Set(names.slice(0, 60));
  let tries = 0;
  const client = {
    delete: async (_: unknown, { name }: { readonly name: string }) => {
      tries++;
      if (refused.has(name)) throw new Error("a policy refuses it");
      left.delete(name);
    },
  } as unknown as ApiClient;
  const options = {
    client,
    clock,
    logger: pino({ level: "silent" }),
    assertLeading: () => undefined,
    finishedLimit: 0,
    idle: () => left.values(),
  };
  const running = deleteExpired(options, abort.signal);
  await clock.advance(9_000);
  t.equal(tries, 5, "so many failures end a round: it may be the API server itself");
  await clock.advance(200_000);
  t.same([...left.keys()], [...refused], "all that may be deleted is gone");
  refused.clear();
  await clock.advance(200_000);
  t.equal(left.size, 0, "each of the others is tried again, not only the first ones");
  abort.abort();
  await running;
});
