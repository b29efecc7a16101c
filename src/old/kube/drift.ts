/**
 * Whether an object is as it is wanted: every field of `wanted` is there with the same value, and one that is `undefined` is not there. Fields
 * that `wanted` does not name may be there, such as defaults and status, except in an object that is wanted empty; lists have to be the
 * same item by item. So an added webhook, rule, match condition or selector is drift.
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

/**
 * What a merge patch has to say to leave of an object what is wanted: null takes out a field that is to be absent. Lists are replaced whole. An
 * object that is wanted empty is left as it is.
 *
 * https://www.rfc-editor.org/rfc/rfc7396
 */
export function mergePatchTo(wanted: unknown): unknown {
  if (wanted === undefined) {
    return null;
  }
  if (typeof wanted !== "object" || wanted === null || Array.isArray(wanted)) {
    return wanted;
  }
  return Object.fromEntries(Object.entries(wanted).map(([name, value]) => [name, mergePatchTo(value)]));
}
