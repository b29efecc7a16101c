// Runs the tests of other migrators against ksvm, prints a table and writes docs/conformance.md: node test/conformance/conformance.ts
// [--only in-tree|ksvm|peer]. With --only the page stays as it is.
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import { runScript, say } from "../../bench/run-script.ts";
import { programVersion } from "../../src/cli/shared/version.ts";
import { type Cell, conformancePage, havePassed, resultTable, type Row, type ShownDiff } from "./conformance-page.ts";
import { diffOf, type SourceEdit } from "./edit-source.ts";
import { LOG_DIR } from "./go-test.ts";
import { GoWorkspace } from "./go-workspace.ts";
import { ASSERTION_EDITS, KUBERNETES, START_EDITS, SUITE_FILES, SUITE_FLAGS } from "./in-tree-suite.ts";
import { PEER, PEER_COMMIT } from "./peer-files.ts";
import { missingPeer, PEER_EDITS, PEER_TEST, PEER_VARIABLE, runPeerSuite, verifyPeer } from "./peer-suite.ts";
import { runInTreeSuite, suiteTests, UTIL } from "./run-in-tree-suite.ts";
import type { TestResult } from "./test-result.ts";

const PARTS = ["in-tree", "ksvm", "peer"] as const;
type Part = (typeof PARTS)[number];

const PAGE = join(import.meta.dirname, "..", "..", "docs", "conformance.md");

await runScript(async (signal) => {
  const { values } = parseArgs({ options: { only: { type: "string" } } });
  const asked = PARTS.filter((part) => values.only === undefined || values.only === part);
  if (asked.length === 0) throw new Error(`Cannot run only "${values.only}": choose ${PARTS.join(", ")}`);
  const startedAt = performance.now();
  const peerSource = process.env[PEER_VARIABLE] ?? "";
  const missing = missingPeer(process.env);
  // First of all, before minutes of tests.
  if (missing !== undefined) say(`Not run: the end-to-end test of ${PEER}, since ${missing}`);
  else if (asked.includes("peer")) verifyPeer(peerSource);
  const workspace = await GoWorkspace.prepare();
  workspace.verify(SUITE_FILES);

  const run = async (part: Part, tests: () => Promise<readonly TestResult[]>): Promise<readonly TestResult[]> => {
    if (!asked.includes(part)) return [];
    say(`${part}: the tests run (some minutes, more where Go has to compile Kubernetes first)`);
    return tests();
  };
  const inTree = await run("in-tree", () => runInTreeSuite(workspace, "in-tree", signal));
  const ksvm = await run("ksvm", () => runInTreeSuite(workspace, "ksvm", signal));
  const peer = missing === undefined ? await run("peer", () => runPeerSuite(peerSource, signal)) : [];

  const rows = [
    ...suiteTests(workspace).map((test) => ({
      suite: `Kubernetes ${KUBERNETES}`,
      test: `\`${test}\``,
      inTree: cellOf(inTree, test, "not asked for"),
      ksvm: cellOf(ksvm, test, "not asked for"),
    })),
    ...peerRows(cellOf(peer, PEER_TEST, missing ?? "not asked for")),
  ];
  const seconds = (performance.now() - startedAt) / 1_000;
  console.log(`${resultTable(rows)}\n\nThis took ${seconds.toFixed(0)} s. The logs are in ${LOG_DIR}.`);
  if (missing !== undefined) console.log(`Missing: ${missing}.`);
  if (values.only === undefined) writeFileSync(PAGE, pageOf(workspace, { rows, seconds, peerSource }));
  if (!havePassed(rows)) process.exitCode = 1;
});

function cellOf(results: readonly TestResult[], test: string, why: string): Cell {
  return results.find(({ name }) => name === test) ?? { outcome: "not run", why };
}

function peerRows(ksvm: Cell): readonly Row[] {
  const suite = "kube-storage-version-migrator";
  const inTree = { outcome: "not run", why: "it does not serve `migration.k8s.io`" } as const;
  const gcloud = { outcome: "not run", why: "it ends the API server of a cluster on GCE, with gcloud" } as const;
  return [
    { suite, test: PEER_TEST, inTree, ksvm },
    {
      suite,
      test: "[Disruptive] storage version migrator should survive apiserver crashes and controller restarts",
      inTree,
      ksvm: gcloud,
    },
  ];
}

interface Outcome {
  readonly rows: readonly Row[];
  readonly seconds: number;
  readonly peerSource: string;
}

function pageOf(workspace: GoWorkspace, { rows, seconds, peerSource }: Outcome): string {
  const util = workspace.read(UTIL);
  const diffs = [
    shown("Every assertion that was changed", UTIL, util, ASSERTION_EDITS),
    shown("How ksvm takes the place of the in-tree controller", UTIL, util, START_EDITS),
  ];
  if (peerSource !== "") {
    for (const [file, edits] of Object.entries(PEER_EDITS)) {
      const text = readFileSync(join(peerSource, file), "utf8");
      diffs.push(
        shown(`What was changed in ${basename(file)} of the end-to-end test: no assertion`, file, text, edits),
      );
    }
  }
  return conformancePage({
    date: new Date().toISOString().slice(0, 10),
    seconds,
    kubernetes: KUBERNETES,
    peer: `https://github.com/kubernetes-sigs/kube-storage-version-migrator at ${PEER_COMMIT}`,
    ksvm: programVersion(),
    command: `ksvm controller ${SUITE_FLAGS.join(" ")}`,
    rows,
    diffs,
  });
}

function shown(title: string, file: string, text: string, edits: readonly SourceEdit[]): ShownDiff {
  return { title, file, reasons: edits.map(({ why }) => why), diff: diffOf(file, text, edits) };
}
