/** A chunk of fewer bytes is copied: to keep it takes a few hundred bytes beside its own. */
const SMALL_BYTES = 16_384;
const LARGEST_BLOCK_BYTES = 65_536;
const SMALLEST_BLOCK_BYTES = 4_096;

/** The bytes of a body as they arrive, in memory that follows from how many they are, and not from how they were cut. */
export class CollectedBytes {
  #blocks: Buffer[] = [];
  /** The last block, as far as chunks were copied into it. */
  #open: Buffer | undefined;
  #used = 0;
  #size = 0;

  /** How many there are. */
  get size(): number {
    return this.#size;
  }

  add(chunk: Buffer): void {
    const isFirst = this.#size === 0;
    this.#size += chunk.length;
    // Most bodies come in one piece.
    if (isFirst || chunk.length >= SMALL_BYTES) {
      this.#close();
      this.#blocks.push(chunk);
    } else {
      this.#copy(chunk);
    }
  }

  /** All of them, in one piece; none are kept. */
  take(): Buffer {
    this.#close();
    const [first] = this.#blocks;
    const whole = first !== undefined && this.#blocks.length === 1 ? first : Buffer.concat(this.#blocks, this.#size);
    this.drop();
    return whole;
  }

  /** Lets go of all of them. */
  drop(): void {
    this.#blocks = [];
    this.#open = undefined;
    this.#size = 0;
  }

  #copy(chunk: Buffer): void {
    if (this.#open === undefined || this.#used + chunk.length > this.#open.length) {
      this.#close();
      const wanted = Math.max(SMALLEST_BLOCK_BYTES, Math.min(this.#size, LARGEST_BLOCK_BYTES));
      this.#open = Buffer.allocUnsafeSlow(Math.max(wanted, chunk.length));
      this.#used = 0;
    }
    chunk.copy(this.#open, this.#used);
    this.#used += chunk.length;
  }

  #close(): void {
    if (this.#open !== undefined) this.#blocks.push(this.#open.subarray(0, this.#used));
    this.#open = undefined;
  }
}
