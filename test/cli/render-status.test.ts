import tap from "tap";
import { parse } from "yaml";

import { ageOf, describeChanges, renderStatus } from "../../src/cli/render/render-status.ts";
import type { ClusterStatus, MigrationLine, RunLine } from "../../src/inventory/status.ts";

const NOW = Date.parse("2026-01-01T01:00:00Z");
const RUNNING: MigrationLine = {
  name: "widgets-x1",
  resource: "widgets.example.com",
  controller: "ksvm",
  state: "Running",
  progress: "5/9",
  counts: { migrated: 4, skipped: 0, failed: 1, remaining: 4 },
  created: "2026-01-01T00:00:00Z",
};
const FREEZE = { crd: "widgets.example.com", owner: "pod-1", lease: "ns/lease", since: "2026-01-01T00:59:30Z" };
const LEASE = { lease: "ns/ksvm-controller", holder: "pod-1", renewed: "2026-01-01T00:59:57Z" };
const NOTHING: ClusterStatus = {
  controller: { state: "none" },
  migrations: [],
  runs: [],
  freezes: [],
  unknown: [],
};
const STATUS: ClusterStatus = {
  ...NOTHING,
  controller: { ...LEASE, state: "alive" },
  migrations: [RUNNING, { name: "q", resource: "q.b", controller: "ksvm", state: "Pending" }],
  freezes: [FREEZE, { crd: "gadgets.example.com" }],
};

await tap.test("renderStatus() names migrations as kubectl does", (t) => {
  const inTree: MigrationLine = { name: "crd", resource: "a.b", controller: "in-tree", state: "Running" };
  t.equal(
    renderStatus({ ...NOTHING, migrations: [RUNNING, inTree] }, "name", NOW),
    "storageversionmigration.migration.k8s.io/widgets-x1\nstorageversionmigration.storagemigration.k8s.io/crd",
  );
  t.equal(renderStatus(NOTHING, "name", NOW), "");
  t.end();
});

const RUN: RunLine = { ...LEASE, lease: "ns/run", resource: "widgets.example.com", state: "alive" };

await tap.test("renderStatus() shows the same in JSON and in YAML", async (t) => {
  const document = { apiVersion: "cli.ksvm.sigs.k8s.io/v1alpha1", kind: "Status", ...STATUS };
  t.same(JSON.parse(renderStatus(STATUS, "json", NOW)), document);
  t.same(parse(renderStatus(STATUS, "yaml", NOW)), document);
});

await tap.test("describeChanges() has a line for each thing that changed", async (t) => {
  const pending: MigrationLine = { name: "p", resource: "p.b", controller: "in-tree", state: "Pending" };
  const after: ClusterStatus = {
    ...STATUS,
    migrations: [{ ...RUNNING, state: "Failed", message: "FreezeLifted: why" }, pending],
    freezes: [{ crd: "gadgets.example.com" }],
  };
  t.same(describeChanges(STATUS, STATUS), []);
  t.same(describeChanges(STATUS, after), [
    "widgets-x1: Failed 5/9 FreezeLifted: why",
    "p: Pending",
    "q: deleted",
    "widgets.example.com: no longer frozen",
  ]);
  t.same(describeChanges(after, NOTHING), [
    "controller: none",
    "widgets-x1: deleted",
    "p: deleted",
    "gadgets.example.com: no longer frozen",
  ]);
  t.same(describeChanges(NOTHING, { ...NOTHING, freezes: [FREEZE, { crd: "gadgets.example.com" }] }), [
    "widgets.example.com: frozen by pod-1",
    "gadgets.example.com: frozen by something other than ksvm",
  ]);
  t.same(describeChanges(NOTHING, { ...NOTHING, runs: [RUN] }), ["run of Lease ns/run: alive pod-1"]);
  t.same(describeChanges({ ...NOTHING, runs: [RUN] }, NOTHING), ["run of Lease ns/run: ended"]);
});

const ages: readonly [time: string | undefined, age: string][] = [
  ["2026-01-01T00:58:01Z", "119s"],
  ["2026-01-01T00:58:00Z", "2m"],
  ["2025-12-31T23:00:00Z", "2h"],
  ["2025-12-29T01:00:00Z", "3d"],
  ["2026-01-01T02:00:00Z", "0s"],
  [undefined, "-"],
];

for (const [time, age] of ages) {
  await tap.test(`ageOf(${time}) is ${age}`, async (t) => {
    t.equal(ageOf(time, NOW), age);
  });
}
