// ksvm for one test of the in-tree controller's suite: node ksvm-service.ts KUBECONFIG. start_ksvm.go starts it. It says "ready" on
// stdout, and ends ksvm and itself once stdin is closed.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadKubeConfig } from "../../src/kube/connect/config.ts";
import { startInstalledKsvm } from "./installed-ksvm.ts";
import { SUITE_FLAGS, SUITE_MANIFESTS } from "./in-tree-suite.ts";

const [, , kubeconfig = ""] = process.argv;
const dir = mkdtempSync(join(tmpdir(), "ksvm-service-"));
const closed = new Promise<"closed">((resolve) => {
  process.stdin.on("error", () => resolve("closed")).on("close", () => resolve("closed"));
  process.stdin.resume();
});

try {
  const program = await startInstalledKsvm({
    kubeconfig,
    manifests: SUITE_MANIFESTS,
    // The addresses in the suite's EndpointSlices lead nowhere.
    flags: [...SUITE_FLAGS, `--apiserver-endpoints=${loadKubeConfig({ kubeconfig }).getCurrentCluster()?.server}`],
    dir,
    log: process.stderr.fd,
  });
  process.stdout.write("ready\n");
  const first = await Promise.race([closed, program.ended]);
  if (first !== "closed") throw new Error(`ksvm controller ended with code ${first.code} before the test did`);
  program.signal("SIGTERM");
  const { code } = await program.ended;
  if (code !== 0) throw new Error(`ksvm controller ended with code ${code}`);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
} finally {
  rmSync(dir, { recursive: true, force: true });
  process.stdin.destroy();
}
