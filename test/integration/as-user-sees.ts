import type { ObjectMeta } from "../../src/api/meta.ts";

/** An object as an API server returns it. */
export interface WholeObject {
  readonly metadata: ObjectMeta;
}

/** All of an object but its resourceVersion, which each write changes. */
export function asTheUserSees({ metadata, ...rest }: WholeObject): object {
  return { ...rest, metadata: { ...metadata, resourceVersion: "" } };
}
