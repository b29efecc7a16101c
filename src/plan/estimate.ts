import { DEFAULT_SETTLE_MS } from "../apiservers/settle.ts";

/** What migrating the objects of a resource takes, roughly. */
export interface Estimate {
  /** One write for each object, and the pages that list them. */
  readonly requests: number;
  /** With the default settings, on an API server that is not busy. */
  readonly seconds: number;
}

/** Objects on a page, where their metadata has some two kilobytes. */
const PAGE_OBJECTS = 500;
/** Objects rewritten in a second: what a small API server does for a run that leaves room for other clients. */
const OBJECTS_PER_SECOND = 200;
/** The freeze, its proof on every API server, and the prune; on top of the wait for late writes. */
const FIXED_SECONDS = 10;

/** Estimates the migration of so many objects. */
export function estimateOf(objects: number): Estimate {
  return {
    requests: objects + Math.max(1, Math.ceil(objects / PAGE_OBJECTS)),
    seconds: Math.ceil(DEFAULT_SETTLE_MS / 1_000 + FIXED_SECONDS + objects / OBJECTS_PER_SECOND),
  };
}
