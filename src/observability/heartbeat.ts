import type { Clock } from "../clock.ts";

/** Options of a {@link Heartbeat}. */
export interface HeartbeatOptions {
  readonly clock: Clock;
  /** Milliseconds of silence after which the loop counts as stuck. */
  readonly maxSilenceMs: number;
}

/**
 * Tells a loop that is stuck from one that waits for work: the loop says that it is alive each time round, and rests
 * while there is nothing to go round for.
 */
export class Heartbeat {
  readonly #options: HeartbeatOptions;
  #last: number | undefined;

  /** It rests until the first beat. */
  constructor(options: HeartbeatOptions) {
    this.#options = options;
  }

  /** Says that the loop is alive. */
  beat(): void {
    this.#last = this.#options.clock.monotonic();
  }

  /** Says that no beat is due until the next one, as for a replica that does not lead. */
  rest(): void {
    this.#last = undefined;
  }

  /** What is wrong; `undefined` where nothing is. */
  check(): string | undefined {
    if (this.#last === undefined) {
      return undefined;
    }
    const { clock, maxSilenceMs } = this.#options;
    const silentMs = clock.monotonic() - this.#last;
    return silentMs <= maxSilenceMs
      ? undefined
      : `stuck: no sign of life for ${Math.round(silentMs / 1_000)} s, and ${Math.round(maxSilenceMs / 1_000)} s are allowed`;
  }
}
