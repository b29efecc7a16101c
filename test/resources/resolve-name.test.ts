import tap from "tap";
import { resolveName } from "../../src/resources/resolve-name.ts";
import type { DiscoveredVersion } from "../../src/resources/migratable.ts";

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
