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
  const { status, stderr, stdout } = spawnSync("bash", ["--norc", "-uc", program], { encoding: "utf8" });
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

const noFish = spawnSync("fish", ["-c", "true"]).error !== undefined && "fish is not installed";

await tap.test("fish completes commands, flags and values", { skip: noFish }, (t) => {
  const script = scriptFile(t, "ksvm.fish", fishCompletion(COMPLETIONS));
  for (const [line, offers] of [
    ["ksvm migr", ["migrate"]],
    ["ksvm certs ", ["ensure", "rotate", "status"]],
    ["ksvm plan -o ", ["json", "name", "table", "wide", "yaml"]],
    ["ksvm migrate --max-i", ["--max-idle", "--max-in-flight"]],
    ["ksvm status --wa", ["--watch"]],
    ["ksvm certs status --wa", [""]],
  ] as const) {
    const program = `source ${script}; complete -C '${line}'`;
    const { stderr, stdout } = spawnSync("fish", ["--no-config", "-c", program], { encoding: "utf8" });
    const offered = stdout.trimEnd().split("\n");
    t.same(new Set(offered.map((offer) => offer.split("\t")[0])), new Set(offers), `${line}${stderr}`);
  }
  t.end();
});

/** In a terminal of its own: has zsh read the script and complete a line, and waits until it shows what is expected. */
const ZSH_TERMINAL = `
zmodload zsh/zpty
zpty z "TERM=dumb zsh -f -i"
zpty -w z "autoload -Uz compinit; compinit -u -D; source $1; echo rea''dy"
zpty -r z shown '*ready*'
zpty -w -n z "$2"$'\t'
zpty -r z shown "*$3*"
zpty -d z`;
const noZsh = spawnSync("zsh", ["-c", "true"]).error !== undefined && "zsh is not installed";

await tap.test("zsh completes commands, flags and values", { skip: noZsh }, (t) => {
  const script = scriptFile(t, "ksvm.zsh", zshCompletion(COMPLETIONS));
  for (const [line, shown] of [
    ["ksvm migr", "ksvm migrate "],
    ["ksvm certs ro", "ksvm certs rotate "],
    ["ksvm plan -o js", "ksvm plan -o json "],
    ["ksvm migrate --max-i", "--max-idle *--max-in-flight "],
  ] as const) {
    const args = ["-f", "-c", ZSH_TERMINAL, "zsh", script, line, shown];
    const { signal, status, stderr } = spawnSync("zsh", args, { encoding: "utf8", timeout: 15_000 });
    t.match({ signal, status }, { signal: null, status: 0 }, `${line}${stderr}`);
  }
  t.end();
});
