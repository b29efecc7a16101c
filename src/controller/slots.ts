/** Bounds how many pieces of work go on at once. Work that only waits gives its slot back for that time. */
export class Slots {
  readonly #size: number;
  readonly #onFree: () => void;
  readonly #queue: (() => void)[] = [];
  #taken = 0;

  /** @param onFree called whenever new work may be begun */
  constructor(size: number, onFree: () => void) {
    this.#size = size;
    this.#onFree = onFree;
  }

  /** How many pieces of new work may be begun. Work that was begun before comes first. */
  get free(): number {
    return Math.max(0, this.#size - this.#taken - this.#queue.length);
  }

  /** Takes a slot for new work, which {@link free} has promised, or for work that cannot be held up. */
  take(): void {
    this.#taken++;
  }

  /** Gives a slot back. */
  give(): void {
    this.#taken--;
    if (this.#taken < this.#size) {
      this.#queue.shift()?.();
    }
    if (this.free > 0) {
      this.#onFree();
    }
  }

  /** Gives the slot back while `wait` goes on, and has it again afterwards. */
  async parked(wait: () => Promise<void>): Promise<void> {
    this.give();
    try {
      await wait();
    } catch (error) {
      // Whoever is told to end does not queue for that.
      this.take();
      throw error;
    }
    if (this.#taken < this.#size) {
      this.take();
      return;
    }
    await new Promise<void>((resolve) => {
      this.#queue.push(() => {
        this.take();
        resolve();
      });
    });
  }
}
