// Shows that docs/upstream/prune-after-failure.md is true: its tests fail on the pinned version of Kubernetes, and pass with its patch, as do all
// tests that upstream has for the controller: node test/conformance/upstream-report.ts
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { runScript, say } from "../../bench/run-script.ts";
import { LOG_DIR } from "./go-test.ts";
import { GoWorkspace, MODULE } from "./go-workspace.ts";
import { KUBERNETES, SUITE_FILES } from "./in-tree-suite.ts";
import { CONTROLLER_FILES, patchedPackages } from "./patched-controller.ts";
import { runGoPackage, suiteFiles, suiteTests } from "./run-in-tree-suite.ts";
import { type TestResult, testsIn } from "./test-result.ts";

const REPORT = join(import.meta.dirname, "..", "..", "docs", "upstream");
const REPRODUCTION = {
  name: "prune_after_failure_test.go",
  path: join(REPORT, "prune_after_failure_test.go.txt"),
};
const UNIT_TESTS = "pkg/controller/storageversionmigrator/migrationrunner_test.go";

await runScript(async (signal) => {
  const startedAt = performance.now();
  const workspace = await GoWorkspace.prepare();
  workspace.verify([...SUITE_FILES, ...CONTROLLER_FILES]);
  const patch = readFileSync(join(REPORT, "prune-after-failure.patch"), "utf8");
  const patched = patchedPackages(workspace, patch, REPRODUCTION);
  const unpatched = { folder: "unpatched", files: [...suiteFiles(workspace), REPRODUCTION] };
  const overlay = ["-overlay", workspace.writeOverlay([unpatched, ...patched.all])];
  const reproductions = testsIn(readFileSync(REPRODUCTION.path, "utf8"));
  const run = (name: string, place: string, expected: readonly string[]): Promise<readonly TestResult[]> => {
    say(`${name}: ${expected.length} tests run (some minutes, more where Go has to compile Kubernetes first)`);
    return runGoPackage(workspace, { name, place: [...overlay, place], expected, signal });
  };
  const before = await run("report-unpatched", `${MODULE}/${unpatched.folder}`, reproductions);
  const units = await run("report-unit-tests", patched.controller, testsIn(workspace.read(UNIT_TESTS)));
  const after = await run("report-patched", patched.suite, [...reproductions, ...suiteTests(workspace)]);

  console.log(table(`Kubernetes ${KUBERNETES}`, before));
  console.log(table("with the patch", [...units, ...after]));
  console.log(`This took ${((performance.now() - startedAt) / 1_000).toFixed(0)} s. The logs are in ${LOG_DIR}.`);
  const isShown = before.every(hasLost) && [...units, ...after].every(({ outcome }) => outcome === "pass");
  if (!isShown) process.exitCode = 1;
});

/** Whether the test ran into what the report is about: one that fails to compile, or to start, shows nothing. */
function hasLost({ name, outcome }: TestResult): boolean {
  const log = readFileSync(join(LOG_DIR, "report-unpatched.log"), "utf8");
  const own = log.split(`=== RUN   ${name}\n`)[1]?.split("=== RUN ")[0] ?? "";
  return outcome === "fail" && own.includes(", but storedVersions is [v2]");
}

function table(title: string, results: readonly TestResult[]): string {
  const rows = results.map(({ name, outcome, seconds }) => `| ${name} | ${outcome} (${seconds.toFixed(0)} s) |`);
  return `| ${title} | |\n| --- | --- |\n${rows.join("\n")}\n`;
}
