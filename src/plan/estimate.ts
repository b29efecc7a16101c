import { DEFAULT_SETTLE_MS } from "../old/apiservers/settle.ts";
import { DEFAULT_PAGE_SIZE } from "../old/migrator/rewrite/page-size.ts";

/** What migrating the objects of a resource takes, roughly. */
export interface Estimate {
  /** One write for each object, and the pages that list them. */
  readonly requests: number;
  /** With the default settings, on an API server that is not busy. */
  readonly seconds: number;
}

/** Objects rewritten in a second: what a small API server does for a run that leaves room for other clients. */
const OBJECTS_PER_SECOND = 200;
/** The freeze, its proof on every API server, and the prune; on top of the wait for late writes. */
const FIXED_SECONDS = 10;

/**
 * Estimates the migration of so many objects.
 * @param converted of how many the managedFields are converted as well, which takes a list by name and a dry run. @default none
 */
export function estimateOf(objects: number, converted = 0): Estimate {
  return {
    requests: objects + 2 * converted + Math.max(1, Math.ceil(objects / DEFAULT_PAGE_SIZE)),
    seconds: Math.ceil(DEFAULT_SETTLE_MS / 1_000 + FIXED_SECONDS + (objects + converted) / OBJECTS_PER_SECOND),
  };
}
