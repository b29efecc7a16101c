import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

import { RunningProgram } from "../processes/program.ts";
import { CACHE_DIR } from "./binaries.ts";

/**
 * The versions of kubectl whose `kubectl apply -k` has to render deploy/: the oldest that is supported, the one whose
 * kustomize ends on several `$patch: delete` in one file, and the newest.
 */
export const KUBECTL_VERSIONS = ["v1.30.14", "v1.32.9", "v1.36.3"] as const;

/**
 * Builds the kustomize that a version of kubectl contains, once, into .cache/control-plane/kustomize. kubectl itself would
 * take many times as long to build.
 * @param kubectl such as "v1.32.9"
 * @returns the absolute path of the program
 * @throws {Error} where Go cannot build it
 */
export async function ensureKustomize(kubectl: string): Promise<string> {
  const dir = join(CACHE_DIR, "kustomize", kubectl);
  const path = join(dir, `kustomize-${process.platform}-${process.arch}`);
  if (existsSync(path)) return path;
  mkdirSync(dir, { recursive: true });
  // Two processes may build it at once: each has a module and a file of its own.
  const unfinished = join(dir, randomBytes(6).toString("hex"));
  try {
    mkdirSync(unfinished);
    writeFileSync(join(unfinished, "go.mod"), goModText(await requirementsOf(kubectl, dir)));
    const output = join(unfinished, "kustomize");
    await go(unfinished, [
      "build",
      "-mod=mod",
      "-trimpath",
      "-ldflags",
      "-s -w",
      "-o",
      output,
      `${MODULE}/kustomize/v5`,
    ]);
    renameSync(output, path);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
  return path;
}

/** Renders a folder of deploy/ as YAML, as that kubectl does. The code is not 0 where it cannot. */
export async function kustomizeBuild(
  program: string,
  folder: string,
): Promise<{ readonly code: number | null; readonly stdout: string; readonly stderr: string }> {
  return new RunningProgram(program, ["build", folder], { cwd: dirname(program), timeoutMs: 120_000 }).ended;
}

const MODULE = "sigs.k8s.io/kustomize";

/** What k8s.io/kubectl of that version names: kustomize and its libraries, which it may replace by other versions. */
async function requirementsOf(kubectl: string, cwd: string): Promise<readonly string[]> {
  const published = kubectl.replace(/^v1\./, "v0.");
  const stdout = await go(cwd, ["mod", "download", "-json", `k8s.io/kubectl@${published}`]);
  const { GoMod } = JSON.parse(stdout) as { readonly GoMod: string };
  const found = [...readFileSync(GoMod, "utf8").matchAll(/^\s*(sigs\.k8s\.io\/kustomize\/\S+ v\S+)/gm)];
  return found.map(([, requirement = ""]) => requirement);
}

function goModText(requirements: readonly string[]): string {
  const lines = requirements.map((requirement) => `\t${requirement}`).join("\n");
  return `module ksvm/kustomize\n\ngo 1.22.0\n\nrequire (\n${lines}\n)\n`;
}

async function go(cwd: string, args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await new RunningProgram("go", args, {
    cwd,
    env: { ...process.env, CGO_ENABLED: "0" },
  }).ended;
  if (code !== 0)
    throw new Error(`Cannot build kustomize: go ${args[0]} ended with code ${code}:\n${stderr.trimEnd()}`);
  return stdout;
}
