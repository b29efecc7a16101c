import type { CustomResourceDefinition } from "../api/crd.ts";
import { type JsonObject, objectIn } from "../api/json-fields.ts";

/** Which parts of a CRD a write replaces. */
export interface CrdWrite {
  readonly spec: JsonObject;
  /** Of a file, laid over those of the CRD. @default none */
  readonly metadata?: JsonObject | undefined;
}

/**
 * A JSON patch that puts the spec of a file in place of that of the CRD, with what is left out, and lays its metadata
 * over the CRD's.
 */
export function crdReplacement(
  { metadata: { annotations, labels } }: CustomResourceDefinition,
  { metadata, spec }: CrdWrite,
): readonly object[] {
  return [
    { op: "replace", path: "/spec", value: spec },
    ...overlay("labels", labels, metadata),
    ...overlay("annotations", annotations, metadata),
  ];
}

function overlay(field: string, known: JsonObject | undefined, laid: JsonObject | undefined): readonly object[] {
  const own = objectIn(laid?.[field]);
  return own === undefined ? [] : [{ op: "add", path: `/metadata/${field}`, value: { ...known, ...own } }];
}
