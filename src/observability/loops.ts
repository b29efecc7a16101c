import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { Pulse } from "../pulse.ts";
import type { HealthCheck } from "./health.ts";

/** One loop that is watched. It rests until the first beat. */
export class Loop implements Pulse {
  readonly #clock: Clock;
  readonly #maxSilenceMs: number;
  readonly #onEnd: (loop: Loop) => void;
  /** Until when silence is all right, on the monotonic clock. */
  #due = Number.POSITIVE_INFINITY;
  #stopped: string | undefined;

  constructor(clock: Clock, maxSilenceMs: number, onEnd: (loop: Loop) => void) {
    this.#clock = clock;
    this.#maxSilenceMs = maxSilenceMs;
    this.#onEnd = onEnd;
  }

  beat(): void {
    this.pause(0);
  }

  pause(ms: number): void {
    this.#due = this.#clock.monotonic() + Math.max(0, ms) + this.#maxSilenceMs;
  }

  rest(): void {
    this.#due = Number.POSITIVE_INFINITY;
  }

  /** A clock on which each wait of the loop is a beat, so that a loop which waits on purpose is alive. */
  get clock(): Clock {
    const clock = this.#clock;
    return {
      monotonic: () => clock.monotonic(),
      now: () => clock.now(),
      sleep: async (ms, signal) => {
        this.pause(ms);
        try {
          await clock.sleep(ms, signal);
        } finally {
          this.beat();
        }
      },
      timer: (ms, onDue) => clock.timer(ms, onDue),
      timeout: (ms) => clock.timeout(ms),
    };
  }

  /**
   * Watches `work`, which may end when the signal is aborted and not before.
   * @throws what `work` throws.
   */
  async keep(work: (pulse: Loop) => Promise<void>, signal: AbortSignal): Promise<void> {
    this.beat();
    let why = "it has ended";
    try {
      await work(this);
    } catch (error) {
      why = messageOf(error);
      throw error;
    } finally {
      if (signal.aborted) {
        this.end();
      } else {
        this.#stopped = why;
      }
    }
  }

  /** Ends the watch: the loop is not needed any more. */
  end(): void {
    this.#onEnd(this);
  }

  /** What is wrong; `undefined` where nothing is. */
  problem(): string | undefined {
    if (this.#stopped !== undefined) {
      return `stopped: ${this.#stopped}`;
    }
    const lateMs = this.#clock.monotonic() - this.#due;
    if (lateMs <= 0) {
      return undefined;
    }
    const [silent, allowed] = [lateMs + this.#maxSilenceMs, this.#maxSilenceMs].map((ms) => Math.round(ms / 1_000));
    return `stuck: no sign of life for ${silent} s, and ${allowed} s are allowed`;
  }
}

/** The loops of a replica, by name. Each has a check of its own, which names what stopped or hangs. */
export class Loops<Name extends string> {
  readonly #clock: Clock;
  readonly #limits: Readonly<Record<Name, number>>;
  readonly #running: Readonly<Record<Name, Set<Loop>>>;

  /** @param limits milliseconds of silence after which a loop of this name counts as stuck, beside waits on purpose */
  constructor(clock: Clock, limits: Readonly<Record<Name, number>>) {
    this.#clock = clock;
    this.#limits = limits;
    const names = Object.keys(limits) as Name[];
    this.#running = Object.fromEntries(names.map((name) => [name, new Set()])) as unknown as Record<Name, Set<Loop>>;
  }

  /** Adds a loop. There may be several of one name, of which the first that hangs is told. */
  add(name: Name): Loop {
    const loops = this.#running[name];
    const loop = new Loop(this.#clock, this.#limits[name], (ended) => loops.delete(ended));
    loops.add(loop);
    return loop;
  }

  /** One check for each name, also for those of which none runs here. */
  checks(): readonly HealthCheck[] {
    return Object.entries<Set<Loop>>(this.#running).map(([name, loops]) => ({
      name,
      check: () => [...loops].map((loop) => loop.problem()).find((problem) => problem !== undefined),
    }));
  }
}
