import { isDeepStrictEqual } from "node:util";
import * as fc from "fast-check";
import tap, { type Test } from "tap";
import { ItemSplitter, type SplitLimits, UnsplittableList } from "../../../src/old/json/item-splitter.ts";
import { OverBudget, type Projection, projectJson, prune } from "../../../src/old/json/json-projection.ts";
import { MAX_DEPTH } from "../../../src/old/json/json-scan.ts";
import { TEST_SEED } from "../../seed.ts";

const LIMITS: SplitLimits = { itemBytes: 10_000, restBytes: 10_000 };

interface Split {
  readonly items: readonly unknown[];
  readonly rest: unknown;
}

/** Splits a text that arrives in chunks of the given sizes, again and again. */
function split(text: string, sizes: readonly number[], limits = LIMITS): Split {
  const items: unknown[] = [];
  const splitter = new ItemSplitter((bytes) => items.push(JSON.parse(bytes.toString())), limits);
  const bytes = Buffer.from(text);
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const size = sizes[turn % sizes.length] ?? 1;
    splitter.push(bytes.subarray(at, at + size));
    at += size;
  }
  return { items, rest: JSON.parse(splitter.end()) };
}

const OBJECT = { metadata: { name: 'a"{[\\', list: [{ items: [1] }, "]}"], deep: { items: [] } }, text: "ü€😀" };

await tap.test("ItemSplitter gives each item and what is around them, however the text is cut", (t) => {
  const list = { kind: "L", metadata: { continue: "x", items: [1] }, items: [OBJECT, {}, OBJECT], after: [1] };
  for (const indent of [undefined, 2]) {
    const text = `${JSON.stringify(list, undefined, indent)}\n`;
    for (const size of [1, 2, 3, 7, 64, 100_000]) {
      t.same(split(text, [size]), { items: list.items, rest: { ...list, items: [] } }, `${size} bytes at a time`);
    }
  }
  t.end();
});

await tap.test("ItemSplitter takes lists without items", (t) => {
  for (const text of ["{}", '{"items":[]}', '{"items":null}', '{"items" : [ ] }', '{"x":"\\"items\\":["}']) {
    t.same(split(text, [1]), { items: [], rest: JSON.parse(text) }, text);
  }
  t.end();
});

await tap.test("ItemSplitter splits any list as JSON.parse does", (t) => {
  const item = fc.dictionary(fc.string({ unit: "binary" }), fc.jsonValue());
  const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 });
  const unlimited = { itemBytes: 1e9, restBytes: 1e9 };
  fc.assert(
    fc.property(fc.array(item), fc.jsonValue(), sizes, (items, metadata, cuts) => {
      const text = JSON.stringify({ metadata, items });
      const parsed = JSON.parse(text) as { items: unknown[]; metadata: unknown };
      t.strictSame(split(text, cuts, unlimited), { items: parsed.items, rest: { ...parsed, items: [] } });
    }),
    { seed: TEST_SEED },
  );
  t.end();
});

await tap.test("ItemSplitter throws when the list broke off", (t) => {
  const text = JSON.stringify({ metadata: {}, items: [OBJECT] });
  for (let length = 1; length < text.length; length++) {
    t.throws(() => split(text.slice(0, length), [5]));
  }
  t.end();
});

await tap.test("ItemSplitter keeps to its limits", (t) => {
  const large = { name: "x".repeat(10_000) };
  t.throws(() => split(JSON.stringify({ items: [large] }), [100]), UnsplittableList);
  t.throws(() => split(JSON.stringify({ ...large, items: [] }), [100]), UnsplittableList);
  const many = { items: Array.from({ length: 100 }, () => ({ name: "x".repeat(1_000) })) };
  t.equal(split(JSON.stringify(many), [100]).items.length, 100, "of each item, not of all together");
  t.end();
});

const PROJECTION: Projection = {
  fields: {
    a: "all",
    b: { fields: { a: "all", c: { items: { fields: { a: "all" } } } } },
    c: { items: { items: "all" } },
    d: "scalar",
  },
};

