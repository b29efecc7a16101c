import { type Clock, systemClock } from "../../src/clock.ts";

interface Due {
  readonly at: number;
  readonly run: () => void;
}

/** Time that passes when everybody waits for it. */
export class VirtualTime {
  now = 0;
  #due: Due[] = [];

  in(ms: number, run: () => void): () => void {
    const due = { at: this.now + ms, run };
    this.#due.push(due);
    this.#due.sort((a, b) => a.at - b.at);
    return () => {
      this.#due = this.#due.filter((one) => one !== due);
    };
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    await new Promise<void>((resolve) => {
      const cancel = this.in(ms, resolve);
      const onAbort = (): void => {
        cancel();
        resolve();
      };
      signal?.addEventListener("abort", onAbort, { once: true });
    });
    signal?.throwIfAborted();
  }

  async until(over: Promise<unknown>): Promise<void> {
    const end = new AbortController();
    void over.finally(() => end.abort()).catch(() => undefined);
    while (!end.signal.aborted) {
      await new Promise((resolve) => setImmediate(resolve));
      const next = this.#due.shift();
      if (next === undefined) continue;
      this.now = next.at;
      next.run();
    }
  }

  get clock(): Clock {
    return {
      monotonic: () => this.now,
      now: () => this.now,
      sleep: (ms, signal) => this.sleep(ms, signal),
      timer: (ms, onDue) => this.in(ms, onDue),
      // No test waits for it.
      timeout: (ms) => systemClock.timeout(ms),
    };
  }
}
