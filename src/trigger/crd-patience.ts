import type { Clock } from "../clock.ts";

/** API servers follow a CRD within moments. Only when they do not in this time it is called a disagreement. */
const CRD_PATIENCE_MS = 3_000;

/** How long one leadership waits for API servers to follow a CRD: an earlier one of the same process may be hours ago. */
export class CrdPatience {
  readonly #clock: Clock;
  /** Since when each look sees that API servers have not followed a CRD, on the monotonic clock: a look may take seconds. */
  readonly #behind = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether API servers that have not followed a CRD may be given another moment. */
  isPatientWith(name: string): boolean {
    const now = this.#clock.monotonic();
    const since = this.#behind.get(name) ?? now;
    this.#behind.set(name, since);
    return now - since <= CRD_PATIENCE_MS;
  }

  /** Notes that all API servers have followed a CRD. */
  followed(name: string): void {
    this.#behind.delete(name);
  }

  /** Forgets what is no more. */
  keepOnly(isThere: (name: string) => boolean): void {
    [...this.#behind.keys()].filter((name) => !isThere(name)).forEach((name) => this.#behind.delete(name));
  }
}
