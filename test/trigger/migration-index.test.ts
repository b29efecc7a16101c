import tap from "tap";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { HASH_ANNOTATION, REENCRYPT_ANNOTATION } from "../../src/api/names.ts";
import { MigrationIndex } from "../../src/trigger/migration-index.ts";

function migrationAt(
  resourceVersion: string,
  type: "Running" | "Succeeded",
  annotations: Readonly<Record<string, string>> = {},
): StorageVersionMigration {
  return {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { name: "m", uid: "u", resourceVersion, annotations },
    spec: { resource: { group: "b", version: "v1", resource: "a" } },
    status: { conditions: [{ type, status: "True" }] },
  };
}

await tap.test("MigrationIndex takes a list for the whole truth, also after a restore of etcd", async (t) => {
  const changed: string[] = [];
  const index = new MigrationIndex((name) => changed.push(name));
  index.apply({ type: "listing" });
  index.apply({ type: "listed", migrations: [migrationAt("900", "Succeeded")] });
  t.equal(index.of("a.b")[0]?.state, "Succeeded");
  index.apply({ type: "listing" });
  index.apply({ type: "listed", migrations: [migrationAt("12", "Running")] });
  t.equal(index.of("a.b")[0]?.state, "Running", "what succeeded before the restore has not, after it");
  t.same(changed, ["a.b", "a.b"]);
  index.apply({ type: "listing" });
  index.apply({ type: "listed", migrations: [] });
  t.same(index.of("a.b"), []);
  t.same(changed, ["a.b", "a.b", "a.b"]);
});

await tap.test("MigrationIndex keeps what the trigger wrote while a list was read", async (t) => {
  const index = new MigrationIndex(() => undefined);
  const adopted = migrationAt("10", "Succeeded", { [HASH_ANNOTATION]: "h" });
  index.apply({ type: "listed", migrations: [adopted] });
  index.apply({ type: "listing" });
  index.put(migrationAt("20", "Succeeded"));
  index.apply({ type: "listed", migrations: [adopted] });
  t.equal(index.of("a.b")[0]?.hash, undefined, "the list is older: a disowned migration completes nothing");
  index.apply({ type: "listing" });
  index.delete({ uid: "u" });
  index.apply({ type: "listed", migrations: [adopted] });
  t.same(index.of("a.b"), [], "one that was deleted in between does not come back");
  index.apply({ type: "listing" });
  index.apply({ type: "listed", migrations: [adopted] });
  t.equal(index.of("a.b")[0]?.hash, "h", "a list that began later replaces everything");
});

await tap.test("MigrationIndex takes no change that is older than what it knows", async (t) => {
  const changed: string[] = [];
  const index = new MigrationIndex((name) => changed.push(name));
  index.apply({ type: "listed", migrations: [migrationAt("10", "Running")] });
  index.put(migrationAt("20", "Succeeded"));
  index.apply({ type: "changed", migration: migrationAt("15", "Running") });
  t.equal(index.of("a.b")[0]?.state, "Succeeded");
  index.apply({ type: "deleted", uid: "u" });
  t.same(index.of("a.b"), []);
  t.same(changed, ["a.b", "a.b"], "it came and it went");
});

await tap.test(
  "MigrationIndex keeps migrations that re-encrypt from the trigger, so that it neither deletes nor adopts one",
  async (t) => {
    const changed: string[] = [];
    const index = new MigrationIndex((name) => changed.push(name));
    index.apply({ type: "listed", migrations: [migrationAt("1", "Running", { [REENCRYPT_ANNOTATION]: "true" })] });
    t.same(index.of("a.b"), []);
    index.apply({ type: "changed", migration: migrationAt("2", "Running", { [REENCRYPT_ANNOTATION]: "false" }) });
    t.equal(index.of("a.b").length, 1);
    index.apply({ type: "changed", migration: migrationAt("3", "Running", { [REENCRYPT_ANNOTATION]: "no digest" }) });
    t.same(index.of("a.b"), [], "nor one that asks for it in a way that cannot be read");
    t.equal(changed.length, 3, "the trigger looks again each time");
  },
);

await tap.test("MigrationIndex takes an answer that shows one deleted for its end", async (t) => {
  const index = new MigrationIndex(() => undefined);
  index.apply({ type: "listed", migrations: [migrationAt("10", "Running")] });
  const { metadata, ...rest } = migrationAt("11", "Running");
  index.put({ ...rest, metadata: { ...metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } });
  t.same(index.of("a.b"), []);
});
