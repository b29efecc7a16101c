import type { Clock } from "../../clock.ts";
import { Interruption } from "./interruption.ts";

/**
 * Milliseconds after the first signal in which a further one is no wish to force the end. Many that send one send it
 * twice: GNU timeout to its child and then to its process group, and npm passes on the Ctrl-C that the terminal has
 * sent to both.
 */
const ONE_WISH_MS = 1_000;

/** What the signals that a process gets ask of it. */
export class Signals {
  readonly #clock: Clock;
  readonly #interruption = new AbortController();
  #firstAt: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Aborted with an {@link Interruption} by the first signal. */
  get interruption(): AbortSignal {
    return this.#interruption.signal;
  }

  /**
   * The first signal ends the run cleanly. One that comes later than a second after it does not wait for that, unless
   * it is a SIGHUP, which a terminal that is closed, or an ssh session that breaks, sends: often twice, by the kernel
   * and by the shell.
   * @returns whether the process has to end at once
   */
  receive(signal: NodeJS.Signals): boolean {
    const now = this.#clock.monotonic();
    if (this.#firstAt === undefined) {
      this.#firstAt = now;
      this.#interruption.abort(new Interruption(signal));
      return false;
    }
    return signal !== "SIGHUP" && now - this.#firstAt > ONE_WISH_MS;
  }
}
