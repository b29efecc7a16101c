import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import tap, { type Test } from "tap";
import { COMMANDS } from "../../../src/cli/commands/all-commands.ts";
import { bashCompletion } from "../../../src/cli/completion/bash.ts";
import { completionsOf } from "../../../src/cli/completion/completions.ts";
import { fishCompletion } from "../../../src/cli/completion/fish.ts";
import { zshCompletion } from "../../../src/cli/completion/zsh.ts";

const COMPLETIONS = completionsOf(COMMANDS);

function scriptFile(t: Test, name: string, text: string): string {
  const path = join(t.testdir({}), name);
  writeFileSync(path, text);
  return path;
}

/** What bash would offer after these words, of which the last is being typed. */
function bashOffers(script: string, ...words: readonly string[]): readonly string[] {
  const line = words.map((word) => `'${word}'`).join(" ");
  const program = `source ${script}; COMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}; _ksvm; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { status, stderr, stdout } = spawnSync("bash", ["-uc", program], { encoding: "utf8" });
  if (status !== 0 || stderr !== "") throw new Error(stderr);
  return stdout.split("\n").filter((offer) => offer !== "");
}

await tap.test("bash completes commands, flags and values", (t) => {
  const script = scriptFile(t, "ksvm.bash", bashCompletion(COMPLETIONS));
  const offers = (...words: readonly string[]) => bashOffers(script, ...words);
  const first = new Set([...COMMANDS.map(({ path }) => path.split(" ")[0]), "help"]);
  t.same(new Set(offers("ksvm", "")), first);
  t.same(offers("ksvm", "migr"), ["migrate"]);
  t.same(offers("ksvm", "certs", ""), ["ensure", "rotate", "status"]);
  t.same(offers("kubectl", "ksvm", "certs", "r"), ["rotate"]);
  t.same(offers("ksvm", "plan", "-o", ""), ["table", "wide", "name", "json", "yaml"]);
  t.same(offers("ksvm", "plan", "--output", "j"), ["json"]);
  t.same(offers("ksvm", "migrate", "--max-i"), ["--max-in-flight", "--max-idle"]);
  t.same(offers("ksvm", "certs", "status", "--outp"), ["--output"]);
  for (const { path, flags } of COMPLETIONS) {
    const offered = new Set(offers("ksvm", ...path.split(" "), "--"));
    t.same(offered, new Set(flags.map(({ name }) => `--${name}`)), path);
  }
  t.end();
});

for (const [shell, script] of [
  ["zsh", zshCompletion(COMPLETIONS)],
  ["fish", fishCompletion(COMPLETIONS)],
] as const) {
  await tap.test(`the script for ${shell} names every command and every flag`, (t) => {
    for (const { path, flags } of COMPLETIONS) {
      t.ok(script.includes(path.split(" ").at(-1) ?? ""), path);
      for (const { name } of flags) t.ok(script.includes(shell === "zsh" ? `--${name}` : `-l ${name}`), name);
    }
    t.end();
  });

  const isMissing = spawnSync(shell, ["-c", "true"]).error !== undefined;
  await tap.test(`${shell} can read it`, { skip: isMissing && `${shell} is not installed` }, (t) => {
    const path = scriptFile(t, `ksvm.${shell}`, script);
    const { status, stderr } = spawnSync(shell, [shell === "zsh" ? "-n" : "--no-execute", path], { encoding: "utf8" });
    t.match({ status, stderr }, { status: 0, stderr: "" });
    t.end();
  });
}
