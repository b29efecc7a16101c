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
  readonly from?: string;
  readonly value?: unknown;
}

/**
 * What a JSON patch makes of a document (RFC 6902): members that are added, copied or replaced, as nothing here sends anything else.
 * @throws {Refusal} 422 where an operation cannot be applied, as the API server answers it.
 */
export function jsonPatched(document: unknown, patch: unknown): unknown {
  return (patch as Operation[]).reduce((before, { from = "", op, path, value }) => {
    if (!["add", "copy", "replace"].includes(op)) throw new Error(`The model knows no JSON patch with ${op}`);
    const copied = keysOf(from).reduce<unknown>((member, key) => (member as Fields | undefined)?.[key], before);
    const member = { value: op === "copy" ? copied : value, isNew: op !== "replace" };
    return withMember(before, keysOf(path), member);
  }, document);
}

function keysOf(path: string): readonly string[] {
  const keys = path.split("/").slice(1);
  return keys.map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
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
  if (!Array.isArray(document)) return { ...fields, [key]: changed };
  return document.toSpliced(Number(key), isLast && member.isNew ? 0 : 1, changed);
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/patch.go */
function unprocessable(): Refusal {
  const message = "the server rejected our request due to an error in our request";
  return new Refusal({ code: 422, reason: "Invalid", details: {}, message });
}
