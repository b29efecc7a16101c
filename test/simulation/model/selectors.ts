import { badRequest } from "./answers.ts";
import type { ModelObject } from "./model-object.ts";

/** Whether an object is selected. */
export type Selector = (object: ModelObject) => boolean;

/** What a query selects; `undefined` where it selects everything. @throws {Refusal} 400 */
export function selectorOf(query: URLSearchParams): Selector | undefined {
  const labels = query.get("labelSelector") ?? "";
  const fields = query.get("fieldSelector") ?? "";
  if (labels === "" && fields === "") return undefined;
  const requirements = [
    ...(labels === "" ? [] : labels.split(",").map(labelRequirement)),
    ...(fields === "" ? [] : fields.split(",").map(fieldRequirement)),
  ];
  return (object) => requirements.every((requirement) => requirement(object));
}

/** Of what label selectors can say, `a=b`, `a!=b`, `a` and `!a`. */
function labelRequirement(text: string): Selector {
  const [, key = "", operator = "", value = ""] = /^(!?[^!=]+)(!=|==?)?(.*)$/.exec(text.trim()) ?? [];
  if (key.startsWith("!")) return ({ metadata }) => metadata.labels?.[key.slice(1)] === undefined;
  if (operator === "") return ({ metadata }) => metadata.labels?.[key] !== undefined;
  return ({ metadata }) => (metadata.labels?.[key] === value) === (operator !== "!=");
}

function fieldRequirement(text: string): Selector {
  const [, field = "", operator = "", value = ""] = /^([^!=]+)(!=|==?)(.*)$/.exec(text.trim()) ?? [];
  const name = { "metadata.name": "name", "metadata.namespace": "namespace" }[field];
  if (name === undefined) throw badRequest(`field label not supported: ${field}`);
  return ({ metadata }) => (metadata[name] === value) === (operator !== "!=");
}
