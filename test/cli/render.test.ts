import { PassThrough } from "node:stream";
import tap from "tap";
import { parse } from "yaml";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { followedResult, phaseTextOf, tallyIn } from "../../src/cli/commands/follow-migration.ts";
import { EXIT, type ExitCode, worstOf } from "../../src/cli/render/exit-codes.ts";
import { describeSummary, describeUnchanged } from "../../src/cli/render/render-reencryption.ts";
import { renderTable } from "../../src/cli/render/render-table.ts";
import { codeOf, errorLine, exitCodeOf } from "../../src/cli/render/report-error.ts";
import { describeRunSummary, runSummaryOf } from "../../src/cli/render/run-summary.ts";
import { yamlText } from "../../src/cli/render/yaml-text.ts";
import { loggerOf } from "../../src/cli/shared/logger-of.ts";
import { ERROR_CODES, KsvmError } from "../../src/errors.ts";
import { type MigrationResult, newTally } from "../../src/migrator/types.ts";

await tap.test("renderTable() pads each column to its widest cell and leaves no blanks at the end", (t) => {
  t.equal(
    renderTable([
      ["NAME", "STORAGE"],
      ["widgets.example.com", "v1"],
      ["a", "v1beta1"],
    ]),
    "NAME                  STORAGE\nwidgets.example.com   v1\na                     v1beta1",
  );
  t.equal(renderTable([["NAME", "NOTE"], ["a"], ["b", ""]]), "NAME   NOTE\na\nb");
  t.equal(renderTable([["NAME", "NOTE"]]), "NAME   NOTE");
  t.equal(renderTable([]), "");
  t.end();
});

await tap.test("yamlText() escapes what a terminal would act on, and means the same", (t) => {
  const value = {
    plain: "a b",
    lines: "first\nsecond\n",
    list: ["x\u202ey", "\u001b[2J", "\u009b31m", "tab\there"],
    ["key\u202e"]: { nested: "a\u2028b" },
  };
  const text = yamlText(value);
  t.notMatch(text, /[^\P{Cc}\n\t]|[\u202e\u2028]/u);
  t.same(parse(text), value);
  t.match(text, "lines: |\n  first\n  second\n", "what needs no escape reads as before");
  t.end();
});

for (const code of ERROR_CODES) {
  await tap.test(`exitCodeOf() is right when the code is ${code}`, (t) => {
    const expected = { Interrupted: 130, Usage: 2 }[code as string] ?? 1;
    const error = new KsvmError(code, "Cannot do it");
    t.equal(exitCodeOf(error), expected);
    t.equal(codeOf(error), code);
    t.equal(errorLine(error), `error: Cannot do it [${code}]`);
    t.end();
  });
}

const strays: readonly [name: string, thrown: unknown, line: string][] = [
  ["another error", new TypeError("x is\n   undefined"), "error: x is undefined [Internal]"],
  ["a text", "oops", "error: oops [Internal]"],
  ["nothing", undefined, "error: undefined [Internal]"],
];

for (const [name, thrown, line] of strays) {
  await tap.test(`errorLine() is one line when ${name} was thrown`, (t) => {
    t.equal(errorLine(thrown), line);
    t.equal(exitCodeOf(thrown), 1);
    t.end();
  });
}

const cases: readonly [codes: readonly ExitCode[], worst: ExitCode][] = [
  [[], 0],
  [[0, 0], 0],
  [[0, 3], 3],
  [[3, 1, 0], 1],
  [[1, 2], 2],
  [[2, 130, 1], 130],
];

for (const [codes, worst] of cases) {
  await tap.test(`worstOf([${codes.join()}]) is ${worst}`, (t) => {
    t.equal(worstOf(codes), worst);
    t.end();
  });
}

await tap.test("EXIT is what the documentation promises", (t) => {
  t.same(EXIT, {
    done: 0,
    failed: 1,
    usage: 2,
    incomplete: 3,
    needsMigration: 4,
    wouldFail: 5,
    interrupted: 130,
  });
  t.end();
});

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

function resultOf({ current, done }: { readonly done: number; readonly current: number }): MigrationResult {
  return { resource: "secrets", outcome: "migrated", tally: { ...newTally(), rewritten: done - current, current } };
}

