import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { buildOnce, CACHE_DIR, goBuild } from "../control-plane/binaries.ts";

/** A program of others that a test runs. */
export interface GoProgram {
  readonly name: string;
  /** Beside this file: its go.mod names the version. */
  readonly folder: string;
  readonly module: string;
  /** The package of its main function, below the module. */
  readonly package: string;
  /** @default none */
  readonly tags?: string;
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
  await buildOnce(program, (unfinished) =>
    goBuild(name, [...args, "-o", unfinished, `${module}/${wanted.package}`], cwd),
  );
  return program;
}
