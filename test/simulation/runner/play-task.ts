import type { Plan } from "../plan.ts";

/** What a worker is to play: the plan of a seed, or a plan. */
export type PlayTask = ({ readonly seed: number } | { readonly plan: Plan }) & {
  /** Whether to send the whole trace, which is long. */
  readonly withTrace?: boolean;
};

/** What a play showed, as a worker sends it. */
export interface Played {
  readonly violations: readonly string[];
  readonly requests: number;
  readonly events: number;
  /** Simulated milliseconds. */
  readonly elapsedMs: number;
  /** SHA-256 of the trace: two plays with the same one were the same. */
  readonly traceDigest: string;
  readonly trace?: readonly string[];
}
