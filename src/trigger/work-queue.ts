import type { Clock } from "../clock.ts";

/** Between two looks at the same name, in milliseconds: what changes all the time leaves time for the others. */
const MIN_INTERVAL_MS = 200;

/** Names to look at, each once, when they are due. */
export class WorkQueue {
  readonly #clock: Clock;
  /** When each name is due, on the monotonic clock. */
  readonly #due = new Map<string, number>();
  /** When each name was last taken, on the same clock; only for as long as that matters. */
  readonly #takenAt = new Map<string, number>();
  #onWake: () => void = () => undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Has the name looked at after `delayMs`, or sooner where it already was to be, but not twice in a moment. */
  add(name: string, delayMs = 0): void {
    const takenAt = this.#takenAt.get(name) ?? Number.NEGATIVE_INFINITY;
    const due = Math.max(this.#clock.monotonic() + delayMs, takenAt + MIN_INTERVAL_MS);
    this.#due.set(name, Math.min(due, this.#due.get(name) ?? due));
    this.wake();
  }

  /** Ends a {@link wait}. */
  wake(): void {
    this.#onWake();
  }

  /** Takes the name that has been due for longest; `undefined` where none is due. */
  take(): string | undefined {
    const now = this.#clock.monotonic();
    const [first] = [...this.#due].toSorted(([, a], [, b]) => a - b);
    if (first === undefined || first[1] > now) {
      return undefined;
    }
    const [name] = first;
    this.#due.delete(name);
    for (const [other, at] of this.#takenAt) {
      if (now - at < MIN_INTERVAL_MS) {
        // They are in their order.
        break;
      }
      this.#takenAt.delete(other);
    }
    this.#takenAt.delete(name);
    this.#takenAt.set(name, now);
    return name;
  }

  /** Whether the name is due now or in a moment. */
  isDue(name: string): boolean {
    return (this.#due.get(name) ?? Number.POSITIVE_INFINITY) - this.#clock.monotonic() <= MIN_INTERVAL_MS;
  }

  /** Resolves when a name is due or was added, after `atMostMs`, or when the signal is aborted. */
  async wait(atMostMs: number, signal: AbortSignal): Promise<void> {
    const next = Math.min(...this.#due.values()) - this.#clock.monotonic();
    const abort = new AbortController();
    const added = new Promise<void>((resolve) => (this.#onWake = resolve));
    const sleepMs = Math.max(0, Math.min(next, atMostMs));
    const slept = this.#clock.sleep(sleepMs, AbortSignal.any([signal, abort.signal])).catch(() => undefined);
    await Promise.race([added, slept]);
    abort.abort();
  }
}
