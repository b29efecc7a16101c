import { PassThrough } from "node:stream";
import * as fc from "fast-check";
import tap from "tap";
import { COMMANDS } from "../../src/cli/commands/all-commands.ts";
import {
  parseAddresses,
  parseEndpoints,
  parseGroups,
  parseNames,
  parseWebhookUrl,
} from "../../src/cli/flags/address-parsers.ts";
import { type FlagTable, type FlagsOf, InvalidValue, readFlags } from "../../src/cli/flags/flag.ts";
import { choice, duration, optional, repeated, toggle, value } from "../../src/cli/flags/kinds.ts";
import { oneName } from "../../src/cli/flags/operands.ts";
import {
  anyText,
  durationText,
  oneOf,
  parseBoolean,
  parseDuration,
  parseDurationFrom,
  parseQps,
  parseShare,
  wholeNumber,
} from "../../src/cli/flags/parsers.ts";
import { EXIT } from "../../src/cli/render/exit-codes.ts";
import { defineCommand } from "../../src/cli/shared/command.ts";
import { TEST_SEED } from "../seed.ts";

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

const durations: readonly [text: string, ms: number][] = [
  ["0", 0],
  ["0s", 0],
  ["65s", 65_000],
  ["1m30s", 90_000],
  ["500ms", 500],
  ["1.5h", 5_400_000],
  ["1h1m1s1ms", 3_661_001],
  ["5m", 300_000],
  ["1.1h", 3_960_000],
  ["0.0001s", 1],
];

for (const [text, ms] of durations) {
  await tap.test(`parseDuration("${text}") is ${ms}`, (t) => {
    t.equal(parseDuration(text), ms);
    t.end();
  });
}

await tap.test("parseDurationFrom() takes durations of a range, and no others", async (t) => {
  const parse = parseDurationFrom(1_000, 299_000);
  t.equal(parse("4m"), 240_000);
  t.equal(parse("1s"), 1_000);
  for (const text of ["0", "999ms", "5m", "720h", "soon"]) {
    t.throws(() => parse(text), InvalidValue, text);
  }
});

await tap.test("parseDuration() reads what is written from whole parts", (t) => {
  fc.assert(
    fc.property(fc.nat(99), fc.nat(99), fc.nat(99), fc.nat(9_999), (h, m, s, ms) => {
      return parseDuration(`${h}h${m}m${s}s${ms}ms`) === ((h * 60 + m) * 60 + s) * 1_000 + ms;
    }),
    { seed: TEST_SEED },
  );
  t.end();
});

type Parser = (text: string) => unknown;

const invalid: readonly [name: string, parse: Parser, texts: readonly string[]][] = [
  [
    "parseDuration",
    parseDuration,
    ["", "65", "s", "-1s", "1s1m", "1 s", "1d", "1.s", ".5s", "1e3s", "65S", "1s\n", "∞"],
  ],
  [
    "wholeNumber(1, 10)",
    wholeNumber(1, 10),
    ["", "0", "11", "-1", "1.5", "1e1", "a", " 1", "0x1", "99999999999999999999"],
  ],
  ["parseQps", parseQps, ["", "-1", "a", "1e3", "Infinity", "NaN", ".5", "1."]],
  [
    "parseEndpoints",
    parseEndpoints,
    [
      "",
      ",",
      "https://a,",
      "http://a",
      "10.0.0.1:6443",
      "https://",
      "ftp://a",
      "https://a b",
      "https://a/?b",
      "https://u:p@a",
      "https://a:6443,https://b:6443,https://A:6443/",
    ],
  ],
  ["parseGroups", parseGroups, ["", "apps,", "Apps", "a b", "example.com/v1"]],
  [
    "parseWebhookUrl",
    parseWebhookUrl,
    ["", "http://a/validate", "a:9443/validate", "https://a/?x=1", "https://a/#x", "https://u:p@a/"],
  ],
];

for (const [name, parse, texts] of invalid) {
  for (const text of texts) {
    await tap.test(`${name} refuses ${JSON.stringify(text)}`, (t) => {
      t.throws(() => parse(text), InvalidValue);
      t.end();
    });
  }
}

