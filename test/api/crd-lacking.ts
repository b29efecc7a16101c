import type { CustomResourceDefinition } from "../crd.ts";
import { type CrdTraits, crdWith } from "./crd-with.ts";

/** A CRD whose storage version v2 is not served, and has so many fields that v1 lacks. */
export function crdLacking(fields: number, traits: CrdTraits = {}): CustomResourceDefinition {
  const crd = crdWith({ versions: ["v1", "v2+-"], ...traits });
  const all = Object.fromEntries(Array.from({ length: fields }, (_, index) => [`f${index}`, { type: "string" }]));
  const versions = crd.spec.versions.map((one) => ({ ...one, schema: schemaWith(one.storage ? all : {}) }));
  return { ...crd, spec: { ...crd.spec, versions } };
}

function schemaWith(properties: object): object {
  return { openAPIV3Schema: { type: "object", properties: { spec: { type: "object", properties } } } };
}
