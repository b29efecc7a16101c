import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Which code plays: the same seed is the same simulation only on the same one. */
export interface Tree {
  /** For people; `unknown` outside of a git repository. */
  readonly commit: string;
  /** Of all files that can have a part in a simulation, as they are, committed or not. */
  readonly digest: string;
}

/** @param root of the repository */
export function treeOf(root: string): Tree {
  const hash = createHash("sha256").update(process.version);
  const files = globSync(["src/**/*.ts", "test/**/*.ts", "package-lock.json"], { cwd: root }).toSorted();
  for (const file of files) hash.update(`\n${file}\n`).update(readFileSync(join(root, file)));
  return { commit: commitOf(root), digest: hash.digest("hex") };
}

function commitOf(root: string): string {
  const git = (...args: string[]): string =>
    execFileSync("git", ["-C", root, ...args], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  try {
    const isDirty = git("status", "--porcelain", "--", "src", "test", "package-lock.json") !== "";
    return `${git("rev-parse", "--short=12", "HEAD")}${isDirty ? " with changes" : ""}`;
  } catch {
    return "unknown";
  }
}
