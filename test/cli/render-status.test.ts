import tap from "tap";
import { parse } from "yaml";

import { ageOf, describeChanges, renderStatus } from "../../src/cli/render/render-status.ts";
import type { ClusterStatus, MigrationLine } from "../../src/plan/cluster-status.ts";

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
const STATUS: ClusterStatus = { migrations: [RUNNING], freezes: [FREEZE, { crd: "gadgets.example.com" }] };
const NOTHING: ClusterStatus = { migrations: [], freezes: [] };

await tap.test("renderStatus() shows migrations and freezes in a table", async (t) => {
  t.equal(
    renderStatus(STATUS, "table", NOW),
    [
      "NAME         RESOURCE              CONTROLLER   STATE     PROGRESS   FAILED   AGE   MESSAGE",
      "widgets-x1   widgets.example.com   ksvm         Running   5/9        1        60m   -",
      "",
      "FROZEN CRD            BY           LEASE      SINCE",
      "widgets.example.com   pod-1        ns/lease   30s",
      "gadgets.example.com   (not ksvm)   -          -",
    ].join("\n"),
  );
  t.equal(renderStatus(NOTHING, "table", NOW), "no migrations\n\nno CRD is frozen");
});

await tap.test("renderStatus() shows the same in JSON and in YAML", async (t) => {
  t.same(JSON.parse(renderStatus(STATUS, "json", NOW)), STATUS);
  t.same(parse(renderStatus(STATUS, "yaml", NOW)), STATUS);
});

await tap.test("describeChanges() has a line for each thing that changed", async (t) => {
  const pending: MigrationLine = { name: "p", resource: "p.b", controller: "in-tree", state: "Pending" };
  const after: ClusterStatus = {
    migrations: [{ ...RUNNING, state: "Failed", message: "FreezeLifted: why" }, pending],
    freezes: [{ crd: "gadgets.example.com" }],
  };
  t.same(describeChanges(STATUS, STATUS), []);
  t.same(describeChanges(STATUS, after), [
    "widgets-x1: Failed 5/9 FreezeLifted: why",
    "p: Pending",
    "widgets.example.com: no longer frozen",
  ]);
  t.same(describeChanges(after, NOTHING), [
    "widgets-x1: deleted",
    "p: deleted",
    "gadgets.example.com: no longer frozen",
  ]);
  t.same(describeChanges(NOTHING, { ...NOTHING, freezes: [FREEZE, { crd: "gadgets.example.com" }] }), [
    "widgets.example.com: frozen by pod-1",
    "gadgets.example.com: frozen by something other than ksvm",
  ]);
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
