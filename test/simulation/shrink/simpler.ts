/** Any value of JSON. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** Fields that name one of several things by its index: the first one is the simplest. */
const INDEXES = new Set(["kind", "server", "program", "object", "replica", "migration"]);
/** Fields that are simpler the larger they are: with fewer writes less happens. */
const SIMPLER_WHEN_LARGER = new Set(["writeEveryMs"]);
/**
 * Fields that are never changed: what an action does, which random numbers a world has, what is a name or a code, and lifetimes of certificates: shorter
 * ones end while they are made.
 */
const FIXED = new Set(["do", "seed", "status", "right", "lifetimes"]);
/** Fields that can be left out. */
const OPTIONAL = new Set(["writes", "afterMs"]);
const LARGEST = 10_000_000;

/**
 * Simpler forms of a value, the simplest first, each with one field changed: fewer things, shorter times, rounder numbers.
 * It knows the fields of a plan by their names alone, so that a new action needs nothing here.
 */
export function simplerForms(value: Json, field = ""): readonly Json[] {
  if (FIXED.has(field)) return [];
  switch (typeof value) {
    case "number":
      return simplerNumbers(value, field);
    case "boolean":
      return value ? [false] : [];
    case "string":
      return value === "sampled" ? ["each"] : [];
    default:
      if (value === null) return [];
      return Array.isArray(value)
        ? simplerLists(value, field)
        : simplerObjects(value as { readonly [key: string]: Json });
  }
}

function simplerNumbers(value: number, field: string): readonly number[] {
  if (SIMPLER_WHEN_LARGER.has(field))
    return distinct(value, [LARGEST, value * 100, value * 10]).filter((n) => n <= LARGEST);
  if (INDEXES.has(field)) return distinct(value, [0]);
  if (field === "at")
    return distinct(
      value,
      [60_000, 10_000, 1_000, 100, 10].map((unit) => Math.floor(value / unit) * unit),
    );
  if (field === "share") return distinct(value, [1, 0.5, 0.1]);
  if (field.toLowerCase().endsWith("ms")) return simplerTimes(value);
  if (!Number.isInteger(value)) return distinct(value, [Math.round(value * 10) / 10]);
  return distinct(value, [1, Math.trunc(value / 2), value - Math.sign(value)]).filter(
    (n) => Math.abs(n) < Math.abs(value) && n !== 0,
  );
}

/** Never 0, which nothing waits for: what repeats after 0 ms would never end. */
function simplerTimes(value: number): readonly number[] {
  const sign = Math.sign(value);
  const size = Math.abs(value);
  const magnitude = 10 ** Math.floor(Math.log10(Math.max(size, 1)));
  const shorter = [1, magnitude / 10, size / 2, Math.floor(size / magnitude) * magnitude].map((ms) => Math.trunc(ms));
  return distinct(
    value,
    shorter.filter((ms) => ms >= 1 && ms < size).map((ms) => ms * sign),
  );
}

function simplerLists(list: readonly Json[], field: string): readonly Json[] {
  // A CRD needs the versions that it is created in and migrated to.
  const shorter = list.length > 1 && field !== "versions" ? list.map((_, index) => list.toSpliced(index, 1)) : [];
  const inner = list.flatMap((item, index) => simplerForms(item, `${field}[]`).map((form) => list.with(index, form)));
  return [...shorter, ...inner];
}

function simplerObjects(object: { readonly [key: string]: Json }): readonly Json[] {
  const fields = Object.entries(object);
  const fewer = fields
    .filter(([key]) => OPTIONAL.has(key))
    .map(([left]) => Object.fromEntries(fields.filter(([key]) => key !== left)));
  return [
    ...fewer,
    ...fields.flatMap(([key, item]) => simplerForms(item, key).map((form) => ({ ...object, [key]: form }))),
  ];
}

function distinct(value: number, candidates: readonly number[]): readonly number[] {
  return [...new Set(candidates)].filter((candidate) => candidate !== value);
}
