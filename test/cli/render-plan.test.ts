import tap from "tap";
import { parse } from "yaml";

import { renderPlan } from "../../src/cli/render/render-plan.ts";
import type { CountedEntry } from "../../src/plan/inventory.ts";

const ENTRIES: readonly CountedEntry[] = [
  {
    name: "widgets.example.com",
    kind: "Widget",
    type: "CustomResourceDefinition",
    request: { group: "example.com", version: "v2", resource: "widgets" },
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
      "NAME                  STORAGE   STOREDVERSIONS   OBJECTS   ACTION    REMOVABLE",
      "widgets.example.com   v2        v1,v2            5000      migrate   v1",
      "secrets               -         -                ?         unknown   -",
    ].join("\n"),
  );
  t.end();
});

await tap.test("renderPlan() as a wide table has kind, served versions and note, too", (t) => {
  const [header, first, second] = renderPlan(ENTRIES, "wide").split("\n");
  t.match(header, /REMOVABLE +KIND +SERVED +NOTE$/);
  t.match(first, /v1 +Widget +v1,v2 +-$/);
  t.match(second, /- +Secret +- +objects cannot be listed: no$/);
  t.end();
});

await tap.test("renderPlan() as JSON and YAML holds the entries as they are", (t) => {
  t.strictSame(JSON.parse(renderPlan(ENTRIES, "json")), { items: ENTRIES });
  t.strictSame(parse(renderPlan(ENTRIES, "yaml")), { items: ENTRIES });
  t.strictSame(JSON.parse(renderPlan([], "json")), { items: [] });
  t.notMatch(renderPlan(ENTRIES, "yaml"), /\n$/);
  t.end();
});