await tap.test("wholeNumber() takes the ends of its range", (t) => {
  t.equal(wholeNumber(1, 10)("1"), 1);
  t.equal(wholeNumber(1, 10)("10"), 10);
  t.end();
});

await tap.test("parseQps() takes 0 for no limit", (t) => {
  t.equal(parseQps("0"), Number.POSITIVE_INFINITY);
  t.equal(parseQps("0.0"), Number.POSITIVE_INFINITY);
  t.equal(parseQps("0.5"), 0.5);
  t.equal(parseQps("100"), 100);
  t.end();
});

await tap.test("parseEndpoints() keeps the path of each URL, without a slash at its end", (t) => {
  t.same(parseEndpoints("https://10.0.0.1:6443, https://[::1]:6443/,https://a/k8s/clusters/c-1/"), [
    "https://10.0.0.1:6443",
    "https://[::1]:6443",
    "https://a/k8s/clusters/c-1",
  ]);
  t.end();
});

await tap.test("parseGroups() takes the core group by its name in words", (t) => {
  t.same(parseGroups("core, apps,events.k8s.io"), ["", "apps", "events.k8s.io"]);
  t.end();
});

await tap.test("parseWebhookUrl() keeps the path", (t) => {
  t.equal(parseWebhookUrl("https://192.0.2.1:9443/validate"), "https://192.0.2.1:9443/validate");
  t.end();
});

await tap.test("parseShare() reads decimals and fractions between 0 and 1", (t) => {
  t.equal(parseShare("1/3"), 1 / 3);
  t.equal(parseShare("0.25"), 0.25);
  for (const text of ["", "0", "1", "1.5", "-0.1", "3/2", "1/0", "0/3", "a", ".5", "1/3/5", "33%"]) {
    t.throws(() => parseShare(text), InvalidValue, text);
  }
  t.end();
});

await tap.test("parseAddresses() reads HOST:PORT, IPv6 in brackets", (t) => {
  t.same(parseAddresses("10.0.0.1:8443, [fd00::1]:443,pod.example:1"), [
    { host: "10.0.0.1", port: 8443 },
    { host: "fd00::1", port: 443 },
    { host: "pod.example", port: 1 },
  ]);
  for (const text of ["", "10.0.0.1", ":8443", "10.0.0.1:0", "10.0.0.1:65536", "fd00::1:443", "a:1,", "https://a:1"]) {
    t.throws(() => parseAddresses(text), InvalidValue, text);
  }
  t.end();
});

await tap.test("parseNames() reads names and addresses from a comma-separated list", (t) => {
  t.same(parseNames("a.example.com, 192.0.2.1,fd00::1"), ["a.example.com", "192.0.2.1", "fd00::1"]);
  for (const text of ["", "a,,b", "a b", 'a"b']) {
    t.throws(() => parseNames(text), InvalidValue, text);
  }
  t.end();
});

await tap.test("durationText() writes what parseDuration() reads", (t) => {
  t.equal(durationText(31_536_000_000), "8760h");
  t.equal(durationText(300_000), "5m");
  t.equal(durationText(65_000), "65s");
  t.equal(durationText(0), "0s");
  t.equal(durationText(1_500), "1500ms");
  fc.assert(
    fc.property(fc.nat(10 ** 12), (ms) => parseDuration(durationText(ms)) === ms),
    { seed: TEST_SEED },
  );
  t.end();
});

await tap.test("oneOf() and parseBoolean() read the words that there are, and no others", (t) => {
  t.equal(oneOf(["auto", "strict"])("strict"), "strict");
  t.same(["true", "false"].map(parseBoolean), [true, false]);
  for (const text of ["", "Strict", "constructor"]) {
    t.throws(() => oneOf(["auto", "strict"])(text), { message: "expected one of: auto, strict" }, text);
    t.throws(() => parseBoolean(text), InvalidValue, text);
  }
  t.end();
});
