import tap from "tap";
import {
  type ClusterFacts,
  type CrdFacts,
  diagnose,
  type Finding,
  type FoundFreeze,
  isRestored,
  restoredVersion,
} from "../../src/doctor/diagnose.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";
import type { InTreeMigration } from "../../src/in-tree/in-tree-migrations.ts";
import { crdWith, type CrdTraits } from "../api/crd-with.ts";

const CLEAN: CrdTraits = { versions: ["v1+"], storedVersions: ["v1"] };
const OWNER = {
  lease: "kube-system/ksvm-migrate.widgets.example.com",
  identity: "host_a",
  since: "2026-01-01T00:00:00Z",
};

function factsOf(traits: CrdTraits, facts: Partial<CrdFacts> = {}): CrdFacts {
  return { crd: crdWith(traits), objects: { count: 3 }, ...facts };
}

function inTree(state: string, resource = "widgets"): InTreeMigration {
  return {
    metadata: { name: "m", uid: "u", resourceVersion: "1" },
    spec: { resource: { group: "example.com", resource } },
    status: { conditions: [{ type: state, status: "True" }] },
  };
}

function found(facts: CrdFacts, migrations: readonly InTreeMigration[] = []): readonly Partial<Finding>[] {
  return diagnose({ crds: [facts], inTree: migrations });
}

function foundInCluster(cluster: ClusterFacts): readonly Finding[] {
  return diagnose({ crds: [], inTree: [], cluster });
}

const runFreeze = (isAlive: boolean | undefined): FoundFreeze => ({ owner: OWNER, isAlive });
const lease = {
  metadata: { name: "apiserver-a", uid: "u", resourceVersion: "1", labels: { "kubernetes.io/hostname": "host-a" } },
  spec: { renewTime: "2026-01-01T00:00:00.000000Z" as never },
};

await tap.test("diagnose() finds nothing where nothing is wrong", async (t) => {
  t.same(found(factsOf(CLEAN)), []);
  t.same(
    found(factsOf({ versions: ["v1+", "v1alpha1"], storedVersions: ["v1"] })),
    [],
    "a version may stay in the CRD",
  );
  t.same(found(factsOf({ versions: ["v1+", "v1alpha1"], storedVersions: ["v1"] }), [inTree("Succeeded")]), []);
  t.same(found(factsOf({ versions: ["v1+", "v1alpha1"], storedVersions: ["v1"] }), [inTree("Failed", "others")]), []);
  t.same(found(factsOf({}, { freeze: runFreeze(true) })), [], "a run that lives migrates it");
  t.same(found(factsOf({}), [inTree("Running")]), [], "Kubernetes' own migrator migrates it");
  t.same(found(factsOf({ metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } })), [], "it is being deleted");
  const webhook = { state: "answers" } as const;
  t.same(diagnose({ crds: [], inTree: [], cluster: { silentLeases: [], webhook } }), []);
});

const CASES: readonly [
  name: string,
  facts: CrdFacts,
  migrations: readonly InTreeMigration[],
  expected: Partial<Finding>,
][] = [
  [
    "objects in a version that the CRD lost",
    factsOf(CLEAN, { objects: { problem: "…", unreadableIn: "v1alpha1" } }),
    [],
    { finding: "unreadable-objects", severity: "data", versions: ["v1alpha1"], objects: "unknown" },
  ],
  [
    "objects that cannot be listed",
    factsOf(CLEAN, { objects: { problem: "conversion webhook failed" } }),
    [],
    { finding: "unlisted-objects", severity: "unknown" },
  ],
  [
    "objects that no version shows",
    factsOf({ versions: ["v1+-"], storedVersions: ["v1"] }, { objects: undefined }),
    [],
    { finding: "unlisted-objects", severity: "unknown", help: "serve a version, and run ksvm doctor again" },
  ],
  [
    "a prune after a failure",
    factsOf({ versions: ["v1+", "v1alpha1"], storedVersions: ["v1"] }),
    [inTree("Failed")],
    { finding: "unproven-prune", severity: "data", versions: ["v1alpha1"], objects: 3 },
  ],
  ["stale storedVersions", factsOf({}), [], { finding: "stale-stored-versions", severity: "action", versions: ["v1"] }],
  [
    "a freeze of a dead run",
    factsOf(CLEAN, { freeze: runFreeze(false) }),
    [],
    { finding: "stuck-freeze", severity: "action", help: "ksvm unfreeze widgets.example.com" },
  ],
  [
    "a freeze of a run of which nothing is known",
    factsOf(CLEAN, { freeze: runFreeze(undefined) }),
    [],
    { finding: "stuck-freeze", severity: "unknown" },
  ],
  [
    "a freeze of another client",
    factsOf(CLEAN, { freeze: { owner: "other" } }),
    [],
    { finding: "foreign-freeze", severity: "action" },
  ],
];

