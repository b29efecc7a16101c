import type { TestResult } from "./test-result.ts";

/** What became of a test with one of the two programs. */
export type Cell = Pick<TestResult, "outcome" | "seconds"> | { readonly outcome: "not run"; readonly why: string };

/** One test of another project. */
export interface Row {
  readonly suite: string;
  readonly test: string;
  readonly inTree: Cell;
  readonly ksvm: Cell;
}

/** Edits of one file, as docs/conformance.md shows them. */
export interface ShownDiff {
  readonly title: string;
  readonly file: string;
  /** Why each hunk is there, in their order. */
  readonly reasons: readonly string[];
  readonly diff: string;
}

/** Everything that docs/conformance.md says. */
export interface ConformanceReport {
  /** As YYYY-MM-DD. */
  readonly date: string;
  /** Of the whole run, in seconds. */
  readonly seconds: number;
  readonly kubernetes: string;
  readonly peer: string;
  readonly ksvm: string;
  /** How ksvm was started for the suite of Kubernetes. */
  readonly command: string;
  readonly rows: readonly Row[];
  readonly diffs: readonly ShownDiff[];
}

/** The rows as a table of Markdown, which is also what `make conformance` prints. */
export function resultTable(rows: readonly Row[]): string {
  const lines = rows.map(({ suite, test, inTree, ksvm }) => `| ${suite} | ${test} | ${text(inTree)} | ${text(ksvm)} |`);
  return ["| suite | test | in-tree controller | ksvm |", "| --- | --- | --- | --- |", ...lines].join("\n");
}

/** Whether every test that was run has passed, with both programs, and there was one. */
export function havePassed(rows: readonly Row[]): boolean {
  const run = rows.flatMap(({ inTree, ksvm }) => [inTree, ksvm]).filter(({ outcome }) => outcome !== "not run");
  return run.length > 0 && run.every(({ outcome }) => outcome === "pass");
}

function text(cell: Cell): string {
  return cell.outcome === "not run" ? `not run: ${cell.why}` : `${cell.outcome} (${cell.seconds.toFixed(0)} s)`;
}

/** The text of docs/conformance.md. */
export function conformancePage(report: ConformanceReport): string {
  const { date, seconds, kubernetes, peer, ksvm, command, rows, diffs } = report;
  return `# Conformance

<!-- \`make conformance\` writes this file from the run that it describes. Change test/conformance/conformance-page.ts instead. -->

The tests by which other storage version migrators check themselves, run against ksvm. Their sources are not part of this project: they are pinned
by version and checksum, and used where Go keeps them.

| | |
| --- | --- |
| run on | ${date}, in ${Math.ceil(seconds / 60)} minutes, compiling included |
| ksvm | ${ksvm} |
| suite of the in-tree controller | \`test/integration/storageversionmigrator\` of Kubernetes ${kubernetes} |
| end-to-end test | ${peer} |
| command | \`make conformance\`, with \`KSVM_PEER_SOURCE\` for the end-to-end test |

## Results

${resultTable(rows)}

A test that did not run, or of which nothing is known, is never called passed. The logs of a run are in \`.cache/conformance/logs\`.

## How it is run

In both columns API server and etcd are those of the suite. For the in-tree controller not a line is changed. For ksvm the suite starts
\`${command}\` as a process, after it has applied \`deploy/base\` with \`deploy/components/serve-in-tree-migrations\`, with the token of the service account \`storage-migrator\`: it has the
rights that the manifests give, and no others. Every other flag but addresses has its default, the settle time of 65 s among them.

The end-to-end test of kube-storage-version-migrator applies its test CRD, its RBAC and its Deployments, which nothing here runs, and reads its API
with its own client. \`ksvm controller\`, installed with \`deploy/base\`, does the work of its trigger and its migrator. Its two CRDs are not applied
over those of \`deploy/base\`: without the field \`status.crd\`, which they do not have, ksvm takes no run of a CRD for proved. The variable
\`KSVM_PEER_SOURCE\` names a folder with the sources and their folder \`vendor\`.

${diffs.map(diffSection).join("\n\n")}
`;
}

function diffSection({ title, file, reasons, diff }: ShownDiff): string {
  const list = reasons.map((reason, index) => `${index + 1}. ${reason}`).join("\n");
  return `## ${title}\n\nIn \`${file}\`, hunk by hunk:\n\n${list}\n\n\`\`\`diff\n${diff}\n\`\`\``;
}
