// Runs the end-to-end test of kube-storage-version-migrator against `ksvm controller`, on a control plane of its own:
// KSVM_PEER_SOURCE=FOLDER node test/conformance/conformance.ts. The folder holds the sources at the pinned commit, with `vendor`.
import { cpSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { runScript, say } from "../../bench/run-script.ts";
import { CACHE_DIR, ensureBinaries } from "../control-plane/binaries.ts";
import { startControlPlane } from "../control-plane/control-plane.ts";
import { type ProgramEnd, RunningProgram } from "../processes/program.ts";
import { startInstalledKsvm } from "./installed-ksvm.ts";
import { PEER, PEER_FILES } from "./peer-files.ts";
import { pinProblems } from "./pinned-file.ts";

/** The test that is run, as Ginkgo names it. The other one ends the API server of a cluster on GCE, with gcloud. */
const TEST = "storage version migrator should migrate CRD";
/** The bounds of the test itself add up to 25 minutes. */
const DEADLINE_MS = 1_800_000;
const WORK_DIR = join(CACHE_DIR, "..", "conformance");

/** A change of a source file: a text that it contains once, and what takes its place. */
interface SourceEdit {
  readonly from: string;
  readonly to: string;
}

/** The edits of each file. No assertion is changed. */
const EDITS: Readonly<Record<string, readonly SourceEdit[]>> = {
  "test/e2e/tests/crd-migration.go": [
    { from: `	"context"\n	"os/exec"\n`, to: `	"context"\n	"os"\n	"os/exec"\n` },
    // The kubeconfig is not where upstream's CI has it.
    {
      from: `clientcmd.BuildConfigFromFlags("", "/workspace/.kube/config")`,
      to: `clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))`,
    },
  ],
  // The CRDs of deploy/base stay: they have the same versions, with more fields in the status.
  "test/e2e/tests/setup.go": [
    {
      from: `	crds := []string{"../../manifests.local/storage_migration_crd.yaml", "../../manifests.local/storage_state_crd.yaml"}\n`,
      to: "",
    },
    {
      from: `	output, err = exec.Command("kubectl", "apply", "-f", crds[0], "-f", crds[1]).CombinedOutput()
	if err != nil {
		util.Failf("%s", output)
	}
`,
      to: "",
    },
  ],
};

await runScript(async (signal) => {
  const source = process.env["KSVM_PEER_SOURCE"] ?? "";
  if (source === "") throw new Error(`Cannot run the end-to-end test: set KSVM_PEER_SOURCE to the sources of ${PEER}`);
  verify(resolve(source));
  const dir = layOut(resolve(source));
  say("the test is compiled and run (some minutes)");
  const program = await compile(resolve(source), dir, signal);
  const startedAt = performance.now();
  const report = await run(program, dir, signal);
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0);
  if (!saysPassed(report)) throw new Error(`failed after ${seconds} s: ${TEST}; the logs are in ${dir}`);
  console.log(`passed after ${seconds} s: ${TEST}`);
});

/** @throws {Error} naming each file that is not the pinned one */
function verify(source: string): void {
  const problems = pinProblems(PEER, PEER_FILES, {
    read: (path) => (existsSync(join(source, path)) ? readFileSync(join(source, path)) : undefined),
    list: (folder) =>
      existsSync(join(source, folder))
        ? readdirSync(join(source, folder), { recursive: true, withFileTypes: true })
            .filter((entry) => entry.isFile())
            .map((entry) => join(entry.parentPath, entry.name).slice(source.length + 1))
        : [],
  });
  if (problems.length > 0) throw new Error(problems.join("\n"));
}

/** Lays out what the test applies with kubectl, as `make local-manifests` of upstream does. @returns the folder */
function layOut(source: string): string {
  rmSync(WORK_DIR, { recursive: true, force: true });
  mkdirSync(join(WORK_DIR, "test", "e2e"), { recursive: true });
  mkdirSync(join(WORK_DIR, "manifests.local"));
  cpSync(join(source, "test/e2e/crd.yaml"), join(WORK_DIR, "test/e2e/crd.yaml"));
  for (const name of readdirSync(join(source, "manifests"))) {
    const text = readFileSync(join(source, "manifests", name), "utf8")
      .replaceAll("REGISTRY", "registry.example.com")
      .replaceAll("VERSION", "v0.1")
      .replaceAll("NAMESPACE", "kube-system");
    writeFileSync(join(WORK_DIR, "manifests.local", name), text);
  }
  return WORK_DIR;
}

