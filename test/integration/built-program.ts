import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";

const ROOT = join(import.meta.dirname, "../..");

/** Compiles the program to dist/, as it is shipped: Node needs some 25 MiB to strip types. @returns its main module */
export async function buildProgram(): Promise<string> {
  const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
  // What tap has every Node load, by NODE_OPTIONS, cannot load tsc.
  const command = ["-u", "NODE_OPTIONS", process.execPath, tsc, "-p", "tsconfig.build.json"];
  await promisify(execFile)("env", command, { cwd: ROOT });
  return join(ROOT, "dist/cli/main.js");
}
