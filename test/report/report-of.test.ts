import tap from "tap";
import { estimateOf } from "../../src/plan/estimate.ts";
import { reportOf } from "../../src/report/report.ts";
import { roleForReport } from "../../src/report/report-roles.ts";
import { crd, factsOf, migrationOf, staleCrd } from "./report-samples.ts";

await tap.test("reportOf() sums up what can be counted, and tells of what cannot", async (t) => {
  const { estimate: _estimate, objects: _objects, ...uncounted } = staleCrd("u.example.com", 1);
  const blocked = staleCrd("b.example.com", 7, { action: "blocked" });
  const { planned } = reportOf(
    factsOf([crd("c.example.com"), staleCrd("a.example.com", 500), staleCrd("d.example.com", 20), uncounted, blocked]),
  );
  const [one, other] = [estimateOf(500), estimateOf(20)];
  t.same(planned.total, { requests: one.requests + other.requests, seconds: one.seconds + other.seconds });
  t.match(planned, { objects: 520, uncounted: 1, rows: { length: 3 } });
  t.notOk("total" in reportOf(factsOf([uncounted])).planned, "nothing is estimated of what cannot be counted");
});

await tap.test("reportOf() counts the states that there are", async (t) => {
  const { counts } = reportOf(factsOf([crd("a.b"), crd("c.d"), staleCrd("e.f", 1)]));
  t.same(counts, [
    { state: "stale", resources: 1 },
    { state: "clean", resources: 2 },
  ]);
});

await tap.test("reportOf() of named resources leaves out what is about others", async (t) => {
  const [mine, other] = ["a.example.com", "b.example.com"] as const;
  const status = {
    migrations: [migrationOf(mine), migrationOf(other)],
    freezes: [{ crd: mine }, { crd: other }],
    runs: [mine, other].map((resource) => ({
      resource,
      state: "silent" as const,
      lease: `kube-system/ksvm-migrate.${resource}`,
    })),
    storage: [{ resource: mine }, { resource: other }],
    leftOut: [{ name: "x", reason: "y" }],
  };
  const named = reportOf(factsOf([crd(mine)], { status, names: ["a"] })).status;
  t.match(named, { migrations: { length: 1 }, freezes: { length: 1 }, runs: { length: 1 }, storage: { length: 1 } });
  t.match(named, { migrations: [{ resource: mine }], leftOut: [{ name: "x" }] });
  t.equal(reportOf(factsOf([crd(mine)], { status })).status.migrations.length, 2, "of the whole cluster: all of them");
});

await tap.test("roleForReport() allows reads alone", async (t) => {
  for (const names of [[], ["widgets.example.com", "secrets"]]) {
    const { rules } = roleForReport(names, "r");
    t.same([...new Set(rules.flatMap(({ verbs }) => verbs))].toSorted(), ["get", "list"]);
  }
  const named = JSON.stringify(roleForReport(["widgets.example.com", "secrets"], "r"));
  t.notMatch(named, /\*/, "of named resources it allows nothing else");
  const secrets = { apiGroups: [""], resources: ["secrets"], verbs: ["list"] };
  t.match(roleForReport(["secrets"], "r").rules, [secrets]);
});
