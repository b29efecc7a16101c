import { invalid, type InvalidField } from "./answers.ts";
import { type Fields, type ModelObject, without } from "./model-object.ts";
import type { ServedKind } from "./served-kinds.ts";

/** A built-in object with its defaults: those of Secrets, which decide on managedFields. */
export function builtInDefaulted({ group, resource }: ServedKind, object: ModelObject): ModelObject {
  if (group !== "" || resource !== "secrets") return object;
  const typed = object["type"] === undefined ? { ...object, type: "Opaque" } : object;
  const { stringData } = typed as { readonly stringData?: Readonly<Record<string, string>> };
  if (stringData === undefined) return typed;
  const data: Record<string, unknown> = { ...(typed["data"] as Fields | undefined) };
  for (const key in stringData) data[key] = Buffer.from(stringData[key] ?? "").toString("base64");
  return { ...without(typed, "stringData"), data };
}

/** @throws {Refusal} 422 for what no API server takes: an Event in another namespace than that of its object */
export function assertBuiltIn({ group, kind, resource }: ServedKind, { involvedObject, metadata }: ModelObject): void {
  if (group !== "" || resource !== "events") return;
  const { namespace: ofObject = "" } = (involvedObject ?? {}) as { readonly namespace?: string };
  const { name = "", namespace = "" } = metadata;
  if (namespace === (ofObject === "" ? "default" : ofObject)) return;
  const body = `Invalid value: ${JSON.stringify(ofObject)}: does not match event.namespace`;
  const cause: InvalidField = { field: "involvedObject.namespace", body };
  throw invalid({ group, kind }, name, [cause]);
}
