import type { Clock } from "./clock.ts";

/** Ends the wait of a loop early, where something happened that the loop would find only with its next turn. */
export class Waker {
  #woken = Promise.withResolvers<void>();

  /** Ends the wait that is under way, or the next one. */
  wake(): void {
    this.#woken.resolve();
  }

  /** A loop calls this before it looks: what wakes it from here on ends the wait after the look. */
  begin(): void {
    this.#woken = Promise.withResolvers();
  }

  /**
   * Waits `ms` milliseconds, or until the loop is woken.
   * @throws the signal's reason where it is aborted.
   */
  async wait(ms: number, clock: Pick<Clock, "sleep">, signal: AbortSignal): Promise<void> {
    const over = new AbortController();
    const sleeping = clock.sleep(ms, AbortSignal.any([signal, over.signal])).catch(() => undefined);
    await Promise.race([sleeping, this.#woken.promise]);
    over.abort();
    await sleeping;
    signal.throwIfAborted();
  }
}
