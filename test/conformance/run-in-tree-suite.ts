import { dirname, join } from "node:path";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { editSource } from "./edit-source.ts";
import { LOG_DIR, runGoTests } from "./go-test.ts";
import { type GoFile, type GoWorkspace, MODULE } from "./go-workspace.ts";
import { ASSERTION_EDITS, KUBERNETES, START_EDITS, SUITE_FILES, SUITE_FOLDER } from "./in-tree-suite.ts";
import { type TestResult, testsIn } from "./test-result.ts";

/** What makes and changes migrations in the suite. */
export type Migrator = "in-tree" | "ksvm";

/** The bounds of the tests themselves add up to half an hour; compiling takes minutes. */
const DEADLINE_MS = 3_600_000;

/** The file of the suite that starts the controller. */
export const UTIL = `${SUITE_FOLDER}/util.go`;

/** The names of the tests of the suite. */
export function suiteTests(workspace: GoWorkspace): readonly string[] {
  return SUITE_FILES.flatMap(({ path }) => (path.endsWith("_test.go") ? testsIn(workspace.read(path)) : []));
}

/** Runs the suite of the in-tree controller: as it is, or with ksvm in its place. */
export async function runInTreeSuite(
  workspace: GoWorkspace,
  migrator: Migrator,
  signal: AbortSignal,
): Promise<readonly TestResult[]> {
  const place =
    migrator === "in-tree"
      ? [`k8s.io/kubernetes/${SUITE_FOLDER}`]
      : ["-overlay", workspace.writeOverlay([{ folder: "ksvm", files: filesForKsvm(workspace) }]), `${MODULE}/ksvm`];
  return runGoPackage(workspace, { name: migrator, place, expected: suiteTests(workspace), signal });
}

/** The suite with ksvm in place of the in-tree controller. @throws {Error} where an edit no longer applies */
function filesForKsvm(workspace: GoWorkspace): readonly GoFile[] {
  return [
    ...suiteFiles(workspace).map((file) =>
      file.name === "util.go"
        ? { ...file, text: editSource(UTIL, workspace.read(UTIL), [...START_EDITS, ...ASSERTION_EDITS]) }
        : file,
    ),
    { name: "start_ksvm.go", path: join(import.meta.dirname, "start_ksvm.go") },
  ];
}

/** The files of the suite as they are. */
export function suiteFiles({ kubernetes }: GoWorkspace): readonly GoFile[] {
  return SUITE_FILES.map(({ path }) => ({ name: path.slice(SUITE_FOLDER.length + 1), path: join(kubernetes, path) }));
}

/** What of a package is run. */
export interface PackageRun {
  /** Names the log. */
  readonly name: string;
  /** The package, after flags that say where its files are. */
  readonly place: readonly string[];
  readonly expected: readonly string[];
  readonly signal: AbortSignal;
}

/** Runs tests of one package, each on an API server and an etcd of its own. */
export async function runGoPackage(
  workspace: GoWorkspace,
  { name, place, expected, signal }: PackageRun,
): Promise<readonly TestResult[]> {
  const { etcd } = await ensureBinaries(["etcd", "kubectl"]);
  const only = `^(${expected.join("|")})$`;
  const stamped = { gitVersion: KUBERNETES, gitMajor: "1", gitMinor: "36" };
  const ldflags = Object.entries(stamped).map(([name, value]) => `-X k8s.io/component-base/version.${name}=${value}`);
  // As upstream's own build does: without it API servers call themselves v0.0.0-master.
  const version = ["-ldflags", ldflags.join(" ")];
  const flags = [...version, "-mod=readonly", "-json", "-count=1", "-vet=off", "-timeout=55m", "-run", only];
  return runGoTests({
    name,
    // No -trimpath: the suite looks for its certificates beside its sources.
    command: ["go", "test", ...flags, ...place],
    cwd: workspace.dir,
    env: {
      PATH: `${dirname(etcd)}:${process.env["PATH"]}`,
      // Nothing listens there, so the suite starts an etcd of its own and uses none that happens to run.
      KUBE_INTEGRATION_ETCD_URL: "http://127.0.0.1:1",
      KSVM_CONFORMANCE_NODE: process.execPath,
      KSVM_CONFORMANCE_SERVICE: join(import.meta.dirname, "ksvm-service.ts"),
      KSVM_CONFORMANCE_LOGS: LOG_DIR,
    },
    expected,
    signal,
    deadlineMs: DEADLINE_MS,
  });
}
