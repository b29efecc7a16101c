import t from "tap";
import { MIGRATING, OWNER } from "../../src/freeze/rule.ts";
import { diagnose, type Finding, toRepair } from "../../src/inventory/doctor.ts";
import type { FoundObjects } from "../../src/inventory/inventory.ts";
import { isRestored, restoredVersion } from "../../src/inventory/repair.ts";
import type { Crd } from "../../src/kube/objects.ts";
import { type CrdTraits, crdWith } from "../api/crd-with.ts";

const CLEAN: CrdTraits = { versions: ["v1+"], storedVersions: ["v1"] };
const BOTH: CrdTraits = { versions: ["v1+", "v1alpha1"], storedVersions: ["v1"] };
const NAME = "widgets.example.com";
const LEASE = `kube-system/ksvm-migrate.${NAME}`;
const RUN = JSON.stringify({ lease: LEASE, identity: "host_a", since: "2026-01-01T00:00:00Z" });
const FROZEN = { metadata: { annotations: { [MIGRATING]: "true", [OWNER]: RUN } } };

function crdOf(traits: CrdTraits, status: object = {}): Crd {
  const crd = crdWith(traits) as unknown as Crd;
  return { ...crd, status: { ...crd.status, ...status } };
}

/** What is found on a CRD that has three objects. */
function found(crd: Crd, objects: FoundObjects = {}, isRunAlive?: boolean): readonly Finding[] {
  return diagnose(crd, Object.keys(objects).length === 0 ? { count: 3 } : objects, isRunAlive);
}

await t.test("diagnose() finds nothing where nothing is wrong", async (t) => {
  t.same(found(crdOf(CLEAN)), []);
  t.same(found(crdOf(BOTH)), [], "a version may stay in the CRD");
  t.same(found(crdOf(FROZEN), {}, true), [], "a run that lives migrates it");
});

const RESTORED = restoredVersion("v1alpha1");
const interrupted = (storedVersions: readonly string[]): Crd => {
  const crd = crdOf({ ...CLEAN, storedVersions });
  return { ...crd, spec: { ...crd.spec, versions: [...crd.spec.versions, RESTORED] } };
};
const FAILED = { conditions: [{ type: "StorageMigrating", status: "False", reason: "MigrationFailed" }] };

type Expected = Readonly<Record<string, unknown>>;

const CASES: readonly (readonly [name: string, findings: readonly Finding[], ...expected: readonly Expected[]])[] = [
  [
    "a CRD that is being deleted, and nothing else about it",
    found(crdOf({ metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } })),
    { finding: "blocked-crd", severity: "action", help: /kubectl get widgets/ },
  ],
  [
    "a CRD that lost a version which storedVersions lists, and what brings it back",
    found(crdOf({ versions: ["v1+"], storedVersions: ["v1alpha1", "v1"] })),
    { finding: "blocked-crd", severity: "data", versions: ["v1alpha1"], help: `ksvm doctor ${NAME} --repair` },
  ],
  [
    "objects in a version that the CRD lost",
    found(crdOf(CLEAN), { problem: "…", unreadableIn: "v1alpha1" }),
    { finding: "unreadable-objects", severity: "data", versions: ["v1alpha1"], objects: "unknown" },
  ],
  [
    "objects that cannot be listed",
    found(crdOf(CLEAN), { problem: "conversion webhook failed" }),
    { finding: "unlistable-objects", severity: "unknown" },
  ],
  [
    "managedFields that name a version which is gone",
    found(crdOf(CLEAN), {
      count: 3,
      fieldVersions: { objects: 2, versions: ["v0"], lookedAt: 3, isPartial: false },
    }),
    { finding: "managed-fields", severity: "action", objects: 2, help: `ksvm migrate ${NAME} --force` },
  ],
  [
    "a prune that nothing proves",
    found(crdOf(BOTH, FAILED)),
    {
      finding: "unproven-prune",
      severity: "data",
      versions: ["v1alpha1"],
      objects: 3,
      help: `ksvm migrate ${NAME} --force`,
    },
  ],
  [
    "stale storedVersions",
    found(crdOf({})),
    { finding: "stale-stored-versions", severity: "action", versions: ["v1"] },
  ],
  [
    "a repair that was interrupted at once",
    found(interrupted(["v1"])),
    { finding: "unfinished-repair", severity: "data" },
  ],
  [
    "a repair that was interrupted later",
    found(interrupted(["v1", "v1alpha1"])),
    { finding: "unfinished-repair", objects: 3 },
  ],
  [
    "a freeze of a dead run",
    found(crdOf({ ...CLEAN, ...FROZEN }), {}, false),
    { finding: "stuck-freeze", severity: "action", help: `ksvm unfreeze ${NAME}` },
  ],
  [
    "a freeze of a run of which nothing is known",
    found(crdOf({ ...CLEAN, ...FROZEN })),
    { finding: "stuck-freeze", severity: "unknown" },
  ],
  [
    "a freeze of another client",
    found(crdOf({ ...CLEAN, metadata: { annotations: { [MIGRATING]: "by hand" } } })),
    { finding: "foreign-freeze", meaning: `another client froze the storage version (annotation ${MIGRATING})` },
  ],
];

for (const [name, findings, ...expected] of CASES) {
  await t.test(`diagnose() finds ${name}`, async (t) => {
    t.equal(findings.length, expected.length);
    t.match(findings, expected);
    t.ok(findings.every(({ object }) => object === NAME));
  });
}

await t.test("isRestored() takes no version of a vendor for one that a repair brought back", async (t) => {
  t.ok(isRestored(RESTORED));
  t.ok(isRestored({ ...RESTORED, served: false }), "also while a user has it not served");
  t.notOk(isRestored({ ...RESTORED, storage: true }));
  t.notOk(isRestored({ ...RESTORED, schema: { openAPIV3Schema: { type: "object" } } }));
  t.notOk(isRestored({ name: "v1alpha1", served: true, storage: false }));
});

await t.test("toRepair() leaves out what another command settles", async (t) => {
  const repaired = (...crds: readonly (readonly Finding[])[]) => toRepair(crds.flat());
  t.same(repaired(found(crdOf(CLEAN), { problem: "…", unreadableIn: "v1alpha1" }), found(interrupted(["v1"]))), [NAME]);
  t.same(repaired(found(crdOf({ versions: ["v1+"], storedVersions: ["v0", "v1"] }))), [NAME]);
  const frozen = crdOf({ ...CLEAN, ...FROZEN });
  t.same(repaired(found(crdOf({})), found(crdOf(BOTH, FAILED)), found(frozen, {}, false)), []);
  t.same(repaired(found(crdOf({ metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } }))), [], "nothing helps");
});
