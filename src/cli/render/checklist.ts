import type { MigrationEvent, Tally } from "../../migrator/types.ts";
import { describeCounts, describeEvent, doneIn, progressLine } from "./describe-event.ts";
import { oneLine } from "./printable.ts";

/** A line of a checklist that stays. */
export interface ChecklistLine {
  /** `done` is a step; `note` says what happened in between, and `warning` that it calls for attention. */
  readonly mark: "done" | "note" | "warning";
  readonly text: string;
  /** Milliseconds that the step took; none for what is no step. */
  readonly tookMs?: number;
}

/** What is under way. */
export type Active =
  | { readonly kind: "waiting"; readonly text: string }
  | { readonly kind: "rewriting"; readonly tally: Readonly<Tally>; readonly since: number };

/** The steps of one run, as its events tell them; it decides what a terminal shows, and draws nothing. */
export class Checklist {
  #active: Active | undefined;
  /** When the wait for requests of before began; `undefined` outside of it. */
  #settlingSince: number | undefined;
  /** When the last step ended. */
  #since: number;
  #isWaitTold = false;

  /** @param now when the run began, in milliseconds on a monotonic clock, as everywhere here */
  constructor(now: number) {
    this.#since = now;
  }

  /** What is under way now, for the line that is drawn again and again. */
  get active(): Active | undefined {
    return this.#active;
  }

  /** @returns the lines that an event adds */
  take(event: MigrationEvent, now: number): readonly ChecklistLine[] {
    const text = describeEvent(event) ?? "";
    const isWaitTold = this.#isWaitTold;
    this.#isWaitTold = event.type === "waiting";
    switch (event.type) {
      case "progress": {
        const since = this.#active?.kind === "rewriting" ? this.#active.since : now;
        this.#active = { kind: "rewriting", tally: event.tally, since };
        return [];
      }
      case "settling":
        this.#settlingSince ??= now;
        this.#active = { kind: "waiting", text };
        return [];
      case "settled": {
        const since = this.#settlingSince ?? now;
        this.#settlingSince = undefined;
        this.#active = undefined;
        this.#since = now;
        return event.isLongPast ? [] : [{ mark: "done", text, tookMs: now - since }];
      }
      case "waiting": {
        const broken = event.for === "apiServer" ? [] : this.#brokenOff(now);
        this.#active = { kind: "waiting", text };
        // Each try says it again, and the line at the end shows the latest.
        return isWaitTold ? broken : [...broken, { mark: "note", text }];
      }
      case "beginsAgain":
        return [...this.#brokenOff(now), { mark: "warning", text }];
      case "warning":
        return [{ mark: "warning", text }];
      case "resumed":
        return [{ mark: "note", text }];
      case "converged":
      case "frozen":
      case "pruned":
      case "unfrozen": {
        const rewritten = this.#rewritten(now);
        const tookMs = now - this.#since;
        this.#active = undefined;
        this.#since = now;
        return [...rewritten, { mark: "done", text, tookMs }];
      }
    }
  }

  /** The lines that the end of the run adds. */
  end(now: number): readonly ChecklistLine[] {
    const lines = [...this.#brokenOff(now), ...this.#rewritten(now)];
    this.#active = undefined;
    return lines;
  }

  /** A wait that did not end is no step that was done. */
  #brokenOff(now: number): readonly ChecklistLine[] {
    const since = this.#settlingSince;
    if (since === undefined) return [];
    this.#settlingSince = undefined;
    this.#active = undefined;
    this.#since = now;
    return [{ mark: "warning", text: "interrupted: requests of before may still be under way", tookMs: now - since }];
  }

  #rewritten(now: number): readonly ChecklistLine[] {
    if (this.#active?.kind !== "rewriting") return [];
    const { since, tally } = this.#active;
    this.#since = now;
    return [{ mark: tally.failed > 0 ? "warning" : "done", text: describeCounts(tally), tookMs: now - since }];
  }
}

/** A narrower bar shows nothing, and is left out; in columns, as the widest. */
const MIN_BAR_WIDTH = 4;
const MAX_BAR_WIDTH = 30;

/**
 * What is under way on one line that does not wrap.
 * @param columns of the terminal
 */
export function activeLine(active: Active, now: number, columns: number): string {
  const room = Math.max(1, columns - 1);
  if (active.kind === "waiting") {
    return cut(oneLine(`  … ${active.text}`), room);
  }
  const { since, tally } = active;
  const text = progressLine(tally, now - since);
  const done = doneIn(tally);
  const share = done / Math.max(tally.total, done, 1);
  const width = Math.min(MAX_BAR_WIDTH, room - text.length - "  … [] ".length);
  const filled = Math.round(share * width);
  const bar = width < MIN_BAR_WIDTH ? "" : `[${"#".repeat(filled).padEnd(width, ".")}] `;
  return cut(`  … ${bar}${text}`, room);
}

function cut(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, width - 1)}…`;
}
