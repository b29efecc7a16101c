import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { buildOnce, CACHE_DIR, goBuild } from "../control-plane/binaries.ts";

/** A program of others that a test runs. */
export interface GoProgram {
  readonly name: string;
  /** Beside this file: its go.mod names the version. */
  readonly folder: string;
  readonly module: string;
  /** The package of its main function, below the module. @default the module itself */
  readonly package?: string;
  /** @default none */
  readonly tags?: string;
  /** Whether parts of it are in C. @default false */
  readonly withC?: boolean;
}

/**
 * Builds a program, once per version, into .cache/control-plane.
 * @returns its absolute path
 * @throws {Error} where Go cannot build it
 */
export async function ensureGoProgram({ folder, module, name, tags, ...wanted }: GoProgram): Promise<string> {
  const cwd = join(import.meta.dirname, folder);
  const required = new RegExp(`${module.replaceAll(".", "\\.")} (v\\S+)`);
  const [, version = ""] = required.exec(readFileSync(join(cwd, "go.mod"), "utf8")) ?? [];
  const program = join(CACHE_DIR, folder, `${version}-${process.platform}-${process.arch}`, name);
  if (existsSync(program)) return program;
  // It shares the machine with what else runs; two compilers at a time need less than 2 GiB.
  const args = ["-mod=readonly", "-p", "2", ...(tags === undefined ? [] : ["-tags", tags]), "-ldflags", "-s -w"];
  const main = wanted.package === undefined ? module : `${module}/${wanted.package}`;
  await buildOnce(program, (unfinished) => goBuild(name, [...args, "-o", unfinished, main], cwd, wanted.withC));
  return program;
}
