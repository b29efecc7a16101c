import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import tap from "tap";
import { COMMANDS } from "../../src/cli/commands/all-commands.ts";
import { GLOBAL_FLAGS } from "../../src/cli/flags/global-flags.ts";
import { ERROR_CODES } from "../../src/errors.ts";
import { Metrics } from "../../src/observability/metrics.ts";

const root = new URL("../../", import.meta.url);

function read(path: string): string {
  return readFileSync(new URL(path, root), "utf8");
}

/** The first cells of the tables in a part of a document, without their backticks. */
function firstCells(markdown: string): readonly string[] {
  return [...markdown.matchAll(/^\| `([^`]+)` \|/gm)].map(([, cell]) => cell ?? "");
}

/** The words of a command line or a heading that name the command: "certs ensure" of "ksvm certs ensure --now". */
function commandIn(line: string): string {
  const words = line.split(" ").slice(1);
  const paths = COMMANDS.map(({ path }) => path).filter(
    (path) => words.slice(0, path.split(" ").length).join(" ") === path,
  );
  return paths.toSorted((a, b) => b.length - a.length)[0] ?? "";
}

/** The flags in the first cells of the tables in a part of a document. */
function flagsIn(markdown: string): ReadonlySet<string> {
  return new Set([...markdown.matchAll(/^\| `.*?--([a-z0-9-]+)/gm)].map(([, name]) => name ?? ""));
}

await tap.test("docs/errors.md lists exactly the error codes that there are", async (t) => {
  const table = read("docs/errors.md").split("## How failed requests")[0] ?? "";
  t.same(new Set(firstCells(table)), new Set(ERROR_CODES));
});

await tap.test("docs/metrics.md lists exactly the metrics that there are", async (t) => {
  const documented = firstCells(read("docs/metrics.md")).filter((cell) => cell.startsWith("ksvm_"));
  const metrics = new Metrics().registry.getMetricsAsArray().map(({ name }) => name);
  t.same(new Set(documented), new Set(metrics));
});

await tap.test("docs/cli.md lists exactly the commands and the flags that there are", async (t) => {
  const [general = "", ...sections] = read("docs/cli.md").split(/^## /m);
  const ofSeveral = flagsIn(sections.find((part) => part.startsWith("Flags of several commands")) ?? "");
  const ofAll = new Set([...Object.keys(GLOBAL_FLAGS), "help"]);
  t.same(flagsIn(general), ofAll);
  const taken = new Set(COMMANDS.flatMap(({ flags }) => Object.keys(flags)));
  for (const flag of ofSeveral) t.ok(taken.has(flag), `--${flag}`);
  const ofCommands = sections.filter((part) => part.startsWith("ksvm "));
  t.same(
    ofCommands.map((part) => commandIn(part.split("\n")[0] ?? "")),
    COMMANDS.map(({ path }) => path),
  );
  for (const part of ofCommands) {
    const path = commandIn(part.split("\n")[0] ?? "");
    const flags = new Set(Object.keys(COMMANDS.find((command) => command.path === path)?.flags ?? {}));
    const own = flagsIn(part);
    for (const flag of own) t.ok(flags.has(flag), `ksvm ${path} --${flag}`);
    for (const flag of flags) t.ok(own.has(flag) || ofSeveral.has(flag) || ofAll.has(flag), `ksvm ${path} --${flag}`);
  }
});

await tap.test("the documentation shows only commands and flags that there are", async (t) => {
  for (const file of ["README.md", ...globSync("docs/**/*.md", { cwd: fileURLToPath(root) })]) {
    const blocks = [...read(file).matchAll(/^ *```(?:sh|console)\n([^]*?)```/gm)].map(([, block]) => block ?? "");
    for (const [line] of blocks.join("\n").matchAll(/(?<=^\s*(?:\$ )?|\| )(?:kubectl )?ksvm .*/gm)) {
      const words = (line.replace(/^kubectl /, "").split(/ [#|>&;]/)[0] ?? "").trim();
      const command = COMMANDS.find(({ path }) => path === commandIn(words));
      t.ok(command, `${file}: ${line}`);
      for (const [, flag = ""] of words.matchAll(/ --([a-z0-9-]+)/g)) {
        t.ok(flag === "help" || command?.flags[flag] || Object.hasOwn(GLOBAL_FLAGS, flag), `${file}: ${line}`);
      }
    }
  }
});
