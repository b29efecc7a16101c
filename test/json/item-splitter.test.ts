import * as fc from "fast-check";
import tap from "tap";
import { ItemSplitter, type SplitLimits, UnsplittableList } from "../../src/json/item-splitter.ts";

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
