import { readdirSync, readFileSync } from "node:fs";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import tap from "tap";
import { COMMANDS } from "../../src/cli/commands/all-commands.ts";
import { EXIT } from "../../src/cli/render/exit-codes.ts";
import { type FlagTable, meaningOf, synopsisOf } from "../../src/cli/flags/flag.ts";
import { GLOBAL_FLAGS } from "../../src/cli/flags/global-flags.ts";
import { runProgram } from "../../src/cli/program.ts";
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

/** The words before the arguments: "certs ensure" of "ksvm certs ensure", "plan" of "ksvm plan [NAME…]". */
function pathOf(heading: string): string {
  return heading
    .split(" ")
    .slice(1)
    .join(" ")
    .replace(/ ?[-[<A-Z].*$/, "");
}

/** The first table in a part of a document. */
function tableIn(markdown: string): string {
  return /^\|.*(?:\n\|.*)*/m.exec(markdown)?.[0] ?? "";
}

/** The table of a command's flags as docs/cli.md has it. */
function flagTableOf(flags: FlagTable): string {
  const rows = Object.entries(flags).map(([name, flag]) => {
    const standard = flag.fallbackText === undefined ? "" : `\`${flag.fallbackText}\` `;
    return `| \`${synopsisOf(name, flag)}\` | ${standard}| ${meaningOf(flag)} |`;
  });
  return ["| flag | default | meaning |", "| --- | --- | --- |", ...rows].join("\n");
}

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

await tap.test("docs/cli.md lists exactly the commands that there are", async (t) => {
  const headings = [...sections(read("docs/cli.md")).keys()].filter((heading) => heading.startsWith("ksvm "));
  t.same(
    headings.map(pathOf),
    COMMANDS.map(({ path }) => path),
  );
});

await tap.test(
  "docs/cli.md has the flags of every command with the default and the meaning of its table",
  async (t) => {
    const documented = [...sections(read("docs/cli.md"))];
    const tables = new Map(
      documented.map(([heading, part]) => [heading.startsWith("ksvm ") ? pathOf(heading) : heading, tableIn(part)]),
    );
    const help = "| `-h, --help` | | display help for command |";
    t.equal(tables.get(""), `${flagTableOf(GLOBAL_FLAGS)}\n${help}`);
    for (const { path, flags } of COMMANDS) {
      const own = Object.entries(flags).filter(([name]) => !Object.hasOwn(GLOBAL_FLAGS, name));
      t.equal(tables.get(path), own.length === 0 ? "" : flagTableOf(Object.fromEntries(own)), path);
    }
  },
);

async function helpOf(path: string): Promise<string> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const printed = text(stdout);
  const words = path.split(" ").filter((word) => word !== "");
  await runProgram([...words, "--help"], { stdout, stderr, signal: new AbortController().signal });
  stdout.end();
  // A long line is broken at its spaces.
  return (await printed).replaceAll(/\s+/g, " ");
}

await tap.test("--help shows every command and every flag, with its default", async (t) => {
  const programHelp = await helpOf("");
  t.match(programHelp, firstCells(sections(read("docs/cli.md")).get("ksvm") ?? "")[0]);
  for (const { path, description, operands, flags } of COMMANDS) {
    const help = await helpOf(path);
    t.ok(help.includes(description), path);
    t.ok(help.includes(operands.help ?? ""), path);
    for (const [name, flag] of Object.entries(flags)) {
      const standard = flag.fallbackText === undefined ? "" : ` (default: ${flag.fallbackText})`;
      t.ok(help.includes(`${synopsisOf(name, flag)} ${meaningOf(flag)}${standard}`), `${path} --${name}`);
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
