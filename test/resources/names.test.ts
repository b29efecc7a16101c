import tap from "tap";
import { HEARTBEAT_LIMIT_MS, type StorageState, UNKNOWN_HASH } from "../../src/api/migration.ts";
import type { DiscoveredVersion } from "../../src/resources/migratable.ts";
import { resolveName } from "../../src/resources/find-name.ts";
import { storedEncodingOf } from "../../src/resources/storage-states.ts";

const verbs = ["list", "patch"];
const entry = (name: string, kind: string, shortNames?: readonly string[]) => ({
  name,
  kind,
  singularName: kind.toLowerCase(),
  ...(shortNames === undefined ? {} : { shortNames }),
  namespaced: true,
  verbs,
});
const EVENTS = entry("events", "Event", ["ev"]);
const versions: readonly DiscoveredVersion[] = [
  {
    group: "",
    version: "v1",
    resources: [
      entry("pods", "Pod", ["po"]),
      { ...entry("pods/log", "Pod"), singularName: "" },
      entry("secrets", "Secret"),
      EVENTS,
    ],
  },
  { group: "apps", version: "v1", resources: [entry("deployments", "Deployment", ["deploy"])] },
  { group: "events.k8s.io", version: "v1", resources: [EVENTS] },
  { group: "shop.example.org", version: "v1", resources: [entry("orders", "Order", ["ord"])] },
  { group: "shop.example.org", version: "v1beta1", resources: [entry("orders", "Order", ["ord"])] },
  {
    group: "military.example.org",
    version: "v1",
    resources: [entry("orders", "MilitaryOrder"), entry("ranks", "Rank")],
  },
  { group: "generators.example.org", version: "v1", resources: [entry("secrets", "Secret")] },
  // A group whose name begins like a version.
  { group: "v1.shop.example.org", version: "v1", resources: [entry("orders", "Order")] },
];

const cases: readonly [given: string, names: readonly string[]][] = [
  ["orders.shop.example.org", ["orders.shop.example.org"]],
  ["order.shop.example.org", ["orders.shop.example.org"]],
  ["Order.shop.example.org", ["orders.shop.example.org"]],
  ["ord", ["orders.shop.example.org"]],
  ["MilitaryOrder", ["orders.military.example.org"]],
  ["militaryorder", ["orders.military.example.org"]],
  ["orders.v1beta1.shop.example.org", ["orders.shop.example.org"]],
  ["orders.v2.shop.example.org", []],
  ["rank", ["ranks.military.example.org"]],
  ["deploy", ["deployments.apps"]],
  ["deployments", ["deployments.apps"]],
  ["deployments.v1.apps", ["deployments.apps"]],
  ["po", ["pods"]],
  ["pods.v1", ["pods"]],
  ["pods.v1.", ["pods"]],
  ["pods/log", []],
  ["", []],
];

for (const [given, names] of cases) {
  await tap.test(`resolveName() takes "${given}" for ${names.join(" and ") || "nothing"}`, (t) => {
    t.same(resolveName(given, versions).names, names);
    t.end();
  });
}

await tap.test("resolveName() takes a name that two groups have for neither of them", (t) => {
  t.same(resolveName("orders", versions).names, [
    "orders.shop.example.org",
    "orders.military.example.org",
    "orders.v1.shop.example.org",
  ]);
  t.same(resolveName("order", versions).names, ["orders.shop.example.org", "orders.v1.shop.example.org"]);
  t.same(resolveName("secret", versions).names, ["secrets", "secrets.generators.example.org"]);
  t.end();
});

await tap.test("resolveName() takes a full name for that resource alone, whatever else has the name", (t) => {
  t.same(resolveName("secrets", versions), { names: ["secrets"], similar: [], isOpen: false });
  t.same(resolveName("orders.v1.shop.example.org", versions).names, ["orders.v1.shop.example.org"]);
  t.same(resolveName("order.v1.shop.example.org", versions).names, [
    "orders.shop.example.org",
    "orders.v1.shop.example.org",
  ]);
  t.end();
});

await tap.test("resolveName() takes the core events for both names of the same objects", (t) => {
  t.same(resolveName("ev", versions).names, ["events"]);
  t.same(resolveName("event", versions).names, ["events"]);
  t.same(resolveName("ev.events.k8s.io", versions).names, ["events.events.k8s.io"]);
  t.end();
});

await tap.test(
  "resolveName() shows similar names where there is none, and says where a group that is not known may have one",
  (t) => {
    t.same(resolveName("order.example.org", versions).similar, [
      "orders.shop.example.org",
      "orders.v1.shop.example.org",
      "orders.military.example.org",
    ]);
    t.same(resolveName("deploymnets", versions).similar, ["deployments.apps"]);
    t.same(resolveName("rnaks", versions).similar, []);
    t.same(resolveName("xyz", versions), { names: [], similar: [], isOpen: true });
    t.equal(resolveName("order.shop.example.org", versions).isOpen, false);
    t.equal(resolveName("deploy", versions).isOpen, true);
    t.end();
  },
);

const NOW = Date.parse("2026-01-01T12:00:00Z");

function stateWith(current: string, persisted: readonly string[], ageMs = 60_000): StorageState {
  return {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageState",
    metadata: { name: "deployments.apps", uid: "u", resourceVersion: "1" },
    spec: { resource: { group: "apps", resource: "deployments" } },
    status: {
      currentStorageVersionHash: current,
      persistedStorageVersionHashes: persisted,
      lastHeartbeatTime: new Date(NOW - ageMs).toISOString(),
    },
  };
}

const judge = { hash: "now", now: NOW, heartbeatLimitMs: HEARTBEAT_LIMIT_MS };

for (const [name, state, expected] of [
  ["current where everything is persisted in it", stateWith("now", ["now"]), "current"],
  ["stale where something else is persisted", stateWith("now", ["before", "now"]), "stale"],
  ["stale where nobody knows what is persisted", stateWith("now", [UNKNOWN_HASH]), "stale"],
  ["unknown without a StorageState", undefined, "unknown"],
  ["unknown where the trigger stopped", stateWith("now", ["now"], HEARTBEAT_LIMIT_MS + 1_000), "unknown"],
  ["unknown where the heartbeat lies ahead", stateWith("now", ["now"], -HEARTBEAT_LIMIT_MS - 1_000), "unknown"],
  ["unknown where the API servers disagree", stateWith(UNKNOWN_HASH, [UNKNOWN_HASH]), "unknown"],
  ["unknown where discovery shows another hash", stateWith("before", ["before"]), "unknown"],
] as const) {
  await tap.test(`storedEncodingOf() is ${name}`, (t) => {
    const { state: found, reason } = storedEncodingOf(state, judge);
    t.equal(found, expected);
    t.equal(reason !== undefined, expected === "unknown", "with the reason");
    t.end();
  });
}

await tap.test("storedEncodingOf() believes no StorageState that has no heartbeat", (t) => {
  const { status, ...rest } = stateWith("now", ["now"]);
  const { lastHeartbeatTime: _, ...without } = status ?? {};
  t.equal(storedEncodingOf({ ...rest, status: without }, judge).state, "unknown");
  t.end();
});
