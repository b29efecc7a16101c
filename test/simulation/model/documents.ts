import { Refusal } from "./answers.ts";
import { type Fields, isFields } from "./etcd.ts";

/** What a merge patch makes of a value (RFC 7386). What it leaves alone is shared. */
export function mergePatched(target: unknown, patch: unknown): unknown {
  if (!isFields(patch)) return patch;
  const merged: Record<string, unknown> = isFields(target) ? { ...target } : {};
  for (const field in patch) {
    if (patch[field] === null) delete merged[field];
    else merged[field] = mergePatched(merged[field], patch[field]);
  }
  return merged;
}

interface Operation {
  readonly op: string;
  readonly path: string;
  readonly value?: unknown;
}

/**
 * What a JSON patch makes of a document (RFC 6902): members that are added or replaced, as nothing here sends anything else.
 * @throws {Refusal} 422 where an operation cannot be applied, as the API server answers it.
 */
export function jsonPatched(document: unknown, patch: unknown): unknown {
  return (patch as Operation[]).reduce((before, { op, path, value }) => {
    if (op !== "add" && op !== "replace") throw new Error(`The model knows no JSON patch with ${op}`);
    const keys = path.split("/").slice(1);
    const unescaped = keys.map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
    return withMember(before, unescaped, { value, isNew: op === "add" });
  }, document);
}

function withMember(
  document: unknown,
  [key = "", ...rest]: readonly string[],
  member: { readonly value: unknown; readonly isNew: boolean },
): unknown {
  if (typeof document !== "object" || document === null) throw unprocessable();
  const fields = document as Fields;
  const isLast = rest.length === 0;
  if (fields[key] === undefined && !(isLast && member.isNew)) throw unprocessable();
  const changed = isLast ? member.value : withMember(fields[key], rest, member);
  return Array.isArray(document) ? document.with(Number(key), changed) : { ...fields, [key]: changed };
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/patch.go */
function unprocessable(): Refusal {
  const message = "the server rejected our request due to an error in our request";
  return new Refusal({ code: 422, reason: "Invalid", details: {}, message });
}
