import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

/** Which code plays: the same seed is the same simulation only on the same one. */
export interface Tree {
  /** For people; `unknown` outside of a git repository. */
  readonly commit: string;
  /** Of all files that can have a part in a simulation, as they are, committed or not. */
  readonly digest: string;
}

/** What plays a seed, and what it reads beside code: packages, and the CRDs that worlds are set up with. */
const PLAYER = "test/simulation/runner/play-here.ts";
const DATA = ["package-lock.json", "deploy/base/crds/*.yaml"];
/** What changes the code where a mutation is named. */
const MUTATOR = "test/simulation/mutate.ts";

/**
 * @param root of the repository
 * @param isMutated whether a mutation is in force
 */
export function treeOf(root: string, isMutated: boolean): Tree {
  const hash = createHash("sha256").update(process.version);
  const files = playedFiles(root, isMutated);
  for (const file of files) hash.update(`\n${file}\n`).update(readFileSync(join(root, file)));
  return { commit: commitOf(root, files), digest: hash.digest("hex") };
}

/** The files that have a part in a simulation, by what they import from each other: each in turn, types included. */
export function playedFiles(root: string, isMutated = false): readonly string[] {
  const found = new Set<string>();
  const open = [PLAYER, ...(isMutated ? [MUTATOR] : [])];
  for (let file = open.pop(); file !== undefined; file = open.pop()) {
    if (found.has(file)) continue;
    found.add(file);
    open.push(...importsOf(root, file));
  }
  return [...found, ...globSync(DATA, { cwd: root })].toSorted();
}

const IMPORT = /(?:\bfrom|\bimport|new URL)\s*\(?\s*"(\.{1,2}\/[^"]+\.ts)"/g;

function importsOf(root: string, file: string): readonly string[] {
  const text = readFileSync(join(root, file), "utf8");
  const paths = [...text.matchAll(IMPORT)].map(([, path = ""]) => join(dirname(file), path));
  return paths.filter((path) => existsSync(join(root, path))).map((path) => relative("", path));
}

function commitOf(root: string, files: readonly string[]): string {
  const git = (...args: string[]): string =>
    execFileSync("git", ["-C", root, ...args], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  try {
    const isDirty = git("status", "--porcelain", "--", ...files) !== "";
    return `${git("rev-parse", "--short=12", "HEAD")}${isDirty ? " with changes" : ""}`;
  } catch {
    return "unknown";
  }
}
