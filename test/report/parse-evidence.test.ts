import * as fc from "fast-check";
import tap from "tap";
import { KsvmError } from "../../src/errors.ts";
import { newestByResource } from "../../src/report/evidence.ts";
import { parseEvidence } from "../../src/report/parse-evidence.ts";
import { eventLine, evidenceIn, resultLine, verificationLine } from "./report-samples.ts";

await tap.test("parseEvidence() reads what ended, with the time since the first line of the resource", async (t) => {
  const failures = [{ namespace: "a", name: "b", reason: "no", extra: 1 }, { reason: "without a name" }];
  const summary = JSON.stringify({ time: "2026-01-02T09:41:00Z", type: "summary", current: [] });
  const found = evidenceIn(
    eventLine("w.example.com", "2026-01-02T09:28:00Z"),
    resultLine("w.example.com", { outcome: "incomplete", failures }, "2026-01-02T09:30:00Z"),
    "",
    JSON.stringify({ time: "2026-01-02T09:31:00Z", resource: "x", type: "error", code: "Forbidden", message: "no" }),
    verificationLine("w.example.com", {}, "2026-01-02T09:40:00Z"),
    summary,
  );
  t.match(found, [
    { kind: "result", resource: "w.example.com", source: "run.json", elapsedMs: 120_000, time: "2026-01-02T09:30:00Z" },
    { kind: "error", resource: "x", code: "Forbidden", message: "no", elapsedMs: 0 },
    { kind: "verification", verification: { outcome: "current", counts: { current: 12 }, apiServers: { of: 2 } } },
  ]);
  t.equal(found.length, 3);
  const [first] = found;
  t.same(first?.kind === "result" && first.result.failures, [{ namespace: "a", name: "b", reason: "no" }]);
});

await tap.test("parseEvidence() takes a file that is about no resource, as where nothing was to do", async (t) => {
  t.same(evidenceIn('{"time":"2026-01-01T00:00:00Z","type":"note","message":"nothing to do"}'), []);
});

await tap.test("parseEvidence() tells of a run that has no end", async (t) => {
  const begun = [eventLine("w", "2026-01-02T09:00:00Z"), eventLine("w", "2026-01-02T09:00:05Z")];
  t.match(evidenceIn(...begun), [{ kind: "unfinished", resource: "w", elapsedMs: 5_000 }]);
  const again = [resultLine("w", {}, "2026-01-02T08:00:00Z"), ...begun];
  t.same(
    evidenceIn(...again).map(({ kind }) => kind),
    ["result", "unfinished"],
  );
});

const wrong: readonly (readonly [what: string, text: string, message: RegExp])[] = [
  ["an empty file", "\n", /^Cannot use f: it is empty$/],
  ["a table", "NAME  STORAGE\nw  v1\n", /^Cannot use f, line 1: it is not JSON/],
  ["half a line", `${resultLine("w")}\n${resultLine("w").slice(0, 90)}`, /^Cannot use f, line 2: it is not JSON/],
  ["a plan", '{"items":[]}', /line 1: it is not a line of ksvm migrate, reencrypt or verify with -o json/],
  ["a list", "[]", /line 1: it is not a line/],
  ["a resource that is no text", resultLine("w").replace('"w"', "7"), /its resource is no text/],
  [
    "an outcome of its own",
    resultLine("w", { outcome: "perfect" }),
    /it is called the result of a run, and lacks fields/,
  ],
  ["counts that are none", resultLine("w", { counts: { done: -1 } }), /the result of a run/],
  ["a verification without counts", verificationLine("w", { counts: {} }), /it is called a verification/],
  [
    "a verification whose counts contradict its outcome",
    verificationLine("w", { counts: { current: 12, changed: 5, gone: 0, notShown: 0 } }),
    /it is called a verification/,
  ],
  ["a verification through nothing", verificationLine("w", { apiServers: null }), /it is called a verification/],
];

for (const [what, text, message] of wrong) {
  await tap.test(`parseEvidence() refuses ${what}, and names the line`, async (t) => {
    t.throws(() => parseEvidence({ source: "f", text }), { code: "EvidenceInvalid", message });
  });
}

await tap.test("parseEvidence() takes any JSON, or refuses it as EvidenceInvalid", async (t) => {
  const fields = fc.record(
    {
      time: fc.oneof(fc.constant("2026-01-02T09:00:00Z"), fc.anything()),
      resource: fc.oneof(fc.string(), fc.anything()),
      type: fc.oneof(fc.constantFrom("result", "verification", "error", "progress"), fc.anything()),
      outcome: fc.oneof(fc.constantFrom("migrated", "current"), fc.anything()),
      counts: fc.anything(),
      failures: fc.anything(),
      apiServers: fc.anything(),
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fields, (line) => {
      try {
        parseEvidence({ source: "f", text: JSON.stringify(line) });
        return true;
      } catch (error) {
        return error instanceof KsvmError && error.code === "EvidenceInvalid";
      }
    }),
  );
  t.pass();
});

await tap.test("newestByResource() takes the latest, and the last one of two with the same time", async (t) => {
  const found = evidenceIn(
    resultLine("a", { outcome: "migrated" }, "2026-01-02T09:30:00Z"),
    resultLine("a", { outcome: "dry-run" }, "2026-01-02T09:20:00Z"),
    resultLine("b", { outcome: "dry-run" }, "2026-01-02T09:20:00Z"),
    resultLine("b", { outcome: "migrated" }, "2026-01-02T09:20:00Z"),
  );
  const outcomes = [...newestByResource(found).values()].map((one) => one.kind === "result" && one.result.outcome);
  t.same(outcomes, ["migrated", "migrated"]);
});
