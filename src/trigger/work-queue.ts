import type { Clock } from "../clock.ts";
import { SortedSet } from "../sorted-set.ts";

interface Due {
  readonly name: string;
  /** On the monotonic clock. */
  readonly at: number;
}

/** Between two looks at the same name, in milliseconds: what changes all the time leaves time for the others. */
const MIN_INTERVAL_MS = 200;
/** After so many milliseconds in which a name was due and not taken, others hold it up. */
const OVERDUE_MS = 5_000;

/** Names to look at, each once, when they are due. */
export class WorkQueue {
  readonly #clock: Clock;
  readonly #due = new Map<string, Due>();
  /** The same, what is due first first. */
  readonly #order = new SortedSet<Due>((a, b) => a.at - b.at || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  /** When each name was last taken, on the same clock; only for as long as that matters. */
  readonly #takenAt = new Map<string, number>();
  #onWake: () => void = () => undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Has the name looked at after `delayMs`, or sooner where it already was to be, but not twice in a moment. */
  add(name: string, delayMs = 0): void {
    const takenAt = this.#takenAt.get(name) ?? Number.NEGATIVE_INFINITY;
    const at = Math.max(this.#clock.monotonic() + delayMs, takenAt + MIN_INTERVAL_MS);
    const before = this.#due.get(name);
    if (before === undefined || at < before.at) {
      this.#forget(before);
      const due = { name, at };
      this.#due.set(name, due);
      this.#order.add(due);
    }
    this.wake();
  }

  /** Ends a {@link wait}. */
  wake(): void {
    this.#onWake();
  }

  /** Takes the name that has been due for longest; `undefined` where none is due. */
  take(): string | undefined {
    const now = this.#clock.monotonic();
    const { first } = this.#order;
    if (first === undefined || first.at > now) {
      return undefined;
    }
    this.#take(first, now);
    return first.name;
  }

  /** Takes the name ahead of the others where it has been due for long; `false` where it has not. */
  takeOverdue(name: string): boolean {
    const now = this.#clock.monotonic();
    const due = this.#due.get(name);
    if (due === undefined || now - due.at < OVERDUE_MS) {
      return false;
    }
    this.#take(due, now);
    return true;
  }

  #take(due: Due, now: number): void {
    const { name } = due;
    this.#forget(due);
    for (const [other, at] of this.#takenAt) {
      if (now - at < MIN_INTERVAL_MS) {
        // They are in their order.
        break;
      }
      this.#takenAt.delete(other);
    }
    this.#takenAt.delete(name);
    this.#takenAt.set(name, now);
  }

  /** Whether the name is due now or in a moment. */
  isDue(name: string): boolean {
    return (this.#due.get(name)?.at ?? Number.POSITIVE_INFINITY) - this.#clock.monotonic() <= MIN_INTERVAL_MS;
  }

  /** Resolves when a name is due or was added, after `atMostMs`, or when the signal is aborted. */
  async wait(atMostMs: number, signal: AbortSignal): Promise<void> {
    const next = (this.#order.first?.at ?? Number.POSITIVE_INFINITY) - this.#clock.monotonic();
    const abort = new AbortController();
    const added = new Promise<void>((resolve) => (this.#onWake = resolve));
    const sleepMs = Math.max(0, Math.min(next, atMostMs));
    const slept = this.#clock.sleep(sleepMs, AbortSignal.any([signal, abort.signal])).catch(() => undefined);
    await Promise.race([added, slept]);
    abort.abort();
  }

  #forget(due: Due | undefined): void {
    if (due !== undefined) {
      this.#due.delete(due.name);
      this.#order.delete(due);
    }
  }
}