/** What JSON.parse makes of it; `undefined` where it refuses. */
function parse(bytes: Buffer): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(bytes.toString()) };
  } catch {
    return undefined;
  }
}

function isSame(bytes: Buffer): boolean {
  const parsed = parse(bytes);
  const expected = parsed === undefined ? undefined : { value: prune(parsed.value, PROJECTION) };
  return isDeepStrictEqual(projectJson(bytes, PROJECTION), expected);
}

function assertSame(t: Test, bytes: Buffer): void {
  t.ok(isSame(bytes));
}

/** Each as JSON.parse takes it, or refuses it. */
const TEXTS = [
  "",
  " ",
  "{",
  "}",
  "[",
  "]",
  "{}",
  "[]",
  " { } ",
  "null",
  "nul",
  "true",
  "truE",
  "tru",
  "false",
  "falsey",
  '"a"',
  '"',
  "0",
  "-0",
  "00",
  "01",
  "-",
  "1.",
  ".1",
  "1.5",
  "1e5",
  "1E+5",
  "1e-5",
  "1e",
  "1e+",
  "+1",
  "1.2.3",
  "0x1",
  "NaN",
  "1 2",
  '{"a":1}',
  '{"a":1,}',
  '{,"a":1}',
  '{"a":1 "b":2}',
  '{"a"}',
  '{"a":}',
  "{a:1}",
  "{'a':1}",
  '{"a":1}}',
  '{"a":1]',
  '{"a" 1}',
  "[1,2]",
  "[1,]",
  "[,1]",
  "[1 2]",
  "[1}",
  "[[1],[2]]",
  '{"c":[[1],[2,{"a":1}],3,null]}',
  '{"c":[]}',
  '{"b":{}}',
  '{"c":[1,]}',
  '{"a":1,"a":2}',
  '{"b":{"a":1},"b":{}}',
  '{"b":{"a":1},"b":null}',
  '{"\\u0061":1}',
  '{"\\u0062":{"\\u0061":[1]}}',
  '{"x":1,"\\u00":1}',
  '{"__proto__":1,"a":{"__proto__":{"x":1}}}',
  '{"constructor":1,"toString":2,"b":{"hasOwnProperty":3,"a":4}}',
  '{"":1}',
  '"\\n\\t\\"\\\\\\/\\b\\f\\r\\u0041"',
  '"\\x"',
  '"\\u12"',
  '"\\u12g4"',
  '"\\uD800"',
  '"\\',
  '"a\\"',
  '"\n"',
  '"\t"',
  '"\u007f"',
  '"\u2028é€😀"',
  "\uFEFF{}",
  "{}\0",
  "{}\uFEFF",
  "\u00a0{}",
  "// a\n{}",
  "{}{}",
  '{"a":{"b":[{"c":[{}]}]}}',
  '{"b":{"c":[{"a":1,"b":2},[],{}]}}',
  '\t\r\n { "a" \t:\r [ 1 , 2 ] , "z" : { "y" : [ ] } } \n',
];

await tap.test("projectJson() reads each text as JSON.parse does", (t) => {
  t.same(
    TEXTS.filter((text) => !isSame(Buffer.from(text))),
    [],
  );
  t.end();
});

await tap.test("projectJson() reads broken UTF-8 as JSON.parse does", (t) => {
  for (const bytes of [[0xff], [0xc3], [0xe2, 0x82], [0xed, 0xa0, 0x80], [0xf0, 0x9f, 0x98], [0x80]]) {
    assertSame(t, Buffer.concat([Buffer.from('{"a":"x'), Buffer.from(bytes), Buffer.from('"}')]));
    assertSame(t, Buffer.concat([Buffer.from('{"a'), Buffer.from(bytes), Buffer.from('":1,"b":{"a":2}}')]));
    assertSame(t, Buffer.concat([Buffer.from("{"), Buffer.from(bytes), Buffer.from("}")]));
  }
  t.end();
});

