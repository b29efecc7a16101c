import tap from "tap";
import { parse } from "yaml";

import { renderPlan } from "../../src/cli/render/render-plan.ts";
import type { PlanEntry } from "../../src/inventory/plan.ts";

const ENTRIES: readonly PlanEntry[] = [
  {
    name: "widgets.example.com",
    kind: "Widget",
    type: "CustomResourceDefinition",
    storageVersion: "v2",
    storedVersions: ["v1", "v2"],
    servedVersions: ["v1", "v2"],
    action: "migrate",
    removableVersions: ["v1"],
    objects: 5000,
  },
  {
    name: "secrets",
    kind: "Secret",
    type: "built-in",
    servedVersions: [],
    action: "unknown",
    removableVersions: [],
    note: "objects cannot be listed: no",
  },
];

await tap.test("renderPlan() as a table has a row for each resource", (t) => {
  t.equal(
    renderPlan(ENTRIES, "table"),
    [
      "NAME                  STORAGE   STOREDVERSIONS   OBJECTS   ACTION    REMOVABLE   NOTE",
      "widgets.example.com   v2        v1,v2            5000      migrate   v1          -",
      "secrets               -         -                ?         unknown   -           objects cannot be listed: no",
    ].join("\n"),
  );
  t.notMatch(renderPlan(ENTRIES.slice(0, 1), "table"), /NOTE/, "only where there is one");
  t.end();
});

await tap.test("renderPlan() as a table says why nothing is known of how a resource is stored", (t) => {
  const { note: _, ...unknown } = ENTRIES[1] as PlanEntry;
  t.match(renderPlan([unknown], "table"), /unknown .*no StorageState shows how its objects are stored$/);
  t.end();
});

await tap.test("renderPlan() as a table names what helps, and what keeps a version in the CRD", (t) => {
  const [widgets] = ENTRIES as [PlanEntry];
  const stopped = { ...widgets, action: "none", note: "it is being deleted", help: "kubectl get" } as const;
  t.match(renderPlan([stopped], "table"), /none .*it is being deleted; help: kubectl get$/);
  t.match(renderPlan([stopped], "wide"), /it is being deleted; help: kubectl get$/);
  const managedFields = { objects: 2, versions: ["v1"], lookedAt: 10_000, isPartial: true };
  const named = { ...widgets, removableVersions: [], managedFields };
  const text =
    /- +managedFields of 2 of the first 10000 objects name v1: .* fails once the CRD drops it; ksvm migrate /;
  t.match(renderPlan([named], "table"), text);
  t.match(renderPlan([named], "table"), /widgets\.example\.com --force names the storage version instead$/);
  t.match(renderPlan([{ ...named, conversion: "Webhook" }], "table"), /-f FILE --apply drops it and what names it$/);
  t.end();
});

await tap.test("renderPlan() as a wide table has kind, served versions and note, too", (t) => {
  const [header, first, second] = renderPlan(ENTRIES, "wide").split("\n");
  t.match(header, /REMOVABLE +KIND +SERVED +NOTE$/);
  t.match(first, /v1 +Widget +v1,v2 +-$/);
  t.match(second, /- +Secret +- +objects cannot be listed: no$/);
  t.end();
});

const PLAN = { apiVersion: "cli.ksvm.sigs.k8s.io/v1alpha1", kind: "Plan" };

await tap.test("renderPlan() as JSON and YAML holds the entries as they are", (t) => {
  t.strictSame(JSON.parse(renderPlan(ENTRIES, "json")), { ...PLAN, items: ENTRIES });
  t.strictSame(parse(renderPlan(ENTRIES, "yaml")), { ...PLAN, items: ENTRIES });
  t.strictSame(JSON.parse(renderPlan([], "json")), { ...PLAN, items: [] });
  t.notMatch(renderPlan(ENTRIES, "yaml"), /\n$/);
  t.end();
});
