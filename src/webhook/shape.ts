/** Says what is wrong with a value, beginning with its path; `undefined` where nothing is. */
export type Check = (value: unknown, path: string) => string | undefined;

/** Accepts any string but the empty one. */
export function text(value: unknown, path: string): string | undefined {
  return typeof value === "string" && value !== "" ? undefined : `${path} must be a non-empty string`;
}

/** Accepts any string. */
export function string(value: unknown, path: string): string | undefined {
  return typeof value === "string" ? undefined : `${path} must be a string`;
}

/** Accepts true and false. */
export function boolean(value: unknown, path: string): string | undefined {
  return typeof value === "boolean" ? undefined : `${path} must be a boolean`;
}

/** Accepts one value. */
export function literal(expected: string): Check {
  return (value, path) => (value === expected ? undefined : `${path} must be "${expected}"`);
}

/** Accepts a missing value; null is one, as Go encodes an empty list or map. */
export function optional(check: Check): Check {
  return (value, path) => (value === undefined || value === null ? undefined : check(value, path));
}

/** Accepts an object whose named fields pass; other fields may be there and are not looked at. */
export function shape(fields: Readonly<Record<string, Check>>): Check {
  const checks = Object.entries(fields);
  return (value, path) =>
    isRecord(value)
      ? firstProblem(checks, ([name, check]) => check(value[name], path === "" ? name : `${path}.${name}`))
      : `${path === "" ? "the body" : path} must be an object`;
}

/** Accepts an object all of whose values pass. */
export function recordOf(check: Check): Check {
  return (value, path) =>
    isRecord(value)
      ? firstProblem(Object.entries(value), ([name, entry]) => check(entry, `${path}[${JSON.stringify(name)}]`))
      : `${path} must be an object`;
}

/** Accepts an array all of whose items pass. */
export function listOf(check: Check): Check {
  return (value, path) => (Array.isArray(value) ? firstItemProblem(value, check, path) : `${path} must be an array`);
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Names an item only where it has a problem: a list may be long. */
function firstItemProblem(items: readonly unknown[], check: Check, path: string): string | undefined {
  const index = items.findIndex((item) => check(item, "") !== undefined);
  return index === -1 ? undefined : check(items[index], `${path}[${index}]`);
}

function firstProblem<T>(items: readonly T[], problemOf: (item: T) => string | undefined): string | undefined {
  for (const item of items) {
    const problem = problemOf(item);
    if (problem !== undefined) {
      return problem;
    }
  }
  return undefined;
}
