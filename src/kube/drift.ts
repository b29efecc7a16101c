/**
 * Whether an object is as it is wanted: every field of `wanted` is there with the same value. Fields that are not wanted
 * may be there, such as defaults and status, except in an object that is wanted empty; lists have to be the same item by
 * item. So an added webhook, rule, match condition or selector is drift.
 */
export function isAsWanted(live: unknown, wanted: unknown): boolean {
  if (Array.isArray(wanted)) {
    return (
      Array.isArray(live) &&
      live.length === wanted.length &&
      wanted.every((item, index) => isAsWanted(live[index], item))
    );
  }
  if (typeof wanted !== "object" || wanted === null) {
    return live === wanted;
  }
  const fields = Object.entries(wanted);
  return (
    typeof live === "object" &&
    live !== null &&
    (fields.length > 0 || Object.keys(live).length === 0) &&
    fields.every(([name, value]) => isAsWanted((live as Readonly<Record<string, unknown>>)[name], value))
  );
}
