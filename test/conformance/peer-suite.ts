import { cpSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { startControlPlane } from "../control-plane/control-plane.ts";
import { RunningProgram } from "../processes/program.ts";
import { editSource, type SourceEdit } from "./edit-source.ts";
import { LOG_DIR, runGoTests } from "./go-test.ts";
import { verifyFolder, WORK_DIR, writeOverlayFile } from "./go-workspace.ts";
import { startInstalledKsvm } from "./installed-ksvm.ts";
import { PEER, PEER_FILES } from "./peer-files.ts";
import { specResult, type TestResult } from "./test-result.ts";

// The end-to-end test of kube-storage-version-migrator, which takes its own manifests and example objects to a cluster.

/** Names the folder with the sources of kube-storage-version-migrator, with the folder vendor. */
export const PEER_VARIABLE = "KSVM_PEER_SOURCE";

/** The test that is run, as Ginkgo names it. */
export const PEER_TEST = "storage version migrator should migrate CRD";

const PEER_TEST_FILE = "test/e2e/tests/crd-migration.go";
const PEER_SETUP_FILE = "test/e2e/tests/setup.go";

/** The edits of each file. No assertion is changed. */
export const PEER_EDITS: Readonly<Record<string, readonly SourceEdit[]>> = {
  [PEER_TEST_FILE]: [
    { why: "for the next hunk", from: `	"context"\n	"os/exec"\n`, to: `	"context"\n	"os"\n	"os/exec"\n` },
    {
      why: "the kubeconfig is not where upstream's CI has it",
      from: `clientcmd.BuildConfigFromFlags("", "/workspace/.kube/config")`,
      to: `clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))`,
    },
  ],
  [PEER_SETUP_FILE]: [
    {
      why: "the CRDs of `deploy/base` stay: they have the same versions, with more fields in the status",
      from: `	crds := []string{"../../manifests.local/storage_migration_crd.yaml", "../../manifests.local/storage_state_crd.yaml"}\n`,
      to: "",
    },
    {
      why: "the same",
      from: `	output, err = exec.Command("kubectl", "apply", "-f", crds[0], "-f", crds[1]).CombinedOutput()
	if err != nil {
		util.Failf("%s", output)
	}
`,
      to: "",
    },
  ],
};

/** The bounds of the test itself add up to 25 minutes. */
const DEADLINE_MS = 1_800_000;

/** Why the test cannot run; `undefined` where it can. */
export function missingPeer(environment: NodeJS.ProcessEnv): string | undefined {
  if ((environment[PEER_VARIABLE] ?? "") !== "") return undefined;
  return `${PEER_VARIABLE} names no folder with the sources of kube-storage-version-migrator`;
}

/** @throws {Error} naming each file that is not the pinned one */
export function verifyPeer(source: string): void {
  verifyFolder(PEER, source, PEER_FILES);
}

/** Runs the test against `ksvm controller`, on a control plane of its own. */
export async function runPeerSuite(source: string, signal: AbortSignal): Promise<readonly TestResult[]> {
  const dir = preparePeer(source);
  const program = join(dir, "e2e.test");
  await compile(resolve(source), program, signal);
  const binaries = await ensureBinaries(["kubectl"]);
  const controlPlane = await startControlPlane();
  try {
    const kubeconfig = controlPlane.kubeconfigFor();
    const log = openSync(join(LOG_DIR, "peer.ksvm.log"), "w");
    const ksvm = await startInstalledKsvm({
      kubeconfig,
      manifests: "deploy/base",
      flags: [`--apiserver-endpoints=${controlPlane.apiservers[0]?.url}`],
      dir: controlPlane.dir,
      log,
    });
    const test2json = ["go", "tool", "test2json", "-t"] as const;
    const report = join(dir, "report.json");
    const ginkgo = [`-ginkgo.focus= ${PEER_TEST}$`, "-ginkgo.v", "-ginkgo.no-color", `-ginkgo.json-report=${report}`];
    await runGoTests({
      name: "peer",
      command: [...test2json, program, "-test.v=test2json", "-test.timeout=40m", ...ginkgo],
      cwd: join(dir, "test", "e2e"),
      env: { KUBECONFIG: kubeconfig, PATH: `${dirname(binaries.kubectl)}:${process.env["PATH"]}` },
      expected: ["TestE2E"],
      signal,
      deadlineMs: DEADLINE_MS,
    });
    await ksvm.kill();
    return [specResult(PEER_TEST, existsSync(report) ? readFileSync(report, "utf8") : "[]")];
  } finally {
    await controlPlane.stop();
  }
}

/** Lays out what the test applies with kubectl, as `make local-manifests` of upstream does. @returns the folder */
function preparePeer(source: string): string {
  const dir = join(WORK_DIR, "peer");
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(join(dir, "test", "e2e"), { recursive: true });
  mkdirSync(join(dir, "manifests.local"));
  mkdirSync(LOG_DIR, { recursive: true });
  cpSync(join(source, "test/e2e/crd.yaml"), join(dir, "test/e2e/crd.yaml"));
  for (const name of readdirSync(join(source, "manifests"))) {
    const text = readFileSync(join(source, "manifests", name), "utf8")
      .replaceAll("REGISTRY", "registry.example.com")
      .replaceAll("VERSION", "v0.1")
      .replaceAll("NAMESPACE", "kube-system");
    writeFileSync(join(dir, "manifests.local", name), text);
  }
  return dir;
}

async function compile(source: string, output: string, signal: AbortSignal): Promise<void> {
  const replace: Record<string, string> = {};
  for (const [file, edits] of Object.entries(PEER_EDITS)) {
    const path = join(source, file);
    replace[path] = join(WORK_DIR, "peer", basename(file));
    writeFileSync(replace[path], editSource(file, readFileSync(path, "utf8"), edits));
  }
  const args = ["test", "-c", "-mod=vendor", "-vet=off", "-overlay", writeOverlayFile(replace), "-o", output];
  const go = new RunningProgram("go", [...args, "./test/e2e"], { cwd: source });
  signal.addEventListener("abort", () => go.signal("SIGTERM"));
  const { code, stderr } = await go.ended;
  if (code !== 0) throw new Error(`Cannot build the end-to-end test of ${PEER}:\n${stderr.trimEnd()}`);
}
