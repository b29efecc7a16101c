import tap from "tap";
import { checkedNumbers, withoutUndefined } from "../../src/library/checked-numbers.ts";
import { migrateCrd } from "../../src/library/migrate-crd.ts";

const GOOD = { settleMs: 65_000, shutdownDelayMs: 0, maxIdleMs: 0, webhookWaitMs: 1, maxInFlight: 16, maxQps: 5 };

await tap.test("checkedNumbers() takes numbers in their range, and 0 requests per second for no limit", (t) => {
  t.same(checkedNumbers(GOOD), GOOD);
  t.equal(checkedNumbers({ ...GOOD, maxQps: 0 }).maxQps, Number.POSITIVE_INFINITY);
  t.equal(checkedNumbers({ ...GOOD, maxQps: Number.POSITIVE_INFINITY }).maxQps, Number.POSITIVE_INFINITY);
  t.end();
});

const bad: readonly [name: string, value: unknown][] = [
  ["settleMs", Number.NaN],
  ["settleMs", -1],
  ["settleMs", "30000"],
  ["settleMs", null],
  ["settleMs", Number.POSITIVE_INFINITY],
  ["shutdownDelayMs", -1],
  ["maxIdleMs", Number.NaN],
  ["maxInFlight", 0],
  ["maxInFlight", 257],
  ["maxQps", -1],
];

for (const [name, value] of bad) {
  await tap.test(`migrateCrd() refuses ${name}: ${String(value)} before it looks for a cluster`, async (t) => {
    await t.rejects(migrateCrd("widgets.example.com", { kubeconfig: "missing", [name]: value }), {
      code: "Usage",
      message: new RegExp(`^Cannot migrate: ${name} is not a number from `),
    });
  });
}

for (const [name, value] of [
  ["dryRun", "true"],
  ["dryRun", 1],
  ["dryRun", null],
  ["force", "false"],
]) {
  await tap.test(`migrateCrd() refuses ${name}: ${JSON.stringify(value)} before it looks for a cluster`, async (t) => {
    await t.rejects(migrateCrd("widgets.example.com", { kubeconfig: "missing", [String(name)]: value }), {
      code: "Usage",
      message: `Cannot migrate: ${name} is neither true nor false`,
    });
  });
}

await tap.test("migrateCrd() has the default of a field that is undefined", async (t) => {
  t.same(withoutUndefined({ a: 0, b: undefined, c: null }), { a: 0, c: null });
  const options: object = { kubeconfig: "missing", settleMs: undefined, maxQps: undefined };
  await t.rejects(migrateCrd("widgets.example.com", options), { code: "KubeconfigInvalid" });
});
