import { readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Test } from "tap";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { KSVM, type ProgramEnd, RunningProgram } from "../processes/program.ts";
import type { Cluster } from "./cluster.ts";

const ROOT = join(import.meta.dirname, "../..");
const TIMEOUT_MS = 300_000;

/** A command that a document shows, and what it prints there. */
export interface ShownCommand {
  readonly command: string;
  readonly output: string;
}

/**
 * The commands of one section of a document, in order: the lines that begin with `$ ` in its blocks of the language `console`.
 * @param heading of the section, without its `#`
 * @throws {Error} where there is no such section, or no command in it
 */
export function commandsOf(markdown: string, heading: string): readonly ShownCommand[] {
  const section = markdown.split(/^## /m).find((text) => text.startsWith(`${heading}\n`)) ?? "";
  const blocks = [...section.matchAll(/^```console\n([\s\S]*?)^```$/gm)].map(([, text = ""]) => text);
  const commands = blocks
    .flatMap((text) => text.split(/^\$ /m).slice(1))
    .map((text) => {
      const [command = "", ...lines] = text.split("\n");
      return { command, output: lines.join("\n") };
    });
  if (commands.length === 0) throw new Error(`Cannot find a command under "${heading}"`);
  return commands;
}

/** Times, ages, addresses and the progress in between, which each run has its own of. */
const MASKS: readonly (readonly [RegExp, string])[] = [
  [/https:\/\/[\d.]+:\d+/g, "https://SERVER"],
  [/^.*: \d+% \d+\/\d+\n/gm, ""],
  [/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME"],
  [/\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}/g, "TIME"],
  [/\b\d+(\.\d+)?(ms|s|m|h)(\d+s)?\b/g, "DURATION"],
  [/[ \t]+/g, " "],
  [/ $/gm, ""],
];

/** A text without what differs from run to run. */
export function masked(text: string): string {
  return MASKS.reduce((sofar, [pattern, word]) => sofar.replaceAll(pattern, word), `${text.trim()}\n`).trim();
}

/** Whether a document shows what was printed; `…` there stands for what it leaves out. */
export function isAsShown(printed: string, shown: string): boolean {
  const parts = masked(shown)
    .split("…")
    .map((part) => part.trim().replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join("[\\s\\S]*")}$`).test(masked(printed));
}

/** How the commands of a document are followed. */
export interface FollowOptions {
  /** Programs besides kubectl and ksvm, by name. @default none */
  readonly programs?: Readonly<Record<string, string>>;
}

/** Runs a command line as a user does; what it writes to standard error is in the output, too. */
export type Shell = (command: string) => Promise<ProgramEnd>;

/** A shell in a checkout of the project, whose user is an administrator of the cluster. `$?` is the exit code of the command before. */
export async function shellOf(t: Test, cluster: Cluster, { programs = {} }: FollowOptions = {}): Promise<Shell> {
  const { kubectl } = await ensureBinaries(["kubectl"]);
  const cwd = folderWith(t, { ...programs, kubectl });
  const env = { PATH: `${join(cwd, "bin")}:/usr/bin:/bin`, HOME: cwd, KUBECONFIG: cluster.kubeconfig };
  let last = 0;
  return async (command) => {
    const args = ["-c", `exec 2>&1; (exit ${last}); ${command}`];
    const end = await new RunningProgram("/bin/bash", args, { cwd, env, input: "", timeoutMs: TIMEOUT_MS }).ended;
    last = end.code ?? 1;
    return end;
  };
}

/**
 * Follows a section of docs/scenarios.md as a user does, command by command: each has to print what is shown.
 * `ksvm` waits one second for writes that are under way, not a minute: none is.
 */
export async function followScenario(
  t: Test,
  cluster: Cluster,
  heading: string,
  options: FollowOptions = {},
): Promise<void> {
  const shell = await shellOf(t, cluster, options);
  for (const { command, output } of commandsOf(readFileSync(join(ROOT, "docs/scenarios.md"), "utf8"), heading)) {
    const { stdout } = await shell(command);
    t.ok(isAsShown(stdout, output), command, { printed: masked(stdout), shown: masked(output) });
  }
}

/** A folder as a checkout of the project is, with programs in `bin`. It ends with the test. */
function folderWith(t: Test, programs: Readonly<Record<string, string>>): string {
  const folder = t.testdir({ bin: {} });
  for (const name of ["docs", "deploy"]) symlinkSync(join(ROOT, name), join(folder, name));
  for (const [name, path] of Object.entries(programs)) symlinkSync(path, join(folder, "bin", name));
  const lines = [
    "#!/bin/sh",
    'case "$1" in migrate | doctor) set -- "$@" --settle 1s ;; esac',
    `exec "${process.execPath}" "${KSVM}" "$@"`,
  ];
  writeFileSync(join(folder, "bin", "ksvm"), `${lines.join("\n")}\n`, { mode: 0o755 });
  return folder;
}
