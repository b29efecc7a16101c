import tap from "tap";

import {
  type MigrationCondition,
  type MigrationStatus,
  type StorageVersionMigration,
} from "../../src/api/migration.ts";
import { statusOf } from "../../src/cli/commands/status-command.ts";
import { type ClusterStatus, migrationLine } from "../../src/inventory/status.ts";

function migration(status?: MigrationStatus): StorageVersionMigration {
  return {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { name: "widgets-x1", uid: "u", resourceVersion: "1", creationTimestamp: "2026-01-01T00:00:00Z" },
    spec: { resource: { group: "example.com", version: "v1", resource: "widgets" } },
    ...(status === undefined ? {} : { status }),
  };
}

function condition(
  type: MigrationCondition["type"],
  status: MigrationCondition["status"] = "True",
): MigrationCondition {
  return { type, status, reason: "Why", message: `it is ${type}` };
}

const states: readonly [conditions: readonly MigrationCondition[], state: string, message: string | undefined][] = [
  [[], "Pending", undefined],
  [[condition("Running")], "Running", "Why: it is Running"],
  [[condition("Running"), condition("Waiting")], "Waiting", "Why: it is Waiting"],
  [[condition("Running"), condition("Waiting", "False")], "Running", "Why: it is Running"],
  [[condition("Running", "False"), condition("Succeeded")], "Succeeded", "Why: it is Succeeded"],
  [[condition("Running", "False"), condition("Failed")], "Failed", "Why: it is Failed"],
];

for (const [conditions, state, message] of states) {
  const names = conditions.map(({ type, status }) => `${type}=${status}`).join(",");
  await tap.test(`migrationLine() is ${state} for ${names || "no condition"}`, async (t) => {
    const line = migrationLine(migration({ conditions }));
    t.equal(line.state, state);
    t.equal(line.message, message);
  });
}

await tap.test("migrationLine() shows a migration that no controller looked at yet", async (t) => {
  t.same(migrationLine(migration()), {
    name: "widgets-x1",
    resource: "widgets.example.com",
    controller: "ksvm",
    state: "Pending",
    created: "2026-01-01T00:00:00Z",
  });
});

await tap.test("statusOf() finds a resource by its own name and by that of its migration", async (t) => {
  const line = migrationLine(migration());
  const other = { ...line, name: "gadgets-x1", resource: "gadgets.example.com" };
  const freezes = [{ crd: "widgets.example.com" }, { crd: "gadgets.example.com" }];
  const runs = freezes.map(({ crd }) => ({
    resource: crd,
    state: "alive" as const,
    lease: `kube-system/ksvm-migrate.${crd}`,
  }));
  const controller = { state: "none" } as const;
  const nothing = { controller, unknown: [] } as const;
  const status: ClusterStatus = { ...nothing, migrations: [line, other], runs, freezes };
  const expected = { ...status, migrations: [line], runs: runs.slice(0, 1), freezes: freezes.slice(0, 1) };
  t.same(statusOf(status, "widgets.example.com"), expected);
  t.same(statusOf(status, "widgets-x1"), expected);
  t.same(statusOf({ ...status, migrations: [] }, "gadgets.example.com"), {
    ...nothing,
    migrations: [],
    runs: runs.slice(1),
    freezes: freezes.slice(1),
  });
});
