import { InvalidArgumentError } from "commander";
import * as fc from "fast-check";
import tap from "tap";

import {
  durationFrom,
  parseDuration,
  parseEndpoints,
  parseGroups,
  parseQps,
  parseWebhookUrl,
  wholeNumber,
} from "../../src/cli/parse-options.ts";

const durations: readonly [text: string, ms: number][] = [
  ["0", 0],
  ["0s", 0],
  ["65s", 65_000],
  ["1m30s", 90_000],
  ["500ms", 500],
  ["1.5h", 5_400_000],
  ["1h1m1s1ms", 3_661_001],
  ["5m", 300_000],
];

for (const [text, ms] of durations) {
  await tap.test(`parseDuration("${text}") is ${ms}`, (t) => {
    t.equal(parseDuration(text), ms);
    t.end();
  });
}

await tap.test("durationFrom() takes durations of a range, and no others", async (t) => {
  const parse = durationFrom(1_000, 299_000);
  t.equal(parse("4m"), 240_000);
  t.equal(parse("1s"), 1_000);
  for (const text of ["0", "999ms", "5m", "720h", "soon"]) {
    t.throws(() => parse(text), InvalidArgumentError, text);
  }
});

await tap.test("parseDuration() reads what is written from whole parts", (t) => {
  fc.assert(
    fc.property(fc.nat(99), fc.nat(99), fc.nat(99), fc.nat(9_999), (h, m, s, ms) => {
      return parseDuration(`${h}h${m}m${s}s${ms}ms`) === ((h * 60 + m) * 60 + s) * 1_000 + ms;
    }),
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
      t.throws(() => parse(text), InvalidArgumentError);
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
