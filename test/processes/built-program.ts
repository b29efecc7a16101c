import { join } from "node:path";
import { RunningProgram } from "./program.ts";

const ROOT = join(import.meta.dirname, "../..");

/** Compiles the program to dist/, as it is shipped: Node needs some 25 MiB to strip types. @returns its main module */
export async function buildProgram(): Promise<string> {
  const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
  // What tap has every Node load cannot load tsc.
  const options = { cwd: ROOT, withoutTap: true };
  const { code, stdout } = await new RunningProgram(process.execPath, [tsc, "-p", "tsconfig.build.json"], options)
    .ended;
  if (code !== 0) throw new Error(`Cannot compile the program:\n${stdout}`);
  return join(ROOT, "dist/cli/main.js");
}
