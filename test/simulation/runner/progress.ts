/** How far the play of many seeds has come. */
export interface Progress {
  readonly done: number;
  readonly total: number;
  readonly broken: number;
  /** How many were played by this process, and for how many seconds: what was resumed says nothing about the pace. */
  readonly played: number;
  readonly seconds: number;
}

const NUMBER = new Intl.NumberFormat("en-US");

/** `12,000 of 100,000 seeds, 41.3 schedules/s, 0 broken, 35 min left`. */
export function progressText({ done, total, broken, played, seconds }: Progress): string {
  const pace = seconds > 0 ? played / seconds : 0;
  const left = pace > 0 ? `, ${durationText((total - done) / pace)} left` : "";
  return `${NUMBER.format(done)} of ${NUMBER.format(total)} seeds, ${pace.toFixed(1)} schedules/s, ${NUMBER.format(broken)} broken${left}`;
}

/** `45 s`, `12 min`, `3 h 20 min`. */
export function durationText(seconds: number): string {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Where a {@link ProgressLine} is written. */
export interface Terminal {
  readonly isTTY?: boolean;
  write(text: string): unknown;
}

const TERMINAL_EVERY_MS = 200;
const PLAIN_EVERY_MS = 10_000;

/** A line that is written over on a terminal, and one every ten seconds elsewhere. */
export class ProgressLine {
  readonly #out: Terminal;
  readonly #now: () => number;
  #shownAt = Number.NEGATIVE_INFINITY;
  #isShown = false;

  /** @param now milliseconds of a monotonic clock */
  constructor(out: Terminal, now: () => number) {
    this.#out = out;
    this.#now = now;
    if (out.isTTY !== true) this.#shownAt = now();
  }

  /** Shows it if the last one is old enough. */
  show(progress: () => string): void {
    const now = this.#now();
    const isTerminal = this.#out.isTTY === true;
    if (now - this.#shownAt < (isTerminal ? TERMINAL_EVERY_MS : PLAIN_EVERY_MS)) return;
    this.#shownAt = now;
    this.#isShown = isTerminal;
    this.#out.write(isTerminal ? `\r\u001B[K${progress()}` : `${progress()}\n`);
  }

  /** Makes room for other lines. */
  clear(): void {
    if (this.#isShown) this.#out.write("\r\u001B[K");
    this.#isShown = false;
    if (this.#out.isTTY === true) this.#shownAt = Number.NEGATIVE_INFINITY;
  }
}
