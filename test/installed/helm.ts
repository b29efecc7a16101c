import { tmpdir } from "node:os";
import { parseAllDocuments } from "yaml";
import type { NewObject } from "../api-client.ts";
import { RunningProgram } from "../processes/program.ts";
import { ensureGoProgram } from "./go-program.ts";

/** The versions of helm that charts are tried with; the newest first. */
export const HELM_VERSIONS = ["v4", "v3"] as const;
type HelmVersion = (typeof HELM_VERSIONS)[number];

const FOLDERS: Readonly<Record<HelmVersion, string>> = { v4: "helm", v3: "helm3" };

/** Builds helm. @returns its absolute path @throws {Error} where Go cannot build it */
export function ensureHelm(major: HelmVersion = HELM_VERSIONS[0]): Promise<string> {
  return ensureGoProgram({
    name: "helm",
    folder: FOLDERS[major],
    module: `helm.sh/helm/${major}`,
    package: "cmd/helm",
  });
}

/** What `helm template` makes of a chart. @param folder absolute */
export async function helmTemplate(program: string, folder: string, namespace: string): Promise<readonly NewObject[]> {
  const args = ["template", "release", folder, "--namespace", namespace];
  const { code, stdout, stderr } = await new RunningProgram(program, args, { timeoutMs: 120_000 }).ended;
  if (code !== 0) throw new Error(`Cannot render "${folder}": ${stderr}`);
  return parseAllDocuments(stdout).map((document) => document.toJS() as NewObject);
}

/**
 * Runs helm.
 * @returns what it prints
 * @throws {Error} where it fails
 */
export async function runHelm(program: string, args: readonly string[], kubeconfig?: string): Promise<string> {
  const env = { HOME: tmpdir(), ...(kubeconfig === undefined ? {} : { KUBECONFIG: kubeconfig }) };
  const { code, stdout, stderr } = await new RunningProgram(program, args, { env, timeoutMs: 180_000 }).ended;
  if (code !== 0) throw new Error(`helm ${args.join(" ")}: ${stderr}`);
  return stdout;
}