/** @returns the path of the program */
async function compile(source: string, dir: string, signal: AbortSignal): Promise<string> {
  const replace: Record<string, string> = {};
  for (const [file, edits] of Object.entries(EDITS)) {
    const path = join(source, file);
    replace[path] = join(dir, basename(file));
    writeFileSync(replace[path], edit(file, readFileSync(path, "utf8"), edits));
  }
  const overlay = join(dir, "overlay.json");
  writeFileSync(overlay, JSON.stringify({ Replace: replace }));
  const program = join(dir, "e2e.test");
  const args = ["test", "-c", "-mod=vendor", "-vet=off", "-overlay", overlay, "-o", program, "./test/e2e"];
  const { code, stderr } = await ended("go", new RunningProgram("go", args, { cwd: source }), signal);
  if (code !== 0) throw new Error(`Cannot build the end-to-end test of ${PEER}:\n${stderr.trimEnd()}`);
  return program;
}

/** @throws {Error} where a text is not there, or more than once: the edit has to be looked at again */
function edit(file: string, text: string, edits: readonly SourceEdit[]): string {
  return edits.reduce((edited, { from, to }) => {
    const [before, after, ...more] = edited.split(from);
    if (after === undefined || more.length > 0)
      throw new Error(`Cannot edit "${file}": not there once: ${from.trim()}`);
    return `${before}${to}${after}`;
  }, text);
}

/** @returns the report of Ginkgo */
async function run(program: string, dir: string, signal: AbortSignal): Promise<string> {
  const { kubectl } = await ensureBinaries(["kubectl"]);
  const controlPlane = await startControlPlane();
  try {
    const kubeconfig = controlPlane.kubeconfigFor();
    const ksvm = await startInstalledKsvm({
      kubeconfig,
      manifests: "deploy/base",
      flags: [`--apiserver-endpoints=${controlPlane.apiservers[0]?.url}`],
      dir: controlPlane.dir,
      log: openSync(join(dir, "ksvm.log"), "w"),
    });
    const report = join(dir, "report.json");
    const log = openSync(join(dir, "test.log"), "w");
    const ginkgo = [`-ginkgo.focus= ${TEST}$`, "-ginkgo.v", "-ginkgo.no-color", `-ginkgo.json-report=${report}`];
    const test = new RunningProgram(program, ["-test.timeout=40m", ...ginkgo], {
      cwd: join(dir, "test", "e2e"),
      env: { ...process.env, KUBECONFIG: kubeconfig, PATH: `${dirname(kubectl)}:${process.env["PATH"]}` },
      stdout: log,
      stderr: log,
      timeoutMs: DEADLINE_MS,
    });
    await ended("the test", test, signal);
    await ksvm.kill();
    return existsSync(report) ? readFileSync(report, "utf8") : "[]";
  } finally {
    await controlPlane.stop();
  }
}

async function ended(what: string, program: RunningProgram, signal: AbortSignal): Promise<ProgramEnd> {
  const end = (): void => program.signal("SIGKILL");
  signal.addEventListener("abort", end);
  try {
    const result = await program.ended;
    signal.throwIfAborted();
    return result;
  } catch (cause) {
    throw new Error(`Cannot run ${what}`, { cause });
  } finally {
    signal.removeEventListener("abort", end);
  }
}

interface Spec {
  readonly ContainerHierarchyTexts: readonly string[] | null;
  readonly LeafNodeText: string;
  readonly State: string;
}

/** Whether the report of Ginkgo says that the test passed: a run in which no test was in focus ends with success, too. */
function saysPassed(report: string): boolean {
  const suites = JSON.parse(report) as readonly { readonly SpecReports: readonly Spec[] | null }[];
  return suites
    .flatMap(({ SpecReports }) => SpecReports ?? [])
    .some(
      ({ ContainerHierarchyTexts, LeafNodeText, State }) =>
        [...(ContainerHierarchyTexts ?? []), LeafNodeText].join(" ") === TEST && State === "passed",
    );
}
