import { symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Test } from "tap";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { KSVM, type ProgramEnd, RunningProgram } from "../processes/program.ts";
import type { Cluster } from "../integration/cluster.ts";

const ROOT = join(import.meta.dirname, "../..");
const TIMEOUT_MS = 300_000;

/** Runs a command line as a user does; what it writes to standard error is in the output, too. */
export type Shell = (command: string) => Promise<ProgramEnd>;

/**
 * A shell in a checkout of the project, whose user is an administrator of the cluster.
 * @param programs besides kubectl and ksvm, by name
 */
export async function shellOf(t: Test, cluster: Cluster, programs: Readonly<Record<string, string>>): Promise<Shell> {
  const { kubectl } = await ensureBinaries(["kubectl"]);
  const cwd = folderWith(t, { ...programs, kubectl });
  const env = { PATH: `${join(cwd, "bin")}:/usr/bin:/bin`, HOME: cwd, KUBECONFIG: cluster.kubeconfig };
  return async (command) => {
    const args = ["-c", `exec 2>&1; ${command}`];
    return await new RunningProgram("/bin/bash", args, { cwd, env, input: "", timeoutMs: TIMEOUT_MS }).ended;
  };
}

/**
 * A folder as a checkout of the project is, with programs in `bin`. It ends with the test.
 * `ksvm` waits one second for writes that are under way, not a minute: none is.
 */
function folderWith(t: Test, programs: Readonly<Record<string, string>>): string {
  const folder = t.testdir({ bin: {} });
  for (const name of ["test", "deploy"]) symlinkSync(join(ROOT, name), join(folder, name));
  for (const [name, path] of Object.entries(programs)) symlinkSync(path, join(folder, "bin", name));
  const lines = [
    "#!/bin/sh",
    'case "$1" in migrate | doctor) set -- "$@" --unsafe-settle 1s ;; esac',
    `exec "${process.execPath}" "${KSVM}" "$@"`,
  ];
  writeFileSync(join(folder, "bin", "ksvm"), `${lines.join("\n")}\n`, { mode: 0o755 });
  return folder;
}
