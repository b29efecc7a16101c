import type { Random } from "../../chaos/random.ts";

interface Due {
  readonly at: number;
  /** Orders events of the same millisecond: by chance, so that each order occurs. */
  readonly turn: number;
  readonly seq: number;
  run: () => void;
  isCancelled: boolean;
}

/** More events at one moment than any world has, so that code that never waits for a time is found out. */
const MOST_AT_ONCE = 100_000;

/**
 * The one queue of everything that happens in a simulated world, in the order of simulated time. Code that waits is woken by an
 * event and runs until it waits again; then the next event is taken. The same seed gives the same order.
 */
export class Schedule {
  readonly #random: Random;
  readonly #heap: Due[] = [];
  #now = 0;
  #seq = 0;
  /** Of this moment. */
  #eventsAtOnce = 0;
  #isOver = false;
  readonly #atEnd = new Set<() => void>();

  constructor(random: Random) {
    this.#random = random;
  }

  /** Milliseconds of simulated time since the world began. */
  get now(): number {
    return this.#now;
  }

  /** Has `run` called after `ms` milliseconds, 0 or more. It must not throw. @returns what cancels it */
  in(ms: number, run: () => void): () => void {
    const due: Due = {
      at: this.#now + Math.max(0, ms),
      turn: this.#random(),
      seq: this.#seq++,
      run,
      isCancelled: false,
    };
    if (!this.#isOver) this.#push(due);
    return () => {
      due.isCancelled = true;
      // It stays in the queue until its time, and would keep a request and its answer until then.
      due.run = nothing;
    };
  }

  /** Resolves after `ms` milliseconds. */
  wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.in(ms, resolve);
    });
  }

  /** Has `run` called when the world is over for good, see {@link end}; at once where it is. */
  untilEnd(run: () => void): void {
    if (this.#isOver) run();
    else this.#atEnd.add(run);
  }

  /** Takes back what {@link untilEnd} has. */
  forgetEnd(run: () => void): void {
    this.#atEnd.delete(run);
  }

  /**
   * Nothing happens any more. What waits for a signal is told, since Node.js keeps each signal that others are made of until it is
   * aborted, and with it the whole world.
   */
  end(): Promise<void> {
    this.#isOver = true;
    return new Promise((resolve) => {
      setImmediate(() => {
        this.#heap.length = 0;
        for (const run of this.#atEnd) run();
        this.#atEnd.clear();
        settle();
        resolve();
      });
    });
  }

  /**
   * Lets the world go on until `isOver`, or until nothing is left to happen, or until `limitMs` of simulated time have passed.
   * @returns whether `isOver` became true
   * @throws {Error} where so much happens at one moment that no time passes any more
   */
  run(isOver: () => boolean, limitMs: number): Promise<boolean> {
    return new Promise((resolve, reject) => {
      // Outside of promises, where alone the promises of others can be made to run to their ends.
      setImmediate(() => {
        try {
          resolve(this.#play(isOver, this.#now + limitMs));
        } catch (error) {
          reject(error);
        }
      });
    });
  }

  #play(isOver: () => boolean, end: number): boolean {
    settle();
    while (!isOver()) {
      const next = this.#heap[0];
      if (next === undefined || next.at > end) {
        this.#now = next === undefined ? this.#now : end;
        return false;
      }
      this.#pop();
      if (!next.isCancelled) {
        this.#count(next.at);
        next.run();
        settle();
      }
    }
    return true;
  }

  #count(at: number): void {
    this.#eventsAtOnce = at === this.#now ? this.#eventsAtOnce + 1 : 1;
    this.#now = at;
    if (this.#eventsAtOnce > MOST_AT_ONCE) throw new Error(`livelock: ${MOST_AT_ONCE} events, and no time passes`);
  }

  #push(due: Due): void {
    const heap = this.#heap;
    let index = heap.push(due) - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!isBefore(due, heap[parent] as Due)) break;
      heap[index] = heap[parent] as Due;
      index = parent;
    }
    heap[index] = due;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1] as Due, heap[child] as Due)) child++;
      if (!isBefore(heap[child] as Due, last)) break;
      heap[index] = heap[child] as Due;
      index = child;
    }
    heap[index] = last;
  }
}

function nothing(): void {}

function isBefore(a: Due, b: Due): boolean {
  if (a.at !== b.at) return a.at < b.at;
  return a.turn === b.turn ? a.seq < b.seq : a.turn < b.turn;
}

/**
 * Runs all code until it waits for an event: the promises, and the ticks that streams take. Node.js does so after each callback;
 * a turn of its event loop for each event would take three times as long as the rest.
 */
function settle(): void {
  (process as unknown as { _tickCallback(): void })._tickCallback();
}
