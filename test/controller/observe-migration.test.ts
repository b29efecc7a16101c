import tap from "tap";

import { type Counts, Tally } from "../../src/migrator/rewrite/counts.ts";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { observeMigration } from "../../src/controller/observe-migration.ts";
import { ResourceSeries } from "../../src/observability/resource-series.ts";

const RESOURCE = "widgets.example.com";
const FROZEN: MigrationEvent = { type: "frozen", storageVersion: "v2", guard: { kind: "webhook", name: "w" } };

function progress(counts: Partial<Counts>): MigrationEvent {
  const none = { done: 0, migrated: 0, current: 0, newer: 0, gone: 0, failed: 0, changed: 0, total: undefined };
  return { type: "progress", counts: { ...none, ...counts } };
}

function setUp() {
  const metrics = new Metrics();
  const told: string[] = [];
  const freezes = {
    frozen: (crdName: string) => void told.push(`frozen ${crdName}`),
    lifted: (crdName: string) => void told.push(`lifted ${crdName}`),
    ended: (crdName: string) => void told.push(`ended ${crdName}`),
  };
  const samples = async (name: string): Promise<readonly unknown[]> => {
    const metric = await metrics.registry.getSingleMetric(name)?.get();
    return (metric?.values ?? []).map(({ labels, value }) => ({ ...labels, value }));
  };
  return {
    metrics,
    samples,
    told,
    observer: observeMigration(metrics, RESOURCE, { freezes, series: new ResourceSeries(metrics) }),
  };
}

await tap.test("observeMigration() counts each object once, by what became of it", async (t) => {
  const { observer, samples } = setUp();
  observer.event(FROZEN);
  observer.event(progress({ done: 3, migrated: 2, current: 1, total: 10 }));
  observer.event(progress({ done: 3, migrated: 2, current: 1, total: 10 }));
  observer.event(progress({ done: 8, migrated: 4, current: 1, newer: 1, gone: 1, failed: 1, total: 12 }));
  observer.event({ type: "retrying", reason: "503", delayMs: 5 });
  t.same(await samples("ksvm_objects_total"), [
    { resource: RESOURCE, outcome: "migrated", value: 4 },
    { resource: RESOURCE, outcome: "skipped", value: 3 },
    { resource: RESOURCE, outcome: "failed", value: 1 },
    { resource: RESOURCE, outcome: "retried", value: 1 },
  ]);
  t.same(await samples("ksvm_objects_remaining"), [{ resource: RESOURCE, value: 4 }]);
});

await tap.test("observeMigration() counts on when a run begins again, and from zero", async (t) => {
  const { observer, samples } = setUp();
  observer.event(FROZEN);
  observer.event(progress({ done: 5, migrated: 5 }));
  observer.event({ type: "startingAgain", reason: "a gap" });
  observer.event(FROZEN);
  observer.event(progress({ done: 7, migrated: 7 }));
  t.same((await samples("ksvm_objects_total"))[0], { resource: RESOURCE, outcome: "migrated", value: 12 });
});

await tap.test(
  "observeMigration() counts each object of a built-in resource once when its run begins again",
  async (t) => {
    const { observer, samples } = setUp();
    // Nothing is frozen, so nothing tells that an attempt begins.
    observer.event(progress({ done: 500, migrated: 400, current: 100 }));
    observer.event(progress({ done: 530, migrated: 430, current: 100 }));
    observer.event(progress({ done: 500, migrated: 400, current: 100 }));
    observer.event(progress({ done: 530, migrated: 400, current: 100, newer: 30 }));
    observer.event(progress({ done: 600, migrated: 470, current: 100, newer: 30 }));
    t.same(await samples("ksvm_objects_total"), [
      { resource: RESOURCE, outcome: "migrated", value: 470 },
      { resource: RESOURCE, outcome: "skipped", value: 130 },
    ]);
  },
);

await tap.test(
  "observeMigration() counts what an earlier run of another process did in that process alone",
  async (t) => {
    const { observer, samples } = setUp();
    observer.event(FROZEN);
    observer.event({ type: "resumed", watermark: "5", counts: { ...new Tally().counts, done: 400, newer: 400 } });
    observer.event(progress({ done: 450, newer: 400, migrated: 50, total: 1_000 }));
    t.same(await samples("ksvm_objects_total"), [{ resource: RESOURCE, outcome: "migrated", value: 50 }]);
  },
);

