import t from "tap";
import { storageVersionHash } from "../../src/apiservers/converge.ts";
import { MIGRATING, OWNER } from "../../src/freeze/rule.ts";
import { planBuiltIn, planCrd, type PlanEntry, withObjects } from "../../src/inventory/plan.ts";
import type { Crd } from "../../src/kube/objects.ts";
import { crdLacking } from "../api/crd-lacking.ts";
import { type CrdTraits, crdWith } from "../api/crd-with.ts";

const OURS = JSON.stringify({ lease: "kube-system/a", identity: "host_1", since: "2026-01-01T00:00:00.000Z" });
const BY_OURS = { annotations: { [MIGRATING]: "true", [OWNER]: OURS } };
const BY_OTHERS = { annotations: { [MIGRATING]: "true" } };
const crdOf = (traits: CrdTraits = {}): Crd => crdWith(traits) as unknown as Crd;
const NOT_SERVED = { action: "blocked", note: /^its storage version v2 is not served/, removableVersions: [] };

const CASES: readonly (readonly [name: string, crd: Crd, expected: Readonly<Record<string, unknown>>])[] = [
  ["migrate when storedVersions names more", crdOf(), { action: "migrate", removableVersions: ["v1"] }],
  [
    "migrate when storedVersions is empty",
    crdOf({ storedVersions: undefined }),
    { action: "migrate", storedVersions: [] },
  ],
  ["none when it is clean", crdOf({ storedVersions: ["v2"] }), { action: "none", removableVersions: ["v1"] }],
  [
    "blocked when no version is served",
    crdOf({ versions: ["v1-", "v2+-"] }),
    { action: "blocked", note: "it serves no version", help: /^kubectl patch crd/, removableVersions: [] },
  ],
  [
    "blocked when another owner froze it",
    crdOf({ metadata: BY_OTHERS }),
    { action: "blocked", note: "frozen by another owner", help: undefined, removableVersions: [] },
  ],
  [
    "migrate when a run of ours froze it",
    crdOf({ metadata: BY_OURS }),
    { action: "migrate", note: "frozen by host_1 since 2026-01-01T00:00:00.000Z" },
  ],
  ["blocked when each write would drop fields", crdLacking(1) as unknown as Crd, NOT_SERVED],
  [
    "none when it is clean, and what is in the way of the next migration",
    crdLacking(1, { storedVersions: ["v2"] }) as unknown as Crd,
    { ...NOT_SERVED, action: "none" },
  ],
];

for (const [name, crd, expected] of CASES) {
  await t.test(`planCrd() says ${name}`, async (t) => {
    t.match(planCrd(crd), expected);
  });
}

await t.test("planCrd() has the fields of `ksvm plan -o json`", async (t) => {
  t.strictSame(planCrd(crdOf({ versions: ["v1", "v2+-"] })), {
    name: "widgets.example.com",
    kind: "Widget",
    type: "CustomResourceDefinition",
    storageVersion: "v2",
    storedVersions: ["v1", "v2"],
    servedVersions: ["v1"],
    action: "migrate",
    removableVersions: ["v1"],
  });
});

await t.test("planCrd() believes no storedVersions that Kubernetes' own migrator may have pruned", async (t) => {
  const saying = (status: string, reason: string): Crd => {
    const conditions = [{ type: "StorageMigrating", status, reason }];
    return { ...crdOf(), status: { storedVersions: ["v2"], conditions } };
  };
  const note =
    /^objects may be stored in v1, .* condition StorageMigrating .* ksvm migrate widgets\.example\.com --force$/;
  t.match(planCrd(saying("False", "MigrationFailed")), { action: "migrate", note });
  t.match(planCrd(saying("True", "MigrationRunning")), { action: "migrate", note });
  t.match(planCrd(saying("False", "MigrationSucceeded")), { action: "none", note: undefined });
});

await t.test("a version that managedFields name cannot leave, unless the migration renames them", async (t) => {
  const fieldVersions = { objects: 2, versions: ["v1"], lookedAt: 3, isPartial: false };
  const found = { count: 3, fieldVersions };
  const planned = (traits: CrdTraits): PlanEntry => withObjects(planCrd(crdOf(traits)), found);
  const kept = { removableVersions: [], managedFields: fieldVersions };
  t.match(planned({}), { removableVersions: ["v1"], managedFields: undefined });
  t.match(planned({ storedVersions: ["v2"] }), kept, "no migration is due");
  t.match(planned({ conversion: { strategy: "Webhook" } }), kept, "only the webhook knows which field is which");
  const other = { ...fieldVersions, versions: ["v0"] };
  const gone = withObjects(planCrd(crdOf({ storedVersions: ["v2"] })), { count: 3, fieldVersions: other });
  t.match(gone, { removableVersions: ["v1"] });
});

await t.test("withObjects() says why objects cannot be listed", async (t) => {
  const planned = planCrd(crdOf({ metadata: BY_OURS }));
  const entry = withObjects(planned, { problem: "no", conversionProblem: "no" });
  t.match(entry, { note: /^frozen by host_1 .*; objects cannot be listed: no$/ });
  t.notOk("objects" in entry);
  const down = withObjects(planCrd(crdOf()), { count: 3, conversionProblem: "no" });
  t.match(down, { note: "its conversion webhook cannot be called: no", objects: 3 });
});

const SECRETS = { group: "", version: "v1", resource: "secrets", kind: "Secret" };

await t.test("planBuiltIn() says what the StorageState says", async (t) => {
  t.equal(planBuiltIn(SECRETS, { state: "current" }).action, "none");
  t.equal(planBuiltIn(SECRETS, { state: "stale" }).action, "migrate");
  t.match(planBuiltIn(SECRETS, { state: "unknown", reason: "why" }), { action: "unknown", note: "why" });
  t.strictSame(planBuiltIn(SECRETS), {
    name: "secrets",
    kind: "Secret",
    type: "built-in",
    servedVersions: ["v1"],
    action: "unknown",
    removableVersions: [],
  });
  t.equal(planBuiltIn({ group: "apps", version: "v1", resource: "deployments", kind: "D" }).name, "deployments.apps");
});

await t.test("planBuiltIn() names the versions that hashes stand for, and the hash where it is of none", async (t) => {
  const [group, kind] = ["autoscaling", "HorizontalPodAutoscaler"];
  const [v2, old] = [storageVersionHash(group, "v2", kind), storageVersionHash(group, "v2beta2", kind)];
  const resource = { group, version: "v1", resource: "horizontalpodautoscalers", kind };
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
  const hash = storageVersionHash("", "v1", "Event");
  t.match(planBuiltIn({ ...events, storageVersionHash: hash }), { storageVersion: "v1" });
});
