import tap from "tap";
import type { DiscoveredResource } from "../../src/apiservers/converge.ts";
import { type DiscoveredVersion, type Selection, selectMigratable } from "../../src/resources/migratable.ts";

const ALL = ["create", "delete", "get", "list", "patch", "update", "watch"];

function entry(name: string, fields: Partial<DiscoveredResource> = {}): DiscoveredResource {
  return { name, kind: "Kind", namespaced: true, verbs: ALL, storageVersionHash: `hash-of-${name}`, ...fields };
}

function version(group: string, name: string, ...resources: readonly DiscoveredResource[]): DiscoveredVersion {
  return { group, version: name, resources };
}

function placesIn({ migratable }: Selection): readonly object[] {
  return migratable.map(({ group, version: name, resource }) => ({ group, version: name, resource }));
}

await tap.test("selectMigratable() takes each resource once, in the preferred version", async (t) => {
  const selection = selectMigratable([
    version("", "v1", entry("pods"), entry("secrets")),
    version("autoscaling", "v2", entry("horizontalpodautoscalers")),
    version("autoscaling", "v1", entry("horizontalpodautoscalers")),
  ]);
  t.same(placesIn(selection), [
    { group: "", version: "v1", resource: "pods" },
    { group: "", version: "v1", resource: "secrets" },
    { group: "autoscaling", version: "v2", resource: "horizontalpodautoscalers" },
  ]);
  t.same(selection.skipped, []);
  t.match(selection.migratable[0], { kind: "Kind", storageVersionHash: "hash-of-pods" });
});

await tap.test("selectMigratable() says of what it leaves out whether it may be stored", async (t) => {
  const { skipped } = selectMigratable([
    version("", "v1", entry("pods"), entry("pods/status")),
    version("authentication.k8s.io", "v1", entry("tokenreviews", { verbs: ["create"] })),
    version("metrics.k8s.io", "v1beta1", entry("nodes", { verbs: ["get", "list"] })),
    version("other.example.com", "v1", entry("plain", { storageVersionHash: "" })),
    version("other.example.com", "v1", entry("fixed", { verbs: ["create", "get", "list"] })),
  ]);
  const stored = skipped.map(({ mayBeStored = false, resource }) => [resource, mayBeStored]);
  t.same(Object.fromEntries(stored), {
    "pods/status": false,
    "tokenreviews.authentication.k8s.io": false,
    "nodes.metrics.k8s.io": false,
    "plain.other.example.com": true,
    "fixed.other.example.com": true,
  });
});

await tap.test("selectMigratable() takes a version in which a resource can be migrated", async (t) => {
  const readOnly = entry("widgets", { verbs: ["get", "list"] });
  const selection = selectMigratable([
    version("example.com", "v2", readOnly),
    version("example.com", "v1", entry("widgets")),
  ]);
  t.same(placesIn(selection), [{ group: "example.com", version: "v1", resource: "widgets" }]);
  t.same(selection.skipped, []);
});

await tap.test("selectMigratable() takes events once, in whatever order the groups come", async (t) => {
  const versions = ["", "events.k8s.io"].map((group) =>
    version(group, "v1", entry("events", { storageVersionHash: "same" })),
  );
  for (const listed of [versions, versions.toReversed()]) {
    const selection = selectMigratable(listed);
    t.same(placesIn(selection), [{ group: "", version: "v1", resource: "events" }]);
    t.same(selection.skipped, [{ resource: "events.events.k8s.io", reason: 'shares its storage with "events"' }]);
  }
});

await tap.test("selectMigratable() never leaves a resource out for one of an aggregated API server", async (t) => {
  // An aggregated API server may show any plural and hash, and by its priorities it comes anywhere in /apis.
  const own = [
    version("", "v1", entry("events", { storageVersionHash: "E" }), entry("secrets")),
    version("apps", "v1", entry("deployments")),
    version("events.k8s.io", "v1", entry("events", { storageVersionHash: "E" })),
  ];
  const ofAnother = version(
    "aggregated.example.com",
    "v1",
    entry("deployments"),
    entry("events", { storageVersionHash: "E" }),
    entry("widgets", { storageVersionHash: "hash-of-secrets" }),
  );
  for (const versions of [
    [ofAnother, ...own],
    [...own, ofAnother],
  ]) {
    const { migratable, skipped } = selectMigratable(versions);
    t.same(
      new Set(migratable.map(({ group, resource }) => `${resource}.${group}`)),
      new Set([
        "events.",
        "secrets.",
        "deployments.apps",
        "deployments.aggregated.example.com",
        "events.aggregated.example.com",
        "widgets.aggregated.example.com",
      ]),
    );
    t.same(skipped, [{ resource: "events.events.k8s.io", reason: 'shares its storage with "events"' }]);
  }
});

await tap.test(
  "selectMigratable() takes events.events.k8s.io where it is not the same objects as events",
  async (t) => {
    const listed = version("events.k8s.io", "v1", entry("events", { storageVersionHash: "E" }));
    for (const [what, core] of [
      ["events are not served", []],
      ["events cannot be migrated", [entry("events", { storageVersionHash: "E", verbs: ["list"] })]],
      ["they are stored in another encoding", [entry("events", { storageVersionHash: "other" })]],
    ] as const) {
      const { migratable } = selectMigratable([listed, version("", "v1", ...core)]);
      t.ok(
        migratable.some(({ group }) => group === "events.k8s.io"),
        what,
      );
    }
  },
);

const leftOut: readonly [name: string, resource: DiscoveredResource, reason: RegExp][] = [
  ["a subresource", entry("pods/status"), /^is a subresource$/],
  ["what cannot be patched", entry("componentstatuses", { verbs: ["get", "list"] }), /does not offer patch$/],
  ["what can only be created", entry("bindings", { verbs: ["create"] }), /does not offer list and patch$/],
  ["an empty hash", entry("nodes", { storageVersionHash: "" }), /no storageVersionHash/],
];

for (const [name, resource, reason] of leftOut) {
  await tap.test(`selectMigratable() leaves ${name} out`, async (t) => {
    const { migratable, skipped } = selectMigratable([version("", "v1", resource)]);
    t.same(migratable, []);
    t.match(skipped, [{ resource: resource.name, reason }]);
  });
}

await tap.test("selectMigratable() leaves out what has no hash", async (t) => {
  const { storageVersionHash: _, ...withoutHash } = entry("pods");
  const { skipped } = selectMigratable([version("metrics.k8s.io", "v1beta1", withoutHash)]);
  t.match(skipped, [{ resource: "pods.metrics.k8s.io", reason: /no storageVersionHash/ }]);
});
