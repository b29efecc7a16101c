import { existsSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import type { NewObject } from "../../src/kube/client.ts";
import { buildOnce, CACHE_DIR, goBuild } from "../control-plane/binaries.ts";
import { RunningProgram } from "../processes/program.ts";

/** The versions of helm that charts are tried with; the newest first. */
export const HELM_VERSIONS = ["v4", "v3"] as const;
type HelmVersion = (typeof HELM_VERSIONS)[number];

const GO_FOLDERS: Readonly<Record<HelmVersion, string>> = {
  v4: join(import.meta.dirname, "helm"),
  v3: join(import.meta.dirname, "helm3"),
};

/**
 * Builds helm, once per version, into .cache/control-plane/helm.
 * @returns the absolute path of the program
 * @throws {Error} where Go cannot build it
 */
export async function ensureHelm(major: HelmVersion = HELM_VERSIONS[0]): Promise<string> {
  const folder = GO_FOLDERS[major];
  const required = new RegExp(`helm\\.sh/helm/${major} (v\\S+)`);
  const [, version = ""] = required.exec(readFileSync(join(folder, "go.mod"), "utf8")) ?? [];
  const program = join(CACHE_DIR, "helm", `${version}-${process.platform}-${process.arch}`, "helm");
  if (!existsSync(program)) {
    const args = ["-mod=readonly", "-p", "2", "-ldflags", "-s -w"];
    await buildOnce(program, (unfinished) =>
      goBuild("helm", [...args, "-o", unfinished, `helm.sh/helm/${major}/cmd/helm`], folder),
    );
  }
  return program;
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