await tap.test("describeUnchanged() says what was not rewritten, also beside one object that was", async (t) => {
  t.match(describeUnchanged([resultOf({ done: 0, current: 0 })]), /no object was rewritten: there is none/);
  t.match(describeUnchanged([resultOf({ done: 2, current: 2 })]), /no object was rewritten: this configuration/);
  t.match(
    describeUnchanged([resultOf({ done: 2, current: 2 }), resultOf({ done: 1, current: 0 })]),
    /2 of 3 objects were not rewritten/,
  );
  t.equal(describeUnchanged([resultOf({ done: 2, current: 0 })]), undefined);
});

await tap.test("describeSummary() says of what the old key is still needed", async (t) => {
  const results = [resultOf({ done: 2, current: 0 })];
  t.match(
    describeSummary({ results, notDone: ["widgets"], encryption: "sha256:ab" }),
    /^re-encrypted 1 of 2 resources with configuration sha256:ab: .*: the old key is still needed$/,
  );
});

function migrationWith(status: object): StorageVersionMigration {
  return { spec: { resource: { group: "g", version: "v1", resource: "ws" } }, status } as StorageVersionMigration;
}

await tap.test("phaseTextOf() says what is waited for", async (t) => {
  t.equal(phaseTextOf(migrationWith({})), undefined);
  const running = { type: "Running", status: "True" };
  t.equal(phaseTextOf(migrationWith({ conditions: [running] })), "running");
  const waiting = { type: "Waiting", status: "True", reason: "R", message: "for a webhook" };
  t.equal(phaseTextOf(migrationWith({ conditions: [waiting, running] })), "waiting: for a webhook");
});

await tap.test("followedResult() is what a run here would have ended in", async (t) => {
  const counts = { migrated: 3, skipped: 1, failed: 0, remaining: 0 };
  const succeeded = { type: "Succeeded", status: "True", reason: "Migrated" };
  const result = followedResult(migrationWith({ counts, conditions: [succeeded] }));
  t.match(result, { resource: "ws.g", outcome: "migrated", tally: { rewritten: 3, current: 1, total: 4 } });
  const nothing = migrationWith({ conditions: [{ ...succeeded, reason: "NothingToDo" }] });
  t.match(followedResult(nothing), { outcome: "nothing-to-do" });
  t.equal(tallyIn(nothing), undefined);
  const failures = [{ namespace: "a", name: "b", reason: "c" }];
  const failed = { type: "Failed", status: "True", reason: "ObjectsNotMigrated", message: "1 object" };
  t.match(followedResult(migrationWith({ failures, conditions: [failed] })), {
    outcome: "incomplete",
    tally: { failures },
  });
});

await tap.test("followedResult() throws the reason of a migration that failed as a whole", async (t) => {
  const failed = { type: "Failed", status: "True", reason: "NotConverged", message: "it lags" };
  t.throws(() => followedResult(migrationWith({ conditions: [failed] })), { code: "NotConverged", message: "it lags" });
  const foreign = { type: "Failed", status: "True", reason: "SomethingElse" };
  t.throws(() => followedResult(migrationWith({ conditions: [foreign] })), { code: "Internal" });
});

const HOSTILE = "a\u001b[2J\u009b31m\u202eb";

for (const logFormat of ["text", "json"] as const) {
  await tap.test(`loggerOf() escapes what a terminal would act on, as ${logFormat}`, (t) => {
    const stderr = new PassThrough();
    const logger = loggerOf(
      { stderr, stdout: new PassThrough(), signal: new AbortController().signal },
      { logFormat, logLevel: "info" },
    );
    logger.info({ answer: { message: HOSTILE }, text: HOSTILE }, "First");
    logger.info("Second");
    const written = String(stderr.read());
    t.notMatch(written, /[^\P{Cc}\n]|\u202e/u);
    t.match(written, /\\u009b31m\\u202eb/);
    t.match(written, /First[^]*Second/);
    if (logFormat === "json") {
      const [first = ""] = written.split("\n");
      t.match(JSON.parse(first), { answer: { message: HOSTILE }, text: HOSTILE, msg: "First" });
    }
    t.end();
  });
}
