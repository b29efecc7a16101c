import { createHash } from "node:crypto";

/** Fields as text, with a digest over them: text that is cut or was edited by mistake is not believed. It proves no author. */
export function formatDigested(fields: object): string {
  return JSON.stringify({ ...fields, digest: digestOf(fields) });
}

/**
 * The fields of such a text; `undefined` where it is no whole one, or has other fields.
 * @param fieldsOf the fields in the order in which they are written. What matches the digest has their shape
 */
export function parseDigested<T extends object>(text: string | undefined, fieldsOf: (parsed: T) => T): T | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text ?? "");
  } catch {
    return undefined;
  }
  if (typeof parsed !== "object" || parsed === null) {
    return undefined;
  }
  const fields = fieldsOf(parsed as T);
  return (parsed as { readonly digest?: unknown }).digest === digestOf(fields) ? fields : undefined;
}

function digestOf(fields: object): string {
  return createHash("sha256").update(JSON.stringify(fields)).digest("hex");
}
