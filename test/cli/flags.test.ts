import { PassThrough } from "node:stream";
import tap from "tap";

import { defineCommand } from "../../src/cli/shared/command.ts";
import { COMMANDS } from "../../src/cli/commands/all-commands.ts";
import { EXIT } from "../../src/cli/render/exit-codes.ts";
import { type Flag, type FlagsOf, type FlagTable, readFlags } from "../../src/cli/flags/flag.ts";
import { choice, duration, optional, repeated, toggle, value } from "../../src/cli/flags/kinds.ts";
import { oneName } from "../../src/cli/flags/operands.ts";
import { anyText, wholeNumber } from "../../src/cli/flags/parsers.ts";

const FLAGS = {
  settle: duration({ default: 65_000, help: "a" }),
  "page-size": value(wholeNumber(1, 10), { placeholder: "n", default: 5, help: "b" }),
  guard: choice(["auto", "policy"], { placeholder: "guard", default: "auto", help: "c" }),
  "dry-run": toggle({ help: "d" }),
  "ca-file": optional(anyText, { placeholder: "path", help: "e" }),
  ignore: repeated(wholeNumber(0, 9), { placeholder: "n", help: "f" }),
} satisfies FlagTable;

await tap.test("readFlags() gives every flag its default, and leaves out those that have none", (t) => {
  const flags: FlagsOf<typeof FLAGS> = readFlags(FLAGS, {});
  t.strictSame(flags, { settleMs: 65_000, pageSize: 5, guard: "auto", dryRun: false });
  t.end();
});

await tap.test("readFlags() names a value after its flag, and after its unit", (t) => {
  const given = {
    settle: "1m",
    "page-size": "7",
    guard: "policy",
    "dry-run": true,
    "ca-file": "/a",
    ignore: ["1", "2"],
  };
  const flags = readFlags(FLAGS, given);
  // The types say the same: this compiles without a cast.
  const typed: {
    readonly settleMs: number;
    readonly pageSize: number;
    readonly guard: "auto" | "policy";
    readonly dryRun: boolean;
    readonly caFile?: string;
    readonly ignore?: readonly number[];
  } = flags;
  t.strictSame(typed, {
    settleMs: 60_000,
    pageSize: 7,
    guard: "policy",
    dryRun: true,
    caFile: "/a",
    ignore: [1, 2],
  });
  t.end();
});

const refused: readonly (readonly [name: string, given: Readonly<Record<string, unknown>>, message: string])[] = [
  ["a flag that is not in the table", { nope: "1" }, "Cannot use --nope: this command has no such flag"],
  ["a flag named like a method", { constructor: "1" }, "Cannot use --constructor: this command has no such flag"],
  ["a value that its parser refuses", { "page-size": "11" }, 'Cannot use --page-size "11": expected a whole number'],
  ["a number where text is read", { "ca-file": 1 }, "Cannot use --ca-file that way: expected one value"],
  ["a value of a switch", { "dry-run": "yes" }, 'Cannot use --dry-run "yes": expected no value'],
  ["one of several values", { ignore: ["1", "10"] }, "Cannot use --ignore that way: expected a whole number"],
  ["a single value where there may be several", { ignore: "1" }, 'Cannot use --ignore "1": expected a list'],
];

for (const [name, given, message] of refused) {
  await tap.test(`readFlags() refuses ${name}`, (t) => {
    t.throws(() => readFlags(FLAGS, given), { code: "Usage", message: new RegExp(`^${message}`) });
    t.end();
  });
}

await tap.test("readFlags() refuses a table whose default is missing", (t) => {
  // No table has such a flag: what makes them does not leave the default out of the values.
  const broken: Flag<number, ""> = { ...FLAGS["page-size"], read: () => undefined as unknown as number };
  t.throws(() => readFlags({ broken }, { broken: "1" }), { code: "Internal" });
  t.end();
});

for (const { path, flags } of COMMANDS) {
  await tap.test(`ksvm ${path} reads the defaults that --help shows as the defaults that it uses`, (t) => {
    for (const [name, flag] of Object.entries(flags)) {
      if (flag.fallbackText !== undefined) {
        t.strictSame(flag.read(flag.fallbackText), flag.fallback, `--${name} ${flag.fallbackText}`);
      }
    }
    t.end();
  });
}

await tap.test("a command reads its flags and its operands before it is run", async (t) => {
  const io = { stdout: new PassThrough(), stderr: new PassThrough(), signal: new AbortController().signal };
  const calls: unknown[] = [];
  const command = defineCommand({
    path: "try",
    description: "",
    examples: [],
    operands: oneName("a name"),
    flags: FLAGS,
    run: async (_io, flags, name) => {
      calls.push([name, flags.settleMs, flags.logLevel]);
      return EXIT.done;
    },
  });
  const onRead = ({ logLevel }: { readonly logLevel: string }): void => void calls.push(logLevel);
  const given = { flags: { settle: "1s", "log-level": "info", kubeconfig: undefined }, operands: ["a"] };
  t.equal(await command.run(io, given, onRead), EXIT.done);
  t.strictSame(calls, ["info", ["a", 1_000, "info"]]);
  await t.rejects(command.run(io, { flags: { settle: "1" }, operands: ["a"] }, onRead), { code: "Usage" });
  await t.rejects(command.run(io, { flags: { "log-level": "loud" }, operands: ["a"] }, onRead), { code: "Usage" });
  await t.rejects(command.run(io, { flags: {}, operands: [] }, onRead), { code: "Usage" });
  t.equal(calls.length, 2, "nothing was run");
});
