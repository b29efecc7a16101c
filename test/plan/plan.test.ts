import tap from "tap";

import { type CustomResourceDefinition, storageVersionHashOf } from "../../src/api/crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION, STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { prune } from "../../src/old/json/json-projection.ts";
import { isSchemaDue, PLAN_FIELDS, type PlanEntry, planBuiltIn, planCrd } from "../../src/plan/plan.ts";
import { crdLacking } from "../api/crd-lacking.ts";
import { type CrdTraits, crdWith } from "../api/crd-with.ts";

const OURS = JSON.stringify({ lease: "kube-system/a", identity: "host_1", since: "2026-01-01T00:00:00.000Z" });
const BY_OURS = { annotations: { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: OURS } };
const BY_OTHERS = { annotations: { [MIGRATING_ANNOTATION]: "true" } };

const cases: readonly [name: string, traits: CrdTraits, expected: Partial<PlanEntry>][] = [
  ["migrate when storedVersions names more", {}, { action: "migrate", removableVersions: ["v1"] }],
  ["migrate when storedVersions is empty", { storedVersions: undefined }, { action: "migrate", storedVersions: [] }],
  ["none when it is clean", { storedVersions: ["v2"] }, { action: "none", removableVersions: ["v1"] }],
  ["none when it has one version", { versions: ["v1+"], storedVersions: ["v1"] }, { removableVersions: [] }],
  [
    "blocked when no version is served",
    { versions: ["v1-", "v2+-"] },
    { action: "blocked", note: "no version is served", removableVersions: [] },
  ],
  [
    "blocked when another owner froze it",
    { metadata: BY_OTHERS },
    { action: "blocked", note: "frozen by another owner", removableVersions: [] },
  ],
  [
    "migrate when a run of ours froze it",
    { metadata: BY_OURS },
    { action: "migrate", note: "frozen by host_1 since 2026-01-01T00:00:00.000Z" },
  ],
];

for (const [name, traits, expected] of cases) {
  await tap.test(`planCrd() says ${name}`, (t) => {
    t.match(planCrd(crdWith(traits)), expected);
    t.end();
  });
}

await tap.test(
  "planCrd() says blocked where each write would drop fields of a storage version that is not served",
  (t) => {
    const note =
      'its storage version "v2" is not served, and "v1" lacks spec.f0: set served: true on "v2" until it is migrated';
    t.match(planCrd(crdLacking(1)), { action: "blocked", note, removableVersions: [] });
    t.match(planCrd(crdLacking(0)), { action: "migrate", note: undefined });
    t.match(planCrd(crdLacking(1, { storedVersions: ["v2"] })), { action: "none", note: undefined });
    t.match(planCrd(crdLacking(1, { metadata: BY_OTHERS })), { action: "blocked", note: "frozen by another owner" });
    t.match(planCrd(crdLacking(1, { metadata: BY_OURS })), { action: "blocked", note });
    t.match(planCrd({ ...saying("True", "MigrationRunning"), spec: crdLacking(1).spec }), {
      action: "blocked",
      note,
    });
    t.end();
  },
);

await tap.test("isSchemaDue() is true where the schemas decide whether a migration can write", (t) => {
  t.ok(isSchemaDue(prune(crdLacking(1), PLAN_FIELDS) as CustomResourceDefinition));
  t.notOk(isSchemaDue(crdLacking(1, { storedVersions: ["v2"] })), "there is nothing to do");
  t.notOk(isSchemaDue(crdLacking(1, { conversion: { strategy: "Webhook" } })), "a webhook converts");
  t.notOk(isSchemaDue(crdWith({})), "the storage version is served");
  t.notOk(isSchemaDue(crdWith({ versions: ["v1-", "v2+-"] })), "no version is");
  t.end();
});

await tap.test("planCrd() has the fields of `ksvm plan -o json`", (t) => {
  t.strictSame(planCrd(crdWith({ versions: ["v1", "v2+-"] })), {
    name: "widgets.example.com",
    kind: "Widget",
    type: "CustomResourceDefinition",
    request: { group: "example.com", version: "v1", resource: "widgets" },
    storageVersion: "v2",
    storedVersions: ["v1", "v2"],
    servedVersions: ["v1"],
    action: "migrate",
    removableVersions: ["v1"],
    crd: "uid-1/3",
  });
  t.notOk("request" in planCrd(crdWith({ versions: ["v1+-"] })), "no request where nothing is served");
  t.end();
});

function saying(status: string, reason: string): CustomResourceDefinition {
  const conditions = [{ type: STORAGE_MIGRATING_CONDITION, status, reason }];
  return { ...crdWith(), status: { storedVersions: ["v2"], conditions } };
}

await tap.test("planCrd() believes no storedVersions that Kubernetes' own migrator may have pruned", (t) => {
  for (const crd of [saying("False", "MigrationFailed"), saying("True", "MigrationRunning")]) {
    const entry = planCrd(crd);
    t.equal(entry.action, "migrate");
    t.match(entry.pruneDoubt, /^objects may be stored in v1, .* condition StorageMigrating .* --repair$/);
    t.strictSame(planCrd(prune(crd, PLAN_FIELDS) as CustomResourceDefinition), entry, "of a list, too");
  }
  const proven = planCrd(saying("False", "MigrationSucceeded"));
  t.equal(proven.action, "none");
  t.notOk("pruneDoubt" in proven);
  t.end();
});

await tap.test("planBuiltIn() says what the StorageState says", (t) => {
  const secrets = { group: "", version: "v1", resource: "secrets", kind: "Secret" };
  t.equal(planBuiltIn(secrets, { state: "current" }).action, "none");
  t.equal(planBuiltIn(secrets, { state: "stale" }).action, "migrate");
  t.match(planBuiltIn(secrets, { state: "unknown", reason: "why" }), { action: "unknown", note: "why" });
  t.end();
});

await tap.test("planBuiltIn() names the versions that hashes stand for, and the hash where it is of none", (t) => {
  const [v2, old] = ["v2", "v2beta2"].map((version) =>
    storageVersionHashOf("autoscaling", version, "HorizontalPodAutoscaler"),
  ) as [string, string];
  const resource = {
    group: "autoscaling",
    version: "v1",
    resource: "horizontalpodautoscalers",
    kind: "HorizontalPodAutoscaler",
  };
  t.match(planBuiltIn({ ...resource, storageVersionHash: v2 }, { state: "stale", persisted: [old, v2] }), {
    action: "migrate",
    storageVersion: "v2",
    storedVersions: ["v2beta2", "v2"],
  });
  t.match(planBuiltIn({ ...resource, storageVersionHash: "other" }, { state: "unknown", persisted: ["Unknown"] }), {
    storageVersion: "hash other",
    storedVersions: ["unknown"],
  });
  const events = { group: "events.k8s.io", version: "v1", resource: "events", kind: "Event" };
  t.match(planBuiltIn({ ...events, storageVersionHash: storageVersionHashOf("", "v1", "Event") }), {
    storageVersion: "v1",
  });
  t.end();
});

await tap.test("planBuiltIn() says unknown", (t) => {
  t.strictSame(planBuiltIn({ group: "", version: "v1", resource: "secrets", kind: "Secret" }), {
    name: "secrets",
    kind: "Secret",
    type: "built-in",
    request: { group: "", version: "v1", resource: "secrets" },
    servedVersions: ["v1"],
    action: "unknown",
    removableVersions: [],
  });
  t.equal(planBuiltIn({ group: "apps", version: "v1", resource: "deployments", kind: "D" }).name, "deployments.apps");
  t.end();
});
