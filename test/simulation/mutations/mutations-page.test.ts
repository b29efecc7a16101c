import { readFileSync } from "node:fs";
import tap from "tap";
import { MUTATIONS_BY_AREA } from "../mutations.ts";
import { readRegressions } from "../regressions/regression.ts";
import { mutationsPage } from "./mutations-page.ts";

await tap.test("docs/simulation-mutations.md lists every mutation as it is", async (t) => {
  const page = readFileSync(new URL("../../../docs/simulation-mutations.md", import.meta.url), "utf8");
  t.equal(page, mutationsPage(MUTATIONS_BY_AREA, readRegressions()), "make simulate-findings writes it");
});

await tap.test("a mutation is listed with the seed that finds it, the plan that does, or why none does", async (t) => {
  const edits = [{ file: "a.ts", from: "a", to: "b" }];
  const page = mutationsPage(
    {
      "An area": [
        { name: "a, not b", edits, found: { seed: 4_711, breaks: "S1: an object is lost" } },
        { name: "no b", edits, survives: "no seed restores etcd then" },
        { name: "neither", edits, survives: "a | b does the same" },
      ],
    },
    [{ name: "restore", mutation: "no b", violation: "S1: x" }],
  );
  t.match(page, /There are 3\. The simulation finds 1 of/);
  t.match(page, /finds the other 2\. A \[plan\]\(simulation-findings\.md\) finds 1 of these/);
  t.same(page.split("\n").slice(-4, -1), [
    "| a, not b | 4,711 | S1: an object is lost |",
    "| no b | plan `restore` | no seed restores etcd then |",
    "| neither |  | a \\| b does the same |",
  ]);
});
