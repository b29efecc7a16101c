import tap from "tap";
import { observeMigration } from "../../src/controller/observe-migration.ts";
import { observeRequests } from "../../src/controller/observe-requests.ts";
import { observeTrigger } from "../../src/controller/observe-trigger.ts";
import { ApiError, TransportError } from "../../src/old/kube/errors.ts";
import { Transport } from "../../src/old/kube/transport.ts";
import type { MigrationEvent } from "../../src/old/migrator/events.ts";
import type { Counts } from "../../src/old/migrator/rewrite/counts.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { ResourceSeries } from "../../src/observability/resource-series.ts";
import { configFor, kubeconfigFor, sendJson, sendStatus, startServer } from "../old/kube/local-server.ts";

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

await tap.test("observeMigration() tells of the freeze from when it began until the migration has ended", async (t) => {
  const { observer, told } = setUp();
  observer.event(FROZEN);
  observer.event({ type: "unfrozen" });
  observer.end();
  t.same(told, [`frozen ${RESOURCE}`, `lifted ${RESOURCE}`, `ended ${RESOURCE}`]);
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

const GET = { method: "GET", path: "/x" } as const;

async function countsOf({ requestDuration }: Metrics): Promise<readonly unknown[]> {
  const { values } = await requestDuration.get();
  return values
    .filter(({ metricName }) => metricName === "ksvm_request_duration_seconds_count")
    .map(({ labels: { method, code }, value }) => ({ method, code, value }));
}

await tap.test("observeRequests() measures every request by its method and status", async (t) => {
  // A real API server cannot be made to answer 503 and 401 on demand.
  const answers = [200, 503, 401, 200];
  const server = await startServer(t, (_, response) => {
    const status = answers.shift() ?? 500;
    return status === 200 ? sendJson(response, 200, {}) : sendStatus(response, status);
  });
  const metrics = new Metrics();
  const transport = server.transport({ observer: observeRequests(metrics) });
  await transport.request(GET);
  await t.rejects(transport.request({ method: "PATCH", path: "/x", body: {} }), ApiError);
  // It authenticates again and repeats the request: two requests.
  await transport.request(GET);
  t.same(await countsOf(metrics), [
    { method: "GET", code: 200, value: 2 },
    { method: "PATCH", code: 503, value: 1 },
    { method: "GET", code: 401, value: 1 },
  ]);
});

await tap.test("observeRequests() counts a request without an answer as code 0", async (t) => {
  const metrics = new Metrics();
  const observer = observeRequests(metrics);
  const transport = new Transport(configFor(kubeconfigFor("http://127.0.0.1:1")), { observer });
  t.teardown(() => transport.close());
  await t.rejects(transport.request(GET), TransportError);
  t.same(await countsOf(metrics), [{ method: "GET", code: 0, value: 1 }]);
});

const QUIET = { isUnknown: false, isDisagreement: false, isWaiting: false, staleVersions: 0 };

function observeTriggerSetUp() {
  const metrics = new Metrics();
  const value = async (name: string): Promise<unknown> => {
    const { values } = (await metrics.registry.getSingleMetric(name)?.get()) ?? { values: [] };
    return values.map((sample) => [...Object.values(sample.labels), sample.value].join(" ")).join(", ");
  };
  return { observer: observeTrigger(metrics), value };
}

await tap.test("observeTrigger() counts resources by what the last look showed of each", async (t) => {
  const { observer, value } = observeTriggerSetUp();
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
