import tap from "tap";
import { EXIT } from "../../../src/cli/render/exit-codes.ts";
import { describeRunSummary, runSummaryOf } from "../../../src/cli/render/run-summary.ts";

await tap.test("runSummaryOf() has each resource once, by its exit code", (t) => {
  const summary = runSummaryOf(
    new Map([
      ["a", EXIT.done],
      ["b", EXIT.failed],
      ["c", EXIT.incomplete],
      ["d", EXIT.interrupted],
      ["e", EXIT.done],
    ] as const),
  );
  t.same(summary, { type: "summary", done: ["a", "e"], incomplete: ["c"], failed: ["b"], interrupted: ["d"] });
  t.equal(describeRunSummary(summary), "5 resources: 2 done, 1 incomplete (c), 1 failed (b), 1 interrupted (d)");
  t.equal(
    describeRunSummary(
      runSummaryOf(
        new Map([
          ["a", EXIT.done],
          ["b", EXIT.done],
        ]),
      ),
    ),
    "2 resources: 2 done",
  );
  t.end();
});
