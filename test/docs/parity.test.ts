import { readdirSync, readFileSync } from "node:fs";
import type { Command } from "commander";
import tap from "tap";
import { buildProgram } from "../../src/cli/program.ts";
import { EXIT } from "../../src/cli/exit-codes.ts";
import { ERROR_CODES } from "../../src/errors.ts";
import { STATUS_TEXTS } from "../../src/webhook/http-statuses.ts";

const root = new URL("../../", import.meta.url);

function read(path: string): string {
  return readFileSync(new URL(path, root), "utf8");
}

/** The first cells of the tables in a part of a document, without their backticks. */
function firstCells(markdown: string): readonly string[] {
  return [...markdown.matchAll(/^\| `([^`]+)` \|/gm)].map(([, cell]) => cell ?? "");
}

/** The parts of docs/cli.md by their headings, the part before the first heading under "". */
function sections(markdown: string): ReadonlyMap<string, string> {
  const parts = markdown.split(/^## /m);
  return new Map(parts.map((part, index) => (index === 0 ? ["", part] : [part.split("\n")[0] ?? "", part])));
}

/** The commands that do something, each with its path, such as "certs ensure". */
function leavesOf(command: Command, path: readonly string[] = []): readonly (readonly [path: string, Command])[] {
  return command.commands.flatMap((child) => {
    const childPath = [...path, child.name()];
    return child.commands.length === 0 ? [[childPath.join(" "), child] as const] : leavesOf(child, childPath);
  });
}

/** The words before the arguments: "certs ensure" of "ksvm certs ensure", "plan" of "ksvm plan [NAME…]". */
function pathOf(heading: string): string {
  return heading
    .split(" ")
    .slice(1)
    .join(" ")
    .replace(/ ?[-[<A-Z].*$/, "");
}

function flagsOf(command: Command): readonly string[] {
  return command.options.map(({ flags }) => flags);
}

const io = { stdout: process.stdout, stderr: process.stderr, signal: new AbortController().signal };
const program = buildProgram(io, () => undefined);

await tap.test("docs/errors.md lists exactly the error codes that there are", async (t) => {
  const table = read("docs/errors.md").split("## How failed requests")[0] ?? "";
  t.same(firstCells(table), [...ERROR_CODES]);
});

await tap.test("every error code is raised somewhere", async (t) => {
  const files = readdirSync(new URL("src/", root), { recursive: true, encoding: "utf8" });
  const source = files
    .filter((file) => file.endsWith(".ts") && file !== "errors.ts")
    .map((file) => read(`src/${file}`))
    .join("\n");
  for (const code of ERROR_CODES) {
    t.ok(source.includes(`"${code}"`), code);
  }
});

await tap.test("docs/cli.md lists exactly the commands and flags that there are", async (t) => {
  const documented = sections(read("docs/cli.md"));
  const common = firstCells(documented.get("") ?? "").filter((flag) => flag.startsWith("-"));
  t.same(firstCells(documented.get("ksvm") ?? ""), flagsOf(program));
  const headings = [...documented.keys()].filter((heading) => heading.startsWith("ksvm "));
  t.same(
    headings.map(pathOf),
    leavesOf(program).map(([path]) => path),
  );
  for (const [index, [, command]] of leavesOf(program).entries()) {
    const own = firstCells(documented.get(headings[index] ?? "") ?? "");
    t.same([...common.filter((flag) => flag !== "-h, --help"), ...own].toSorted(), flagsOf(command).toSorted());
  }
});

await tap.test("docs/cli.md names the default of every flag that has one", async (t) => {
  const text = read("docs/cli.md");
  for (const option of leavesOf(program).flatMap(([, command]) => command.options)) {
    const shown = option.defaultValueDescription ?? option.defaultValue;
    if (shown !== undefined) {
      t.ok(text.includes(`| \`${option.flags}\` | \`${String(shown)}\` |`), option.flags);
    }
  }
});

await tap.test("docs/cli.md lists exactly the exit codes that there are", async (t) => {
  const table = sections(read("docs/cli.md")).get("Exit codes") ?? "";
  const documented = [...table.matchAll(/^\| (\d+) \|/gm)].map(([, code]) => Number(code));
  t.same(documented, Object.values(EXIT));
});

await tap.test("the README has exactly two set-up commands, and they are targets of the Makefile", async (t) => {
  const tryIt = (read("README.md").split("## Try it")[1] ?? "").split("\n## ")[0] ?? "";
  const commands = [...tryIt.matchAll(/^(make [a-z-]+)/gm)].map(([, command]) => command);
  t.same(commands, ["make demo", "make test"]);
  t.match(read("Makefile"), /^demo:.*\n(.*\n)*test:/m);
});

await tap.test("docs/webhook.md lists exactly the HTTP statuses that there are", async (t) => {
  const [, table = ""] = read("docs/webhook.md").split("## HTTP statuses");
  const documented = [...(table.split("\n## ")[0] ?? "").matchAll(/^\| (\d{3}) \|/gm)].map(([, status]) =>
    Number(status),
  );
  // 200 is a verdict or a review over the limit, 503 an answer of /readyz.
  t.same(documented, [200, ...Object.keys(STATUS_TEXTS).map(Number), 503]);
});
