import { HEARTBEAT_LIMIT_MS } from "../api/migration.ts";

/**
 * Milliseconds between two looks at the whole of discovery, by default: less than half of the limit, so that one look that
 * fails, and one that takes its time, do not yet make a StorageState stale.
 */
export const DEFAULT_INTERVAL_MS = 240_000;

/** The shortest interval that may be chosen, in milliseconds: reading all of discovery more often is a load of its own. */
export const MIN_INTERVAL_MS = 1_000;

/** The longest interval that may be chosen, in milliseconds: half of the limit, and not all of that. */
export const MAX_INTERVAL_MS = HEARTBEAT_LIMIT_MS / 2 - 1_000;
