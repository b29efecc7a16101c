import type { Clock } from "../clock.ts";
import type { Decision } from "./decide.ts";

/** So many migrations of a resource are created without a pause, and each later one after twice as long, in milliseconds. */
const FREE = 5;
const FIRST_PAUSE_MS = 1_000;
const LAST_PAUSE_MS = 60_000;
/** For so many milliseconds without another one it is remembered how many there were. */
const MEMORY_MS = 600_000;
const CREATED_OFTEN =
  "many migrations of it were created of late, so the next one comes later; another client may delete them";

/**
 * How soon another migration of a resource may be created. What was tried before is counted by the migrations that are there: where another
 * client deletes each of them, or takes its marks off, nothing would count.
 */
export class CreationPace {
  readonly #clock: Clock;
  /** By resource, the one that was created last at the end. */
  readonly #created = new Map<string, { readonly at: number; readonly times: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Milliseconds until one may be created. */
  dueInMs(name: string): number {
    const { at, times } = this.#created.get(name) ?? { at: 0, times: 0 };
    const pauseMs = times < FREE ? 0 : Math.min(LAST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (times - FREE));
    return Math.max(0, at + pauseMs - this.#clock.monotonic());
  }

  /** @returns the decision, without the migration that it creates where that comes too soon */
  paced(name: string, decision: Decision): Decision {
    const lookAgainMs = decision.create === undefined ? 0 : this.dueInMs(name);
    const { create: _later, ...rest } = decision;
    return lookAgainMs === 0 ? decision : { ...rest, lookAgainMs, waiting: CREATED_OFTEN };
  }

  /** Says that one was created. */
  created(name: string): void {
    const now = this.#clock.monotonic();
    for (const [other, { at }] of this.#created) {
      if (now - at < MEMORY_MS) {
        break;
      }
      this.#created.delete(other);
    }
    const times = (this.#created.get(name)?.times ?? 0) + 1;
    this.#created.delete(name);
    this.#created.set(name, { at: now, times });
  }
}
