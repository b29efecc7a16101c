import type { ObjectProjection, Projection } from "../json/json-projection.ts";

/** What is read of the metadata of a listed object: what names one state of it, and more. @default no more */
export function metadataProjection(more: Readonly<Record<string, Projection>> = {}): ObjectProjection {
  return { fields: { name: "all", uid: "all", resourceVersion: "all", ...more } };
}
