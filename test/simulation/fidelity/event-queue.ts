import type { OpenWatch, Told } from "./line.ts";

/** Generous: it is only used up where something is wrong, or the machine is busy with others. */
const PATIENCE_MS = 120_000;

/** Events of a watch, for a script that takes them one by one. */
export class EventQueue implements OpenWatch {
  readonly #told: Told[] = [];
  readonly #onStop: () => void;
  #wake: (() => void) | undefined;

  constructor(onStop: () => void) {
    this.#onStop = onStop;
  }

  get isEmpty(): boolean {
    return this.#told.length === 0;
  }

  push(told: Told): void {
    this.#told.push(told);
    this.#wake?.();
  }

  async next(): Promise<Told> {
    const first = this.#told.shift();
    if (first !== undefined) return first;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve, reject) => {
      this.#wake = resolve;
      timer = setTimeout(() => reject(new Error(`The watch told nothing for ${PATIENCE_MS} ms`)), PATIENCE_MS);
    });
    clearTimeout(timer);
    return this.next();
  }

  stop(): void {
    this.#onStop();
  }
}