for (const [name, facts, migrations, expected] of CASES) {
  await tap.test(`diagnose() finds ${name}`, async (t) => {
    const findings = found(facts, migrations);
    t.equal(findings.length, 1);
    t.match(findings[0], { object: "widgets.example.com", ...expected });
  });
}

await tap.test("diagnose() finds StorageMigrating that no migration explains", async (t) => {
  const crd = crdWith(CLEAN);
  const conditions = [{ type: "StorageMigrating", status: "True" }];
  const facts = { crd: { ...crd, status: { ...crd.status, conditions } } };
  t.match(found(facts), [{ finding: "stuck-storage-migrating" }]);
  t.match(found(facts, [inTree("Succeeded")]), [{ finding: "stuck-storage-migrating" }]);
  t.same(found(facts, [inTree("Running")]), []);
  t.match(diagnose({ crds: [facts] }), [{ finding: "not-looked-at", severity: "unknown" }], "the user may not look");
});

await tap.test(
  "diagnose() finds a prune by the condition of Kubernetes' own migrator, whatever became of the migration",
  async (t) => {
    const crd = crdWith({ versions: ["v1+", "v1alpha1"], storedVersions: ["v1"] });
    const saying = (condition: object): CrdFacts => {
      const conditions = [{ type: "StorageMigrating", status: "False", ...condition }];
      return { crd: { ...crd, status: { ...crd.status, conditions } }, objects: { count: 3 } };
    };
    const prune = { finding: "unproven-prune", severity: "data", versions: ["v1alpha1"], objects: 3 };
    t.match(found(saying({ reason: "MigrationFailed" })), [prune]);
    t.match(diagnose({ crds: [saying({ reason: "MigrationFailed" })] }), [prune, { finding: "not-looked-at" }]);
    t.match(found(saying({ status: "True" })), [prune, { finding: "stuck-storage-migrating" }]);
    t.match(found(saying({ status: "True" }), [inTree("Running")]), [{ ...prune, severity: "unknown", help: /^wait/ }]);
    t.same(found(saying({ reason: "MigrationSucceeded" })), [], "negative control");
  },
);

await tap.test("diagnose() finds a repair that was interrupted, whatever storedVersions says", async (t) => {
  for (const storedVersions of [["v1"], ["v1alpha1", "v1"]]) {
    const crd = crdWith({ ...CLEAN, storedVersions });
    const versions = [...crd.spec.versions, restoredVersion("v1alpha1")];
    const facts = { crd: { ...crd, spec: { ...crd.spec, versions } }, objects: { count: 3 } };
    t.match(found(facts), [{ finding: "unfinished-repair", severity: "data", versions: ["v1alpha1"], objects: 3 }]);
  }
});

await tap.test("isRestored() takes no version of a vendor for one that a repair brought back", async (t) => {
  const own = restoredVersion("v1alpha1");
  t.ok(isRestored(own));
  t.notOk(isRestored({ ...own, served: true }));
  t.notOk(isRestored({ ...own, storage: true }));
  t.notOk(isRestored({ ...own, schema: { openAPIV3Schema: { type: "object" } } }));
  t.notOk(isRestored({ name: "v1alpha1", served: false, storage: false }));
});

await tap.test("diagnose() finds what does not belong to one CRD", async (t) => {
  const absent = { state: "absent" } as const;
  t.match(foundInCluster({ silentLeases: [lease], webhook: absent }), [
    {
      finding: "silent-api-server",
      object: "leases/apiserver-a",
      meaning: /apiserver-a of host host-a has not renewed its identity Lease since 2026-01-01T00:00:00/,
      help: /only if .* gone for good/,
    },
  ]);
  t.match(foundInCluster({ webhook: absent }), [{ finding: "not-looked-at" }]);
  t.match(foundInCluster({ silentLeases: [], webhook: { state: "silent", reason: "no endpoint" } }), [
    { finding: "silent-webhook", severity: "action", meaning: /^no endpoint/ },
  ]);
  t.match(foundInCluster({ silentLeases: [], webhook: { state: "unknown", reason: "forbidden" } }), [
    { finding: "not-looked-at", severity: "unknown", meaning: "forbidden" },
  ]);
});

await tap.test("diagnose() names the annotation of a foreign freeze", async (t) => {
  const [finding] = found(factsOf(CLEAN, { freeze: { owner: "other" } }));
  t.match(finding?.meaning, `another client froze the storage version (annotation ${MIGRATING})`);
});
