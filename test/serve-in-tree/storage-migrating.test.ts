import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { changeOf, type Marking } from "../../src/serve-in-tree/storage-migrating.ts";

const NOW = "2026-01-01T00:00:00Z";
const ESTABLISHED = { type: "Established", status: "True" };

function crd(storedVersions: readonly string[], ...conditions: readonly object[]): CustomResourceDefinition {
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: "widgets.example.com", uid: "u", resourceVersion: "1", generation: 3 },
    spec: {
      group: "example.com",
      scope: "Namespaced",
      names: { plural: "widgets", kind: "Widget" },
      versions: [
        { name: "v1", served: true, storage: true },
        { name: "v1alpha1", served: true, storage: false },
      ],
    },
    status: { storedVersions, conditions: [ESTABLISHED, ...conditions] as never },
  };
}

const DIRTY = ["v1alpha1", "v1"];
const RUNNING: Marking = { type: "running", migration: "one" };

await tap.test("the condition has upstream's reasons, and storedVersions is never written", async (t) => {
  const cases: readonly [Marking, readonly string[], object][] = [
    [RUNNING, DIRTY, { status: "True", reason: "MigrationRunning", message: "Migration one is running" }],
    [{ type: "ended", hasSucceeded: false }, DIRTY, { status: "False", reason: "MigrationFailed" }],
    [
      { type: "ended", hasSucceeded: true },
      ["v1"],
      { status: "False", reason: "MigrationSucceeded", message: /and the stored versions have been updated$/ },
    ],
    [
      { type: "ended", hasSucceeded: true },
      DIRTY,
      { status: "False", reason: "MigrationSucceeded", message: /have not been updated due to a generation mismatch$/ },
    ],
  ];
  for (const [marking, stored, wanted] of cases) {
    const status = changeOf(crd(stored), marking, NOW)?.status ?? {};
    t.same(Object.keys(status), ["conditions"]);
    const [established, condition] = status["conditions"] as readonly object[];
    t.same(established, ESTABLISHED, "the conditions of others stay");
    t.match(condition, { type: "StorageMigrating", observedGeneration: 3, lastTransitionTime: NOW, ...wanted });
  }
});

await tap.test("nothing is written where the CRD says it already, or never said that it runs", async (t) => {
  const written = changeOf(crd(DIRTY), RUNNING, NOW)?.status?.["conditions"] as readonly object[];
  const marked = crd(DIRTY, ...written.slice(1));
  t.equal(changeOf(marked, RUNNING, NOW), undefined);
  t.equal(changeOf(crd(DIRTY), { type: "waiting", migration: "one" }, NOW), undefined);
  t.match(changeOf(marked, { type: "waiting", migration: "one" }, NOW), {
    status: { conditions: [ESTABLISHED, { status: "False", reason: "MigrationWaiting" }] },
  });
});