await tap.test("projectJson() leaves to JSON.parse what is nested deeper than it follows", (t) => {
  assertSame(t, nested(MAX_DEPTH - 1));
  t.equal(projectJson(nested(2 * MAX_DEPTH), PROJECTION), undefined);
  t.equal(projectJson(nested(1_000_000), PROJECTION), undefined, "and does not run out of stack");
  t.end();
});

await tap.test("projectJson() builds no more than its budget, whatever is nested in what", (t) => {
  const budget = { maxValues: 7, maxBytes: 20 };
  const read = (text: string): unknown => projectJson(Buffer.from(text), PROJECTION, budget)?.value;
  t.same(read('{"a":1,"c":[[2],[3]]}'), { a: 1, c: [[2], [3]] }, "four containers, and three scalars of three bytes");
  t.same(read(`{"a":"${"x".repeat(18)}"}`), { a: "x".repeat(18) });
  t.same(read(`{"z":[${"{},".repeat(1_000)}0]}`), {}, "what is not kept costs nothing");
  t.same(read(`{"d":[${"[],".repeat(1_000)}0]}`), { d: [] }, "nothing is built of an array where a scalar is kept");
  t.throws(() => read(`{"a":"${"x".repeat(19)}"}`), OverBudget);
  t.throws(() => read('{"c":[[1],[2],[3],[4]]}'), OverBudget);
  t.throws(() => read(`{${'"d":1,'.repeat(7)}"x":1}`), OverBudget, "a field that another one replaces counts");
  t.throws(() => read(`{${'"\\u0078":1,'.repeat(7)}"x":1}`), OverBudget, "and so does a key that had to be built");
  t.end();
});

function nested(depth: number): Buffer {
  return Buffer.from(`{"a":${"[".repeat(depth)}${"]".repeat(depth)}}`);
}

// No key with a backslash in it: once V8 13.6 (Node 24) has parsed an object with the key "\\", its JSON.parse may take the
// key "\n" of the next one for that.
const key = fc.constantFrom("a", "b", "c", "d", "e", "__proto__", "é", '"', "\n");
const { value: json } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: "medium", withCrossShrink: true },
    fc.oneof(fc.string({ unit: "binary" }), fc.double(), fc.integer(), fc.boolean(), fc.constant(null)),
    fc.array(tie("value"), { maxLength: 4 }),
    fc.array(fc.tuple(key, tie("value")), { maxLength: 5 }).map((entries) => Object.fromEntries(entries)),
  ),
}));

await tap.test("projectJson() keeps of any JSON what a projection keeps", (t) => {
  const indent = fc.constantFrom(undefined, 1, "\t", "\r\n ");
  fc.assert(
    fc.property(json, indent, (value, space) => {
      return isSame(Buffer.from(JSON.stringify(value, undefined, space)));
    }),
    { seed: TEST_SEED, numRuns: 500 },
  );
  t.end();
});

await tap.test("projectJson() takes and refuses damaged JSON as JSON.parse does", (t) => {
  const damage = fc.record({
    at: fc.double({ min: 0, max: 1, noNaN: true }),
    remove: fc.nat({ max: 3 }),
    insert: fc.oneof(
      fc.constantFrom(...Array.from('{}[]",:\\ue1.-+ \n')),
      fc.constantFrom("\\u0061", "nul", "\0", '"a":'),
    ),
  });
  fc.assert(
    fc.property(json, damage, (value, { at, remove, insert }) => {
      const text = JSON.stringify(value);
      const index = Math.floor(at * text.length);
      return isSame(Buffer.from(text.slice(0, index) + insert + text.slice(index + remove)));
    }),
    { seed: TEST_SEED, numRuns: 1_000 },
  );
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => isSame(Buffer.from(bytes))),
    { seed: TEST_SEED, numRuns: 1_000 },
  );
  t.end();
});
