import t from "tap";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { type CrdFacts, diagnose, isRestored, restoredVersion } from "../../src/inventory/doctor.ts";
import { repairPlans } from "../../src/inventory/repair.ts";
import type { Crd } from "../../src/kube/objects.ts";
import type { InTreeMigration } from "../../src/migrator/in-tree.ts";
import { type CrdTraits, crdWith } from "../api/crd-with.ts";

const CLEAN: CrdTraits = { versions: ["v1+"], storedVersions: ["v1"] };
const BOTH: CrdTraits = { versions: ["v1+", "v1alpha1"], storedVersions: ["v1"] };
const OWNER = {
  lease: "kube-system/ksvm-migrate.widgets.example.com",
  identity: "host_a",
  since: "2026-01-01T00:00:00Z",
};
const NAME = "widgets.example.com";

function factsOf(traits: CrdTraits, facts: Partial<CrdFacts> = {}): CrdFacts {
  return { crd: crdWith(traits) as unknown as Crd, objects: { count: 3 }, inTree: [], ...facts };
}

/** The CRD of facts with conditions. */
function saying(traits: CrdTraits, condition: object, facts: Partial<CrdFacts> = {}): CrdFacts {
  const { crd, ...rest } = factsOf(traits, facts);
  return { ...rest, crd: { ...crd, status: { ...crd.status, conditions: [condition] } } as unknown as Crd };
}

function inTree(state: string, resource = "widgets"): { readonly inTree: readonly InTreeMigration[] } {
  const spec = { resource: { group: "example.com", resource } };
  const status = { conditions: [{ type: state, status: "True" }] };
  return { inTree: [{ metadata: { name: "m", uid: "u", resourceVersion: "1" }, spec, status }] };
}

await t.test("diagnose() finds nothing where nothing is wrong", async (t) => {
  t.same(diagnose(factsOf(CLEAN)), []);
  t.same(diagnose(factsOf(BOTH)), [], "a version may stay in the CRD");
  t.same(diagnose(factsOf(BOTH, inTree("Succeeded"))), []);
  t.same(diagnose(factsOf(BOTH, inTree("Failed", "others"))), []);
  t.same(diagnose(factsOf({}, { freeze: { owner: OWNER, isAlive: true } })), [], "a run that lives migrates it");
  t.same(diagnose(factsOf({}, inTree("Running"))), [], "Kubernetes' own migrator migrates it");
  t.same(diagnose(saying(BOTH, { type: "StorageMigrating", status: "False", reason: "MigrationSucceeded" })), []);
  const unseen = saying(CLEAN, { type: "StorageMigrating", status: "True" }, { inTree: undefined });
  t.same(diagnose(unseen), [], "the user may not list what may explain it");
});

const RESTORED = restoredVersion("v1alpha1");
const interrupted = (storedVersions: readonly string[]): CrdFacts => {
  const { crd, ...rest } = factsOf({ ...CLEAN, storedVersions });
  return { ...rest, crd: { ...crd, spec: { ...crd.spec, versions: [...crd.spec.versions, RESTORED] } } };
};
const BEGUN = { type: "StorageMigrating", status: "True" };
const PRUNE = { finding: "unproven-prune", severity: "data", versions: ["v1alpha1"], objects: 3 } as const;
const STUCK = { finding: "stuck-storage-migrating", severity: "action" } as const;

type Expected = Readonly<Record<string, unknown>>;

