import tap from "tap";
import { observeMigration, measured, observeTrigger } from "../../src/controller/observe.ts";
import type { MigrationEvent, Tally } from "../../src/migrator/types.ts";
import { newTally } from "../../src/migrator/types.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { ResourceSeries } from "../../src/observability/resource-series.ts";

const RESOURCE = "widgets.example.com";
const guard = { kind: "webhook", name: "w" } as const;
const FROZEN: MigrationEvent = { type: "frozen", storageVersion: "v2", guard, apiServers: 1 };

function setUp() {
  const metrics = new Metrics();
  const freezes = new Set<string>();
  const samples = async (name: string): Promise<readonly unknown[]> => {
    const metric = await metrics.registry.getSingleMetric(name)?.get();
    return (metric?.values ?? []).map(({ labels, value }) => ({ ...labels, value }));
  };
  const loop = { beat: () => undefined, end: () => undefined };
  const options = { freezes, loop, now: () => 5_000, series: new ResourceSeries(metrics) };
  return { freezes, metrics, samples, observer: observeMigration(metrics, RESOURCE, options) };
}

await tap.test("observeMigration() counts each object once, by what became of it", async (t) => {
  const { observer, samples } = setUp();
  const tally = newTally();
  // The engine counts on in the same tally.
  const progress = (counts: Partial<Tally>): void =>
    observer.event({ type: "progress", tally: Object.assign(tally, counts) });
  observer.event(FROZEN);
  progress({ rewritten: 2, current: 1, total: 10 });
  progress({});
  progress({ rewritten: 4, current: 1, newer: 1, gone: 1, failed: 1, total: 12 });
  t.same(await samples("ksvm_objects_total"), [
    { resource: RESOURCE, outcome: "migrated", value: 4 },
    { resource: RESOURCE, outcome: "skipped", value: 3 },
    { resource: RESOURCE, outcome: "failed", value: 1 },
  ]);
  t.same(await samples("ksvm_objects_remaining"), [{ resource: RESOURCE, value: 4 }]);
});

await tap.test("observeMigration() counts on when a run begins again", async (t) => {
  const { observer, samples } = setUp();
  observer.event({ type: "progress", tally: { ...newTally(), rewritten: 5 } });
  observer.event({ type: "beginsAgain", reason: "a gap" });
  observer.event({ type: "progress", tally: { ...newTally(), rewritten: 7 } });
  t.same(await samples("ksvm_objects_total"), [{ resource: RESOURCE, outcome: "migrated", value: 12 }]);
});

await tap.test("observeMigration() tells of a freeze until it is lifted, also beyond the end of the run", async (t) => {
  const { freezes, observer, samples } = setUp();
  observer.event(FROZEN);
  observer.end();
  t.same(await samples("ksvm_freeze_start_timestamp_seconds"), [{ resource: RESOURCE, value: 5 }]);
  t.same([...freezes], [RESOURCE]);
  observer.event({ type: "unfrozen" });
  t.same(await samples("ksvm_freeze_start_timestamp_seconds"), []);
  t.equal(freezes.size, 0);
});

await tap.test("observeMigration() counts how migrations end, and names no resource that may not exist", async (t) => {
  const { observer, samples } = setUp();
  observer.completed("Failed");
  observer.event({ type: "progress", tally: { ...newTally(), failed: 1 } });
  observer.completed("Failed");
  observer.completed("Succeeded");
  t.same(await samples("ksvm_migrations_completed_total"), [
    { resource: "", result: "Failed", value: 1 },
    { resource: RESOURCE, result: "Failed", value: 1 },
    { resource: RESOURCE, result: "Succeeded", value: 1 },
  ]);
});

await tap.test("measured() measures requests by their method and status", async (t) => {
  const metrics = new Metrics();
  const send = measured(metrics)(async ({ path }) => {
    if (path === "/none") throw new Error("no answer");
    return { status: Number(path.slice(1)), headers: {}, text: "" };
  });
  const rest = {
    address: "",
    query: {},
    headers: {},
    isStream: false,
    maxBytes: 1,
    timeoutMs: 1,
    signal: AbortSignal.any([]),
  };
  await send({ ...rest, method: "GET", path: "/200" });
  await send({ ...rest, method: "PATCH", path: "/503" });
  await send({ ...rest, method: "GET", path: "/200" });
  await t.rejects(send({ ...rest, method: "GET", path: "/none" }));
  const { values } = await metrics.requestDuration.get();
  const counts = values.filter(({ metricName }) => metricName === "ksvm_request_duration_seconds_count");
  t.same(
    counts.map(({ labels: { method, code }, value }) => [method, code, value]),
    [
      ["GET", 200, 2],
      ["PATCH", 503, 1],
      ["GET", 0, 1],
    ],
  );
});

const QUIET = { isUnknown: false, isDisagreement: false, isWaiting: false, staleVersions: 0 };

await tap.test("observeTrigger() counts resources by what the last look showed of each", async (t) => {
  const metrics = new Metrics();
  const observer = observeTrigger(metrics);
  const value = async (name: string): Promise<unknown> => {
    const { values } = (await metrics.registry.getSingleMetric(name)?.get()) ?? { values: [] };
    return values.map((sample) => [...Object.values(sample.labels), sample.value].join(" ")).join(", ");
  };
  observer.looked("a", { ...QUIET, isUnknown: true, isDisagreement: true });
  observer.looked("b", { ...QUIET, isUnknown: true, isWaiting: true, staleVersions: 2 });
  observer.looked("c", QUIET);
  observer.looked("b", { ...QUIET, isUnknown: true, isWaiting: true, staleVersions: 1 });
  t.equal(await value("ksvm_trigger_unknown_states"), "2");
  t.equal(await value("ksvm_trigger_disagreements"), "1");
  t.equal(await value("ksvm_trigger_waiting"), "1");
  t.equal(await value("ksvm_stored_versions_stale"), "b 1", "a series for what is stale alone");
  observer.looked("a", QUIET);
  observer.looked("b", undefined);
  for (const name of ["unknown_states", "disagreements", "waiting"]) t.equal(await value(`ksvm_trigger_${name}`), "0");
  t.equal(await value("ksvm_stored_versions_stale"), "");
});
