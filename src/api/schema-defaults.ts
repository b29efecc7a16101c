import { isDeepStrictEqual } from "node:util";
import { type JsonObject, objectIn } from "./json-fields.ts";

/** As in {@link prunedFields}. */
const MAX_DEPTH = 64;

/**
 * The paths of fields for which the schema `before` has a default that `after` does not have: `spec.mode`. An API server that is behind writes it into an
 * object that has no such field.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting/algorithm.go
 */
export function lostDefaults(before: JsonObject | undefined, after: JsonObject | undefined): readonly string[] {
  return lostIn(before, after, []);
}

function lostIn(
  before: JsonObject | undefined,
  after: JsonObject | undefined,
  path: readonly string[],
): readonly string[] {
  if (before === undefined || path.length > MAX_DEPTH) {
    return [];
  }
  const isLost = before["default"] !== undefined && !isDeepStrictEqual(before["default"], after?.["default"]);
  const fields = objectIn(before["properties"]) ?? {};
  const fieldsAfter = objectIn(after?.["properties"]) ?? {};
  const below = Object.keys(fields).flatMap((name) =>
    lostIn(fieldIn(fields, name), fieldIn(fieldsAfter, name), [...path, name]),
  );
  const parts = PARTS.flatMap(([key, word]) =>
    lostIn(fieldIn(before, key), after && fieldIn(after, key), [...path, word]),
  );
  return [...(isLost ? [path.join(".")] : []), ...below, ...parts];
}

const PARTS = [
  ["items", "[]"],
  ["additionalProperties", "*"],
] as const;

function fieldIn(object: JsonObject, name: string): JsonObject | undefined {
  return Object.hasOwn(object, name) ? objectIn(object[name]) : undefined;
}
