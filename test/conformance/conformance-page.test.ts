import { readFileSync } from "node:fs";
import t from "tap";
import { conformancePage, havePassed, resultTable, type Row } from "./conformance-page.ts";
import { ASSERTION_EDITS, KUBERNETES } from "./in-tree-suite.ts";
import { PEER_COMMIT } from "./peer-files.ts";

const PASS = { outcome: "pass", seconds: 1.4 } as const;
const FAIL = { outcome: "fail", seconds: 2 } as const;
const NOT_RUN = { outcome: "not run", why: "nothing names the sources" } as const;

function row(inTree: Row["inTree"], ksvm: Row["ksvm"]): Row {
  return { suite: "s", test: "`TestA`", inTree, ksvm };
}

await t.test("resultTable() has both columns, and says why a test did not run", async (t) => {
  t.equal(
    resultTable([row(PASS, FAIL), row(PASS, NOT_RUN)]),
    [
      "| suite | test | in-tree controller | ksvm |",
      "| --- | --- | --- | --- |",
      "| s | `TestA` | pass (1 s) | fail (2 s) |",
      "| s | `TestA` | pass (1 s) | not run: nothing names the sources |",
    ].join("\n"),
  );
});

await t.test("havePassed() never takes what did not run for passed", async (t) => {
  t.equal(havePassed([row(PASS, PASS), row(NOT_RUN, NOT_RUN)]), true);
  t.equal(havePassed([row(PASS, PASS), row(PASS, FAIL)]), false);
  t.equal(havePassed([row(FAIL, PASS)]), false);
  t.equal(havePassed([row(NOT_RUN, NOT_RUN)]), false);
  t.equal(havePassed([]), false);
});

await t.test("conformancePage() shows every changed assertion with its reason", async (t) => {
  const page = conformancePage({
    date: "2026-11-23",
    seconds: 61,
    kubernetes: KUBERNETES,
    peer: "peer",
    ksvm: "0.1.0",
    command: "ksvm controller",
    rows: [row(PASS, NOT_RUN)],
    diffs: [{ title: "Assertions", file: "util.go", reasons: ["first", "second"], diff: "@@ -1,1 +1,1 @@\n-a\n+b" }],
  });
  t.match(page, "in 2 minutes");
  t.match(page, resultTable([row(PASS, NOT_RUN)]));
  t.match(
    page,
    "## Assertions\n\nIn `util.go`, hunk by hunk:\n\n1. first\n2. second\n\n```diff\n@@ -1,1 +1,1 @@\n-a\n+b\n```",
  );
});

await t.test("docs/conformance.md is of the sources that are pinned, and of the edits that are made", async (t) => {
  const page = readFileSync(new URL("../../docs/conformance.md", import.meta.url), "utf8");
  t.match(page, `of Kubernetes ${KUBERNETES} |`);
  t.match(page, PEER_COMMIT);
  for (const { why, from, to } of ASSERTION_EDITS) {
    t.match(page, why);
    t.match(page, from.trim());
    t.match(page, to.trim());
  }
});
