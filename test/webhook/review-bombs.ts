import { type Random, between, pick } from "../chaos/random.ts";

/** Marks the place of a bomb in a review. */
const MARK = "BOMB";

/** Where a review has one more value, each a path of fields below the review. */
const PLACES: readonly [readonly string[], ...(readonly string[])[]] = [
  [],
  ["apiVersion"],
  ["kind"],
  ["extra"],
  ["request"],
  ["request", "uid"],
  ["request", "operation"],
  ["request", "userInfo"],
  ["request", "object"],
  ["request", "oldObject"],
  ["request", "oldObject", "metadata"],
  ["request", "oldObject", "metadata", "name"],
  ["request", "oldObject", "metadata", "annotations"],
  ["request", "oldObject", "metadata", "annotations", "kube-storage-version-migrator.io/migrating"],
  ["request", "oldObject", "spec"],
  ["request", "oldObject", "spec", "versions"],
  ["request", "object", "spec", "versions"],
  ["request", "object", "status", "conditions"],
];

type Make = (bytes: number) => string;

/** Values that are as large as they are asked to be, and cost as much as they can. */
const SORTS: readonly [Make, ...Make[]] = [
  (bytes) => `[${repeat("{},", bytes)}{}]`,
  (bytes) => `[${repeat("[],", bytes)}[]]`,
  (bytes) => `[${repeat('{"name":"v1","storage":false},', bytes)}{}]`,
  (bytes) => `[${repeat("1,", bytes)}1]`,
  (bytes) => `[${repeat("null,", bytes)}1e5]`,
  (bytes) => "[".repeat(bytes / 2) + "]".repeat(bytes / 2),
  (bytes) => '{"a":'.repeat(bytes / 6) + "1" + "}".repeat(bytes / 6),
  (bytes) => "[".repeat(bytes),
  (bytes) => `"${"x".repeat(bytes)}"`,
  (bytes) => `"${repeat("\\u0041", bytes)}"`,
  (bytes) => `"${repeat("\\ud83d\\ude00", bytes)}"`,
  (bytes) => `{${repeat('"name":"a",', bytes)}"b":1}`,
  (bytes) => `{${repeat('"\\u006eame":"a",', bytes)}"b":1}`,
  (bytes) => `{${repeat('"":"",', bytes)}"b":1}`,
  (bytes) => `{${keys(bytes)}"b":"c"}`,
  (bytes) => `{"__proto__":${repeat('{"__proto__":', bytes / 2)}1}`,
  (bytes) => " ".repeat(bytes),
  (bytes) => "9".repeat(bytes),
  (bytes) => `1e${"9".repeat(bytes)}`,
];

/** One body that was made to use memory or time: a review with a bomb of about so many bytes in one place, whole or cut off. */
export function reviewBomb(random: Random, review: object, bytes: number): string {
  const text = JSON.stringify(withMark(review, pick(random, PLACES)));
  const bomb = pick(random, SORTS)(Math.max(2, Math.floor(bytes)));
  const whole = text.replace(JSON.stringify(MARK), () => bomb);
  return between(random, 0, 4) === 0 ? whole.slice(0, between(random, 0, whole.length)) : whole;
}

function withMark(value: unknown, [field, ...rest]: readonly string[]): unknown {
  if (field === undefined) return MARK;
  const record = typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
  return { ...record, [field]: withMark(record[field], rest) };
}

function repeat(unit: string, bytes: number): string {
  return unit.repeat(Math.ceil(bytes / unit.length));
}

function keys(bytes: number): string {
  return Array.from({ length: Math.ceil(bytes / 16) }, (_, index) => `"k${index}":"value",`).join("");
}
