import { between, type Random } from "../chaos/random.ts";

/** Where a value is in a document. */
type Path = readonly (string | number)[];

const ESCAPE = "\u001b[2J\u001b]0;owned\u0007\u009b31m";
/** What stands in the place of a value: other types, and texts that something acts on. */
const VALUES: readonly (() => unknown)[] = [
  () => null,
  () => undefined,
  () => 0,
  () => -1,
  () => 1.5,
  () => 1e308,
  () => 2 ** 53,
  () => Number.NaN,
  () => true,
  () => false,
  () => "",
  () => [],
  () => ({}),
  () => [null],
  () => [[]],
  () => ({ __proto__: null }),
  () => JSON.parse('{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}') as unknown,
  () => "../../secrets",
  () => "..",
  () => ".",
  () => "a%2f..%2fb",
  () => "a/b",
  () => "a\nb",
  () => `${ESCAPE}x`,
  () => "\u202Egnp.exe",
  () => "\uD800",
  () => "x".repeat(100_000),
  () => "9".repeat(400),
  () => "+275760-09-13T00:00:01Z",
  () => "0000-00-00T99:99:99Z",
  () => "toString",
  () => "__proto__",
  () => "true",
  () => nested(400),
];
const KEYS = ["__proto__", "constructor", "toString", "length", "metadata", "a/b", ESCAPE, ""];

function nested(depth: number): unknown {
  let value: unknown = {};
  for (let level = 0; level < depth; level++) {
    value = level % 2 === 0 ? [value] : { a: value };
  }
  return value;
}

function pick<T>(random: Random, items: readonly T[]): T {
  return items[between(random, 0, items.length)] as T;
}

/** Every place in a document, the whole of it first. */
function pathsOf(value: unknown, path: Path = []): readonly Path[] {
  if (typeof value !== "object" || value === null) {
    return [path];
  }
  const entries = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  return [path, ...entries.flatMap(([key, inner]) => pathsOf(inner, [...path, key]))];
}

function replaced(value: unknown, [key, ...rest]: Path, change: (before: unknown) => unknown): unknown {
  if (key === undefined) {
    return change(value);
  }
  if (Array.isArray(value)) {
    return value.map((inner: unknown, index) => (index === key ? replaced(inner, rest, change) : inner));
  }
  const fields = Object.entries(value as object).map(([name, inner]) =>
    name === key ? ([name, replaced(inner, rest, change)] as const) : ([name, inner as unknown] as const),
  );
  return Object.fromEntries(fields.filter(([, inner]) => inner !== undefined));
}

/** Changes of one place, each of another kind. */
function changed(random: Random, before: unknown): unknown {
  const isObject = typeof before === "object" && before !== null && !Array.isArray(before);
  const more = [
    () => pick(random, VALUES)(),
    () => (Array.isArray(before) ? [...(before as readonly unknown[]), ...(before as readonly unknown[])] : [before]),
    () =>
      isObject
        ? Object.fromEntries([...Object.entries(before), [pick(random, KEYS), pick(random, VALUES)()] as const])
        : before,
    () => (typeof before === "string" ? `${before}${pick(random, [ESCAPE, "\n", "/..", "%2f", "\u0000"])}` : before),
  ];
  return random() < 0.7 ? pick(random, VALUES)() : pick<() => unknown>(random, more)();
}

/** A document with one to five places changed. */
export function mutated(random: Random, document: unknown): unknown {
  let result = document;
  for (let times = between(random, 1, 5); times > 0; times--) {
    result = replaced(result, pick(random, pathsOf(result)), (before) => changed(random, before));
  }
  return result;
}

/** A document, for each of its places and each of the values: that value in that place, or nothing there. */
export function* eachMutation(document: unknown): Generator {
  for (const path of pathsOf(document)) {
    for (const value of VALUES) {
      yield replaced(document, path, value);
    }
  }
}
