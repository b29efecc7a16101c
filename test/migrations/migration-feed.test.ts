import tap from "tap";
import { parseMigration } from "../../src/api/parse-migration.ts";
import {
  ATTEMPT_ANNOTATION,
  CREATED_BY_LABEL,
  CREATED_BY_TRIGGER,
  HASH_ANNOTATION,
  PRIORITY_ANNOTATION,
} from "../../src/api/names.ts";
import { queuedOf } from "../../src/controller/migration-queue.ts";
import { prune } from "../../src/old/json/json-projection.ts";
import { MIGRATION_FIELDS } from "../../src/migrations/migration-feed.ts";
import { migrationFactsOf } from "../../src/trigger/migration-facts.ts";

const WHOLE = {
  apiVersion: "migration.k8s.io/v1alpha1",
  kind: "StorageVersionMigration",
  metadata: {
    name: "m",
    uid: "u",
    resourceVersion: "7",
    creationTimestamp: "2026-01-01T00:00:00Z",
    labels: { [CREATED_BY_LABEL]: CREATED_BY_TRIGGER, other: "x" },
    annotations: {
      [ATTEMPT_ANNOTATION]: "3",
      [HASH_ANNOTATION]: "h",
      [PRIORITY_ANNOTATION]: "low",
      other: "x",
    },
    managedFields: [{ manager: "x" }],
  },
  spec: { resource: { group: "example.com", version: "v1", resource: "widgets" }, suspend: true, continueToken: "t" },
  status: {
    conditions: [
      { type: "Running", status: "True", reason: "r", message: "m", lastUpdateTime: "2026-01-02T00:00:00Z" },
      { type: "Suspended", status: "True" },
    ],
    crd: "uid/3",
    progress: "1/2",
    failures: [{ name: "o", reason: "r" }],
  },
};

// What a new field of either would show first: the feed leaves out what is not named in its projection.
await tap.test("MIGRATION_FIELDS has everything that the queue and the trigger read", async (t) => {
  const failed = {
    ...WHOLE,
    status: { ...WHOLE.status, conditions: [{ type: "Failed", status: "True", reason: "no" }] },
  };
  for (const value of [WHOLE, failed]) {
    const [whole, kept] = [parseMigration(value).object, parseMigration(prune(value, MIGRATION_FIELDS)).object];
    if (whole === undefined || kept === undefined) {
      t.fail("it can be read");
      return;
    }
    t.same(queuedOf(kept), queuedOf(whole));
    t.same(migrationFactsOf(kept), migrationFactsOf(whole));
    t.same(kept.status?.progress, whole.status?.progress);
    t.notOk(Object.keys(migrationFactsOf(whole)).includes("undefined"));
    t.equal(kept.status?.failures, undefined);
  }
});
