import type { Clock } from "../clock.ts";

/** Names to look at, each once, when they are due. */
export class WorkQueue {
  readonly #clock: Clock;
  /** When each name is due, on the monotonic clock. */
  readonly #due = new Map<string, number>();
  #onWake: () => void = () => undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Has the name looked at after `delayMs`, or sooner where it already was to be. */
  add(name: string, delayMs = 0): void {
    const due = this.#clock.monotonic() + delayMs;
    this.#due.set(name, Math.min(due, this.#due.get(name) ?? due));
    this.wake();
  }

  /** Ends a {@link wait}. */
  wake(): void {
    this.#onWake();
  }

  /** Takes the name that has been due for longest; `undefined` where none is due. */
  take(): string | undefined {
    const [first] = [...this.#due].toSorted(([, a], [, b]) => a - b);
    if (first === undefined || first[1] > this.#clock.monotonic()) {
      return undefined;
    }
    this.#due.delete(first[0]);
    return first[0];
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
