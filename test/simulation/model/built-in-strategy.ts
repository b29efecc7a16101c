import { invalid, type InvalidField } from "./answers.ts";
import { type Fields, type ModelObject, without } from "./model-object.ts";
import type { ServedKind } from "./served-kinds.ts";

/** A built-in object as it is decoded: with the defaults of Secrets and without the nulls of Leases, which decide on managedFields. */
export function builtInDefaulted({ group, resource }: ServedKind, object: ModelObject): ModelObject {
  if (resource === "leases") return withoutNulls(object);
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

/** The Go types have no null: a field of a spec that is null is not there. */
function withoutNulls(object: ModelObject): ModelObject {
  const spec = (object["spec"] ?? {}) as Fields;
  const nulls = Object.keys(spec).filter((field) => spec[field] === null);
  return nulls.length === 0 ? object : { ...object, spec: without(spec, ...nulls) };
}
