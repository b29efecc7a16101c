import type { Clock } from "../../../src/clock.ts";
import type { Schedule } from "./schedule.ts";

/** 2026-01-01T00:00:00Z: when each simulated world begins. */
const EPOCH_MS = Date.UTC(2026, 0, 1);

/** One for all: most time limits end after what they were for, and to make one takes longer than all else that is done then. */
const TIME_IS_UP = new DOMException("The operation was aborted due to timeout", "TimeoutError");

/** How a process stands still: alone, as by SIGSTOP, or with its machine. */
export type StandSort = "pause" | "suspend";

/**
 * One process of a simulated world: what happens to it happens at its pace. It may stand still and go on, and it may crash; then
 * nothing reaches it any more. Its clock of the day may be wrong, and its machine may be suspended.
 */
export class SimProcess {
  readonly name: string;
  readonly #schedule: Schedule;
  #isAlive = true;
  #isPaused = false;
  #wasSetBack = false;
  #wokeAt = Number.NEGATIVE_INFINITY;
  /** What has it stand still now, and ends by itself. */
  readonly #stops = new Set<{ readonly how: StandSort }>();
  /** What came while it stood still, in order. */
  #held: (() => void)[] = [];
  /** How far its clock of the day is off, in milliseconds. */
  #offMs = 0;
  /** How long its machine was suspended: its monotonic clock stood still. */
  #suspendedMs = 0;
  #suspendedAt: number | undefined;
  readonly #onCrash: (() => void)[] = [];
  /** The time limits that it has set and that are not over. */
  readonly #limits = new Set<AbortController>();
  #isOver = false;
  #timers = 0;

  constructor(schedule: Schedule, name: string) {
    this.#schedule = schedule;
    this.name = name;
    schedule.untilEnd(() => this.#endLimits());
  }

  get isAlive(): boolean {
    return this.#isAlive;
  }

  get isPaused(): boolean {
    return this.#isPaused;
  }

  /** How many times it waits for at this moment. */
  get timers(): number {
    return this.#timers;
  }

  /** Whether both its clocks may show a time as shorter than it was: that of the day was moved back, and its machine was suspended. */
  get missesTime(): boolean {
    return this.#wasSetBack && (this.#suspendedMs > 0 || this.#suspendedAt !== undefined);
  }

  /** When it last went on after it had stood still, on the clock of the world; `-Infinity` where it never did. */
  get wokeAt(): number {
    return this.#wokeAt;
  }

  /** Calls `run` in this process: now, once it goes on, or never where it has crashed. */
  reach(run: () => void): void {
    if (!this.#isAlive) return;
    if (this.#isPaused) {
      this.#held.push(run);
    } else {
      run();
    }
  }

  /** Ends it at this moment: it does nothing any more, and whatever it sent is on its way. */
  crash(): void {
    if (!this.#isAlive) return;
    this.#isAlive = false;
    this.#held = [];
    for (const run of this.#onCrash.splice(0)) run();
  }

  /** Has `run` called when it crashes, as connections end then. @returns what cancels it */
  onCrash(run: () => void): () => void {
    this.#onCrash.push(run);
    return () => {
      const index = this.#onCrash.indexOf(run);
      if (index >= 0) this.#onCrash.splice(index, 1);
    };
  }

  /** Has it stand still, as by SIGSTOP: its clocks go on. */
  pause(): void {
    this.#isPaused = true;
  }

  /** Suspends its machine: its monotonic clock stands still as well. */
  suspend(): void {
    this.#suspendedAt ??= this.#monotonic();
    this.pause();
  }

  /** Has it stand still. @returns what ends this: it goes on once nothing else has it stand still */
  stand(how: StandSort): () => void {
    const stop = { how };
    this.#stops.add(stop);
    this[how]();
    return () => {
      if (!this.#stops.delete(stop)) return;
      if (this.#stops.size === 0) this.wake();
      else if ([...this.#stops].every((other) => other.how === "pause")) this.#resumeMachine();
    };
  }

  /** Has it go on, whatever had it stand still: what came in between comes now. */
  wake(): void {
    this.#stops.clear();
    this.#resumeMachine();
    if (this.#isPaused) this.#wokeAt = this.#schedule.now;
    this.#isPaused = false;
    const held = this.#held;
    this.#held = [];
    for (const run of held) {
      this.#schedule.in(0, () => this.reach(run));
    }
  }

  #resumeMachine(): void {
    if (this.#suspendedAt === undefined) return;
    this.#suspendedMs = this.#schedule.now - this.#suspendedAt;
    this.#suspendedAt = undefined;
  }

  /** Moves its clock of the day, by milliseconds. */
  jump(ms: number): void {
    this.#wasSetBack ||= ms < 0;
    this.#offMs += ms;
  }

  #monotonic(): number {
    return this.#suspendedAt ?? this.#schedule.now - this.#suspendedMs;
  }

  readonly clock: Clock = {
    monotonic: () => this.#monotonic(),
    now: () => EPOCH_MS + this.#schedule.now + this.#offMs,
    sleep: (ms, signal) => this.#sleep(ms, signal),
    timer: (ms, onDue) => this.#timer(ms, onDue),
    timeout: (ms) => this.#timeout(ms),
  };

  /** Not counted: it is there until its time, also where nobody has it any more, and Node.js forgets it then. */
  #timeout(ms: number): AbortSignal {
    const limit = new AbortController();
    if (this.#isOver) {
      limit.abort(TIME_IS_UP);
    } else {
      this.#limits.add(limit);
      this.#wakeAfter(ms, () => {
        this.#limits.delete(limit);
        limit.abort(TIME_IS_UP);
      });
    }
    return limit.signal;
  }

  #endLimits(): void {
    this.#isOver = true;
    for (const limit of this.#limits) limit.abort(TIME_IS_UP);
    this.#limits.clear();
  }

  /** A timer that somebody waits for. */
  #timer(ms: number, onDue: () => void): () => void {
    let isOver = false;
    this.#timers++;
    const end = (): void => {
      if (!isOver) this.#timers--;
      isOver = true;
    };
    const cancel = this.#wakeAfter(ms, () => {
      end();
      onDue();
    });
    return () => {
      end();
      cancel();
    };
  }

  /**
   * Timers go by the monotonic clock: a suspension makes them late. None is shorter than a millisecond, as in Node.js: code that waits for
   * what a sum of fractions leaves would wait forever for a time that does not pass.
   */
  #wakeAfter(wantedMs: number, onDue: () => void): () => void {
    const ms = Math.max(1, wantedMs);
    let isOver = false;
    const dueAt = this.#monotonic() + ms;
    const check = (): void => {
      const leftMs = dueAt - this.#monotonic();
      if (isOver) return;
      // Less than that is what sums of fractions leave.
      if (leftMs > 0.001) {
        cancel = this.#schedule.in(leftMs, () => this.reach(check));
      } else {
        isOver = true;
        onDue();
      }
    };
    let cancel = this.#schedule.in(ms, () => this.reach(check));
    return () => {
      isOver = true;
      cancel();
    };
  }

  async #sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const cancel = this.#timer(ms, resolve);
    const onAbort = (): void => {
      cancel();
      reject(signal?.reason as Error);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    // It never wakes where the world is over before that, and nothing keeps it.
    const forget = (): void => signal?.removeEventListener("abort", onAbort);
    this.#schedule.untilEnd(forget);
    try {
      await promise;
    } finally {
      forget();
      this.#schedule.forgetEnd(forget);
    }
  }
}
