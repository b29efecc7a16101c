import type { Clock } from "../clock.ts";
import { Loops } from "../observability/loops.ts";
import type { ControllerSettings } from "./settings.ts";

/** The loops of what serves the webhook. */
export type WebhookLoop = "configuration" | "serving-certificate";

const MINUTE_MS = 60_000;
/**
 * Every request has a deadline of a minute or two, and every watch ends after 320 s: who does nothing for so long, in
 * milliseconds, hangs. A limit is generous, since a restart in the middle of an outage repairs nothing.
 */
const LIMIT_MS = 30 * MINUTE_MS;

/** The loops of a replica. */
export type ReplicaLoop =
  | "election"
  | "migrations"
  | "migration-watch"
  | "queue"
  | "expiry"
  | "sweep"
  | "trigger"
  | "certificates"
  | WebhookLoop
  | "progress"
  | "freezes";

/** The watch of all loops of a replica. */
export type ReplicaLoops = Loops<ReplicaLoop>;

/** Nothing is watched yet. */
export function replicaLoops(clock: Clock, { runs }: Pick<ControllerSettings, "runs">): ReplicaLoops {
  const { convergenceTimeoutMs, proofTimeoutMs, settleMs, shutdownDelayMs = 0 } = runs.options;
  const waitsMs = convergenceTimeoutMs + proofTimeoutMs + settleMs + shutdownDelayMs;
  return new Loops<ReplicaLoop>(clock, {
    // Each attempt has ten seconds; a leader that lost its Lease ends its work within a minute or two.
    election: LIMIT_MS,
    // The engine may wait for what its budgets allow without a word.
    migrations: LIMIT_MS + runs.maxIdleMs + runs.webhookWaitMs + waitsMs,
    "migration-watch": LIMIT_MS,
    queue: LIMIT_MS,
    expiry: LIMIT_MS,
    sweep: LIMIT_MS,
    trigger: LIMIT_MS,
    certificates: LIMIT_MS,
    configuration: LIMIT_MS,
    "serving-certificate": LIMIT_MS,
    progress: LIMIT_MS,
    freezes: LIMIT_MS,
  });
}
