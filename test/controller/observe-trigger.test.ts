import tap from "tap";
import { UNKNOWN_HASH } from "../../src/api/migration.ts";
import { observeTrigger } from "../../src/controller/observe-trigger.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { decide } from "../../src/trigger/decide.ts";
import { lookedOf } from "../../src/trigger/trigger-watch.ts";
import { builtIn, crd, custom, disagreeing, migration, NOW, situation, state } from "../trigger/situation.ts";

const QUIET = { isUnknown: false, isDisagreement: false, isWaiting: false, staleVersions: 0 };

function looked(...args: Parameters<typeof situation>) {
  return lookedOf(situation(...args), decide(situation(...args)));
}

function setUp() {
  const metrics = new Metrics();
  const value = async (name: string): Promise<unknown> => {
    const { values } = (await metrics.registry.getSingleMetric(name)?.get()) ?? { values: [] };
    return values.map((sample) => [...Object.values(sample.labels), sample.value].join(" ")).join(", ");
  };
  return { observer: observeTrigger(metrics), value };
}

await tap.test("observeTrigger() counts resources by what the last look showed of each", async (t) => {
  const { observer, value } = setUp();
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

await tap.test("observeTrigger() forgets what a poll no longer shows, and everything at the end", async (t) => {
  const { observer, value } = setUp();
  observer.polled(60_000);
  for (const name of ["a", "b"]) observer.looked(name, { ...QUIET, isWaiting: true, staleVersions: 1 });
  t.equal(await value("ksvm_trigger_waiting"), "2");
  observer.polled(120_000, new Set(["b"]));
  t.equal(await value("ksvm_trigger_last_look_timestamp_seconds"), "120");
  t.equal(await value("ksvm_stored_versions_stale"), "b 1");
  observer.retried("look");
  observer.end();
  t.equal(await value("ksvm_trigger_last_look_timestamp_seconds"), "0");
  t.equal(await value("ksvm_stored_versions_stale"), "");
  t.equal(await value("ksvm_trigger_retries_total"), "look 1", "a counter stays");
});

await tap.test("lookedOf() reads a look off the decision, and off the StorageState where that stays", async (t) => {
  t.same(looked(builtIn("A"), state(["A"], "A")), QUIET);
  t.same(looked(builtIn("A"), undefined), { ...QUIET, isUnknown: true }, "a new StorageState");
  t.same(looked(builtIn("A"), state([UNKNOWN_HASH, "A"], "A")), { ...QUIET, isUnknown: true }, "one that stays");
  t.same(looked(disagreeing(["A", "B"]), state(["A"], "A")), {
    ...QUIET,
    isUnknown: true,
    isDisagreement: true,
    isWaiting: true,
  });
  const stale = crd(["v1", "v2", "v3"]);
  const record = { uid: stale.uid, generation: stale.generation, storedVersions: stale.storedVersions };
  t.match(looked(custom(stale), state(["#v1", "#v2", "#v3"], "#v3", { crd: record })), { staleVersions: 2 });
  const failed = migration("Failed", "B", { endedAt: NOW });
  t.match(looked(builtIn("B"), state(["A", "B"], "B"), [failed]), { isWaiting: true }, "until it is tried again");
});
