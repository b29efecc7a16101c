import { existsSync, globSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import type { NewObject } from "../api-client.ts";
import { buildOnce, CACHE_DIR, goBuild } from "../control-plane/binaries.ts";
import { RunningProgram } from "../processes/program.ts";

/** cert-manager, as go.mod names its version. */
export interface CertManager {
  /** Its controller and its cainjector, chosen by the argument. */
  readonly program: string;
  readonly crds: readonly NewObject[];
}

const MODULE = "github.com/cert-manager/cert-manager";
/** Here are its main functions: the module comes without. */
const GO_FOLDER = join(import.meta.dirname, "cert-manager");

/**
 * Builds cert-manager, once per version and change of its main functions, into .cache/control-plane/cert-manager.
 * @throws {Error} where Go cannot build it
 */
export async function ensureCertManager(): Promise<CertManager> {
  const { Version, Dir } = await readModule();
  const newest = Math.max(...["main.go", "go.mod"].map((name) => statSync(join(GO_FOLDER, name)).mtimeMs));
  const program = join(CACHE_DIR, "cert-manager", `${Version}-${process.platform}-${process.arch}`, "cert-manager");
  if (!existsSync(program) || statSync(program).mtimeMs < newest) {
    // It shares the machine with what else runs; two compilers at a time need less than 2 GiB.
    const args = ["-mod=readonly", "-p", "2", "-ldflags", "-s -w"];
    await buildOnce(program, (unfinished) => goBuild("cert-manager", [...args, "-o", unfinished, "."], GO_FOLDER));
  }
  const files = globSync("*.yaml", { cwd: join(Dir, "deploy", "crds") }).toSorted();
  const crds = files.map((file) => parse(readFileSync(join(Dir, "deploy", "crds", file), "utf8")) as NewObject);
  return { program, crds };
}

async function readModule(): Promise<{ readonly Version: string; readonly Dir: string }> {
  const args = ["mod", "download", "-json", MODULE];
  const { code, stdout, stderr } = await new RunningProgram("go", args, { cwd: GO_FOLDER }).ended;
  if (code !== 0)
    throw new Error(`Cannot build cert-manager: go mod download ended with code ${code}:\n${stderr.trimEnd()}`);
  return JSON.parse(stdout) as { readonly Version: string; readonly Dir: string };
}