await tap.test("observeMigration() tells of the freeze from when it began until the migration has ended", async (t) => {
  const { observer, told } = setUp();
  observer.event(FROZEN);
  observer.event({ type: "unfrozen" });
  observer.end();
  t.same(told, [`frozen ${RESOURCE}`, `lifted ${RESOURCE}`, `ended ${RESOURCE}`]);
});

await tap.test("observeMigration() counts the versions that were pruned", async (t) => {
  const { observer, samples } = setUp();
  observer.event({ type: "pruned", storedVersions: ["v3"], removed: ["v1", "v2"] });
  t.same(await samples("ksvm_stored_versions_pruned_total"), [{ resource: RESOURCE, value: 2 }]);
});

await tap.test("observeMigration() leaves only counters when the migration ends", async (t) => {
  const { metrics, observer, samples } = setUp();
  metrics.inFlightLimit.set({ resource: RESOURCE }, 8);
  metrics.inFlightLimit.set({ resource: "others.example.com" }, 2);
  observer.event(FROZEN);
  observer.event(progress({ done: 1, migrated: 1, total: 2 }));
  observer.end();
  t.same(await samples("ksvm_objects_remaining"), []);
  t.same(await samples("ksvm_in_flight_limit"), [{ resource: "others.example.com", value: 2 }]);
  t.equal((await samples("ksvm_objects_total")).length, 1);
});

await tap.test("observeMigration() has no counters for a resource that the API server never showed", async (t) => {
  const { observer, samples } = setUp();
  observer.event({ type: "retrying", reason: "503", delayMs: 5 });
  observer.event({ type: "retrying", reason: "503", delayMs: 5 });
  t.same(await samples("ksvm_objects_total"), []);
  observer.event(progress({ done: 1, migrated: 1 }));
  observer.event({ type: "retrying", reason: "503", delayMs: 5 });
  t.same(await samples("ksvm_objects_total"), [
    { resource: RESOURCE, outcome: "retried", value: 3 },
    { resource: RESOURCE, outcome: "migrated", value: 1 },
  ]);
});

await tap.test("observeMigration() has no series of zeros for a resource without objects", async (t) => {
  const { observer, samples } = setUp();
  observer.event(FROZEN);
  observer.event(progress({ total: 0 }));
  observer.event({ type: "pruned", storedVersions: ["v2"], removed: ["v1"] });
  observer.completed("Succeeded");
  observer.end();
  t.same(await samples("ksvm_objects_total"), []);
  t.same(await samples("ksvm_migrations_completed_total"), [{ resource: RESOURCE, result: "Succeeded", value: 1 }]);
});

await tap.test("observeMigration() counts how migrations end, and names no resource that may not exist", async (t) => {
  const { observer, samples } = setUp();
  observer.completed("Failed");
  observer.event(progress({ done: 1, failed: 1 }));
  observer.completed("Failed");
  observer.completed("Succeeded");
  t.same(await samples("ksvm_migrations_completed_total"), [
    { resource: "", result: "Failed", value: 1 },
    { resource: RESOURCE, result: "Failed", value: 1 },
    { resource: RESOURCE, result: "Succeeded", value: 1 },
  ]);
});

await tap.test("ResourceSeries keeps the counters of so many resources, and of none that is gone", async (t) => {
  const { metrics, samples } = setUp();
  const series = new ResourceSeries(metrics, 2);
  const use = (resource: string): void => {
    series.use(resource);
    metrics.objects.inc({ resource, outcome: "retried" });
    metrics.pruned.inc({ resource });
    metrics.completed.inc({ resource, result: "Failed" });
  };
  ["a", "b", "a", "c"].forEach(use);
  t.same(await samples("ksvm_stored_versions_pruned_total"), [
    { resource: "a", value: 2 },
    { resource: "c", value: 1 },
  ]);
  series.dropGone((resource) => resource === "a");
  t.same(await samples("ksvm_objects_total"), [{ resource: "c", outcome: "retried", value: 1 }]);
  t.same(await samples("ksvm_migrations_completed_total"), [{ resource: "c", result: "Failed", value: 1 }]);
});
