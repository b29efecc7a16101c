import t from "tap";
import { goTestEvent, resultsOf, specResult, testsIn } from "./test-result.ts";

await t.test("resultsOf() counts a test as passed only where that is said", async (t) => {
  const lines = [
    "# ksvm/conformance/suite",
    '{"Action":"run","Test":"TestA"}',
    '{"Action":"output","Test":"TestA","Output":"--- PASS: TestC (1.00s)\\n"}',
    '{"Action":"pass","Test":"TestA","Elapsed":12.5}',
    '{"Action":"skip","Test":"TestB","Elapsed":0}',
    '{"Action":"pass","Test":"TestC/case"}',
    '{"Action":"fail","Test":"TestD","Elapsed":3}',
    '{"Action":"pass","Package":"x"}',
    '{"broken',
  ];
  const events = lines.flatMap((line) => goTestEvent(line) ?? []);
  t.same(resultsOf(["TestA", "TestB", "TestC", "TestD"], events), [
    { name: "TestA", outcome: "pass", seconds: 12.5 },
    { name: "TestB", outcome: "fail", seconds: 0 },
    { name: "TestC", outcome: "fail", seconds: 0 },
    { name: "TestD", outcome: "fail", seconds: 3 },
  ]);
});

await t.test("testsIn() finds the tests of a file", async (t) => {
  const source =
    "func TestMain(m *testing.M) {\nfunc TestA(t *testing.T) {\nfunc helper(t *testing.T) {\nfunc TestB(t *testing.T) {\n";
  t.same(testsIn(source), ["TestA", "TestB"]);
});

function reportOf(state: string): string {
  return JSON.stringify([
    {
      SpecReports: [
        { ContainerHierarchyTexts: null, LeafNodeText: "", State: "passed", RunTime: 1 },
        { ContainerHierarchyTexts: ["a b"], LeafNodeText: "should c", State: state, RunTime: 2_500_000_000 },
      ],
    },
  ]);
}

await t.test("specResult() takes a spec that did not run for failed", async (t) => {
  t.same(specResult("a b should c", reportOf("passed")), { name: "a b should c", outcome: "pass", seconds: 2.5 });
  for (const text of [reportOf("skipped"), reportOf("failed"), "[]", '[{"SpecReports":null}]']) {
    t.equal(specResult("a b should c", text).outcome, "fail");
  }
  t.equal(specResult("another one", reportOf("passed")).outcome, "fail");
});
