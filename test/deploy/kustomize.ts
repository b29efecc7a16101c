import { execFile, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

import { parseAllDocuments } from "yaml";

import type { NewObject } from "../../src/kube/client.ts";

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, "..", "..");
const PACKAGE = "sigs.k8s.io/kustomize/kustomize/v5";
const MAX_OUTPUT = 16 * 1024 * 1024;

/**
 * Renders a folder of deploy/, as `kubectl apply -k` does. kustomize is built by Go, once, into .cache/kustomize; with
 * KUBEBUILDER_ASSETS set the kubectl in that folder renders instead.
 * @param folder relative to the project, or absolute
 */
export async function render(folder: string): Promise<readonly NewObject[]> {
  const [program, ...args] = await renderCommand();
  const options = { cwd: ROOT, maxBuffer: MAX_OUTPUT };
  const { stdout } = await run(program, [...args, folder], options);
  return parseAllDocuments(stdout).map((document) => document.toJS() as NewObject);
}

async function renderCommand(): Promise<readonly [string, ...string[]]> {
  const assets = process.env["KUBEBUILDER_ASSETS"];
  return assets ? [join(assets, "kubectl"), "kustomize"] : [await ensureKustomize(), "build"];
}

/**
 * Finds kustomize, or builds it.
 * @returns an absolute path
 * @throws {Error} with a one-line message where it cannot be built
 */
export async function ensureKustomize(): Promise<string> {
  const path = join(ROOT, ".cache", "kustomize", `${version()}-${process.platform}-${process.arch}`, "kustomize");
  if (existsSync(path)) return path;
  if (spawnSync("go", ["version"], { stdio: "ignore" }).error !== undefined) {
    throw new Error("Cannot build kustomize: no Go toolchain found on PATH, and KUBEBUILDER_ASSETS is not set");
  }
  mkdirSync(dirname(path), { recursive: true });
  // Two processes may build it at once; each renames its own finished file, so none runs half a file.
  const unfinished = `${path}.${randomBytes(6).toString("hex")}.tmp`;
  const env = { ...process.env, CGO_ENABLED: "0" };
  try {
    const args = ["build", "-mod=readonly", "-trimpath", "-ldflags", "-s -w", "-o", unfinished, PACKAGE];
    await run("go", args, { cwd: import.meta.dirname, env });
    renameSync(unfinished, path);
  } finally {
    rmSync(unfinished, { force: true });
  }
  return path;
}

/** As go.mod beside this file names it, the only place that states it. */
function version(): string {
  const text = readFileSync(join(import.meta.dirname, "go.mod"), "utf8");
  const found = /^\s*sigs\.k8s\.io\/kustomize\/kustomize\/v5 (v\S+)/m.exec(text)?.[1];
  if (found === undefined) throw new Error("Cannot read go.mod: it does not name a version of kustomize");
  return found;
}