const CASES: readonly (readonly [name: string, facts: CrdFacts, ...expected: readonly Expected[]])[] = [
  [
    "a CRD that is being deleted, and nothing else about it",
    factsOf({ metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } }),
    { finding: "blocked-crd", severity: "action", help: /kubectl get widgets/ },
  ],
  [
    "a CRD that lost a version which storedVersions lists, and what brings it back",
    factsOf({ versions: ["v1+"], storedVersions: ["v1alpha1", "v1"] }),
    { finding: "blocked-crd", severity: "data", versions: ["v1alpha1"], help: `ksvm doctor ${NAME} --repair` },
  ],
  [
    "the fields that an API server will drop",
    (({ crd, ...rest }) => ({ ...rest, crd: { ...crd, spec: { ...crd.spec, preserveUnknownFields: true } } }))(
      factsOf(CLEAN, { undescribed: ["spec.a", "spec.b[].c"] }),
    ),
    { finding: "blocked-crd", severity: "action", meaning: /: spec\.a, spec\.b\[\]\.c$/ },
  ],
  [
    "objects in a version that the CRD lost",
    factsOf(CLEAN, { objects: { problem: "…", unreadableIn: "v1alpha1" } }),
    { finding: "unreadable-objects", severity: "data", versions: ["v1alpha1"], objects: "unknown" },
  ],
  [
    "objects that cannot be listed",
    factsOf(CLEAN, { objects: { problem: "conversion webhook failed" } }),
    { finding: "unlisted-objects", severity: "unknown" },
  ],
  [
    "managedFields that name a version which is gone",
    factsOf(CLEAN, {
      objects: { count: 3, fieldVersions: { objects: 2, versions: ["v0"], lookedAt: 3, isPartial: false } },
    }),
    { finding: "managed-fields", severity: "action", objects: 2, help: `ksvm migrate ${NAME} --force` },
  ],
  ["a prune after a failure", factsOf(BOTH, inTree("Failed")), PRUNE],
  ["the same by the condition", saying(BOTH, { ...BEGUN, status: "False", reason: "MigrationFailed" }), PRUNE],
  ["a migration that began, and that nothing explains", saying(BOTH, BEGUN), PRUNE, STUCK],
  [
    "a prune of a migration that may still succeed",
    saying(BOTH, BEGUN, inTree("Running")),
    { ...PRUNE, severity: "unknown", help: /^wait/ },
  ],
  ["a condition that nothing explains", saying(CLEAN, BEGUN, inTree("Succeeded")), STUCK],
  ["stale storedVersions", factsOf({}), { finding: "stale-stored-versions", severity: "action", versions: ["v1"] }],
  ["a repair that was interrupted at once", interrupted(["v1"]), { finding: "unfinished-repair", severity: "data" }],
  [
    "a repair that was interrupted later",
    interrupted(["v1", "v1alpha1"]),
    { finding: "unfinished-repair", objects: 3 },
  ],
  [
    "a freeze of a dead run",
    factsOf(CLEAN, { freeze: { owner: OWNER, isAlive: false } }),
    { finding: "stuck-freeze", severity: "action", help: `ksvm unfreeze ${NAME}` },
  ],
  [
    "a freeze of a run of which nothing is known",
    factsOf(CLEAN, { freeze: { owner: OWNER } }),
    { finding: "stuck-freeze", severity: "unknown" },
  ],
  [
    "a freeze of another client",
    factsOf(CLEAN, { freeze: { owner: "other" } }),
    { finding: "foreign-freeze", meaning: `another client froze the storage version (annotation ${MIGRATING})` },
  ],
];

for (const [name, facts, ...expected] of CASES) {
  await t.test(`diagnose() finds ${name}`, async (t) => {
    const findings = diagnose(facts);
    t.equal(findings.length, expected.length);
    t.match(findings, expected);
    t.ok(findings.every(({ object }) => object === NAME));
  });
}

await t.test("isRestored() takes no version of a vendor for one that a repair brought back", async (t) => {
  t.ok(isRestored(RESTORED));
  t.notOk(isRestored({ ...RESTORED, served: true }));
  t.notOk(isRestored({ ...RESTORED, storage: true }));
  t.notOk(isRestored({ ...RESTORED, schema: { openAPIV3Schema: { type: "object" } } }));
  t.notOk(isRestored({ name: "v1alpha1", served: false, storage: false }));
});

await t.test("repairPlans() takes the steps that what was found needs, in their order", async (t) => {
  const steps = (...facts: readonly CrdFacts[]): readonly string[] =>
    repairPlans(facts.flatMap(diagnose)).flatMap((plan) =>
      plan.steps.map((step) => step.split(" ").slice(0, 2).join(" ")),
    );
  const lost = factsOf(CLEAN, { objects: { problem: "…", unreadableIn: "v1alpha1" } });
  t.same(steps(lost), ["add v1alpha1", "add v1alpha1", "list the", "freeze, rewrite", "remove what"]);
  t.same(steps(factsOf({ versions: ["v1+"], storedVersions: ["v0", "v1"] })), [
    "add v0",
    "add v0",
    "list the",
    "freeze, rewrite",
    "remove what",
  ]);
  t.same(steps(interrupted(["v1"])), ["add v1alpha1", "freeze, rewrite", "remove what"]);
  const others = [factsOf({}), factsOf(CLEAN, { freeze: { owner: OWNER, isAlive: false } }), saying(CLEAN, BEGUN)];
  t.same(steps(...others), [], "what was found has a command of its own");
  t.same(steps(factsOf({ metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } })), [], "nothing brings it back");
});
