import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import type { NewObject } from "../api-client.ts";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { KSVM, type ProgramEnd, RunningProgram } from "../processes/program.ts";
import type { Cluster } from "./cluster.ts";

const ROOT = join(import.meta.dirname, "../..");
/** Above every --timeout that a test gives. */
const TIMEOUT_MS = 120_000;

/** Runs kubectl in the project's folder; `input` is what `-f -` reads. */
export type Kubectl = (args: readonly string[], input?: unknown) => Promise<ProgramEnd>;

/** kubectl as an administrator of the cluster has it, with the plugin `kubectl-ksvm` on PATH and a home of its own. */
export async function kubectlOf({ controlPlane, kubeconfig }: Cluster): Promise<Kubectl> {
  const home = join(controlPlane.dir, "home");
  const bin = join(home, "bin");
  mkdirSync(bin, { recursive: true });
  const plugin = `#!/bin/sh\nexec "${process.execPath}" "${KSVM}" "$@"\n`;
  writeFileSync(join(bin, "kubectl-ksvm"), plugin, { mode: 0o755 });
  const env = { PATH: bin, HOME: home, KUBECONFIG: kubeconfig };
  const { kubectl } = await ensureBinaries(["kubectl"]);
  return (args, input) => runKubectl(kubectl, args, { env, input });
}

/**
 * Renders a folder of deploy/, as `kubectl apply -k` does.
 * @param folder relative to the project, or absolute
 */
export async function render(folder: string): Promise<readonly NewObject[]> {
  const { kubectl } = await ensureBinaries(["kubectl"]);
  const { code, stdout, stderr } = await runKubectl(kubectl, ["kustomize", folder]);
  if (code !== 0) throw new Error(`Cannot render "${folder}": ${stderr}`);
  return parseAllDocuments(stdout).map((document) => document.toJS() as NewObject);
}

/** Runs a program, as kubectl with an environment of its own. */
export function runKubectl(
  program: string,
  args: readonly string[],
  { env, input = "" }: { readonly env?: NodeJS.ProcessEnv | undefined; readonly input?: unknown } = {},
): Promise<ProgramEnd> {
  const text = typeof input === "string" ? input : JSON.stringify(input);
  return new RunningProgram(program, args, { cwd: ROOT, env, input: text, timeoutMs: TIMEOUT_MS }).ended;
}
