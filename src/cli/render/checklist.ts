import type { Counts } from "../../old/migrator/rewrite/counts.ts";
import type { MigrationEvent } from "../../old/migrator/events.ts";
import { describeCounts, describeEvent, progressLine } from "./describe-event.ts";
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
  | { readonly kind: "rewriting"; readonly counts: Readonly<Counts>; readonly since: number };

const STEPS: ReadonlySet<MigrationEvent["type"]> = new Set([
  "frozen",
  "proven",
  "converged",
  "encryptingAlike",
  "pruned",
  "unfrozen",
]);
const WARNINGS: ReadonlySet<MigrationEvent["type"]> = new Set(["warning", "startingAgain"]);
/** What goes on until the next event that is no note. */
const WAITS: ReadonlySet<MigrationEvent["type"]> = new Set(["contended", "waiting", "yielding"]);

/** The steps of one run, as its events tell them; it decides what a terminal shows, and draws nothing. */
export class Checklist {
  #active: Active | undefined;
  #settlingSince: number | undefined;
  #since: number;

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
    if (event.type === "progress") {
      const settled = this.#settled(now);
      const since = this.#active?.kind === "rewriting" ? this.#active.since : now;
      this.#active = { kind: "rewriting", counts: event.counts, since };
      return settled;
    }
    const text = describeEvent(event) ?? "";
    if (event.type === "settling") {
      this.#settlingSince ??= now;
      this.#active = { kind: "waiting", text };
      return [];
    }
    if (WAITS.has(event.type)) {
      this.#active = { kind: "waiting", text };
    }
    return STEPS.has(event.type) ? this.#step(text, now) : [{ mark: markOf(event), text }];
  }

  #step(text: string, now: number): readonly ChecklistLine[] {
    const before = [...this.#settled(now), ...this.#rewritten(now)];
    const tookMs = now - this.#since;
    this.#active = undefined;
    this.#since = now;
    return [...before, { mark: "done", text, tookMs }];
  }

  /** The lines that the end of the run adds. */
  end(now: number): readonly ChecklistLine[] {
    const lines = this.#rewritten(now);
    this.#active = undefined;
    return lines;
  }

  #settled(now: number): readonly ChecklistLine[] {
    const since = this.#settlingSince;
    if (since === undefined) {
      return [];
    }
    this.#settlingSince = undefined;
    this.#since = now;
    return [{ mark: "done", text: "writes that were under way have landed", tookMs: now - since }];
  }

  #rewritten(now: number): readonly ChecklistLine[] {
    if (this.#active?.kind !== "rewriting") {
      return [];
    }
    const { counts, since } = this.#active;
    this.#since = now;
    return [{ mark: counts.failed > 0 ? "warning" : "done", text: describeCounts(counts), tookMs: now - since }];
  }
}

function markOf({ type }: MigrationEvent): ChecklistLine["mark"] {
  return WARNINGS.has(type) ? "warning" : "note";
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
  const { counts, since } = active;
  const text = progressLine(counts, now - since);
  const share = counts.done / Math.max(counts.total ?? counts.done, counts.done, 1);
  const width = Math.min(MAX_BAR_WIDTH, room - text.length - "  … [] ".length);
  const filled = Math.round(share * width);
  const bar = width < MIN_BAR_WIDTH ? "" : `[${"#".repeat(filled).padEnd(width, ".")}] `;
  return cut(`  … ${bar}${text}`, room);
}

function cut(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, width - 1)}…`;
}
