import { styleText } from "node:util";
import { createLogUpdate } from "log-update";
import type { Clock } from "../../clock.ts";
import type { MigrationEvent, MigrationResult, Tally } from "../../migrator/types.ts";
import type { RunFormat } from "../flags/run-flags.ts";
import { activeLine, Checklist, type ChecklistLine } from "./checklist.ts";
import {
  describeEvent,
  describeFailures,
  describeFieldVersions,
  describeResult,
  doneIn,
  durationText,
  progressLine,
  type RunPurpose,
} from "./describe-event.ts";
import { eventLine } from "./document.ts";
import type { CliIo } from "./io.ts";
import { oneLine, printable } from "./printable.ts";
import { codeOf, errorLine } from "./report-error.ts";

/** Shows one run to a user. */
export interface Reporter {
  event(event: MigrationEvent): void;
  /** Shows a message. */
  note(text: string): void;
  /** @param purpose what the run was for. @default "migrate" */
  result(result: MigrationResult, purpose?: RunPurpose): void;
  error(error: unknown): void;
}

const BAR_INTERVAL_MS = 100;
const LINE_INTERVAL_MS = 5_000;
const WAIT_INTERVAL_MS = 60_000;
const JSON_INTERVAL_MS = 1_000;

/** The reporter for an output: JSON lines, a checklist on a terminal, plain lines elsewhere. */
export function createReporter(
  io: CliIo,
  resource: string,
  options: { readonly format: RunFormat; readonly clock: Clock },
): Reporter {
  if (options.format === "json") {
    return jsonReporter(io, resource, options.clock);
  }
  return io.stdout.isTTY === true
    ? checklistReporter(io, resource, options.clock)
    : lineReporter(io, resource, options.clock);
}

/** Lets one call through in every interval. */
function throttle(clock: Clock, intervalMs: number): () => boolean {
  let last = Number.NEGATIVE_INFINITY;
  return () => {
    const now = clock.monotonic();
    const due = now - last >= intervalMs;
    last = due ? now : last;
    return due;
  };
}

function jsonReporter(io: CliIo, resource: string, clock: Clock): Reporter {
  const isDue = throttle(clock, JSON_INTERVAL_MS);
  const write = (line: object): void => {
    io.stdout.write(`${printable(eventLine(clock.now(), { resource, ...line }))}\n`);
  };
  return {
    event: (event) => {
      if (event.type !== "progress") write(event);
      else if (isDue()) write({ type: "progress", counts: countsIn(event.tally) });
    },
    note: (message) => write({ type: "note", message }),
    result: ({ tally, ...result }) => {
      const objects = tally && {
        counts: countsIn(tally),
        failures: tally.failures,
        fieldVersions: tally.fieldVersions,
      };
      write({ type: "result", ...result, ...objects });
    },
    error: (error) => {
      write({ type: "error", code: codeOf(error), message: error instanceof Error ? error.message : String(error) });
      tellError(io, error);
    },
  };
}

/** Errors that were told. One may end several runs, as an interruption does, or an API server that is missing. */
const TOLD_ERRORS = new WeakSet<object>();

function tellError({ stderr }: CliIo, error: unknown): void {
  if (error instanceof Error) {
    if (TOLD_ERRORS.has(error)) return;
    TOLD_ERRORS.add(error);
  }
  stderr.write(`${errorLine(error)}\n`);
}

/** Field names are those of `-o json`. */
export function countsIn(tally: Readonly<Tally>): object {
  const { changed, current, failed, gone, newer, rewritten, total } = tally;
  return { done: doneIn(tally), total, migrated: rewritten, current, newer, gone, failed, changed };
}

/** What a result and an error say after the run, in pipes as on a terminal. */
function endings(io: CliIo, elapsedMs: () => number, line: (text: string) => void): Omit<Reporter, "event" | "note"> {
  return {
    result: (result, purpose) => {
      line(describeResult(result, elapsedMs(), purpose));
      const fields = describeFieldVersions(result);
      if (fields !== undefined) line(fields);
      const failures = describeFailures(result);
      const details = failures.length === 0 ? [] : ["objects could not be migrated:", ...failures];
      io.stderr.write(details.map((text) => `${oneLine(text)}\n`).join(""));
    },
    error: (error) => tellError(io, error),
  };
}

/** What was told last of a wait that several runs share, by where it was told. */
const SHARED_WAITS = new WeakMap<CliIo["stdout"], { readonly key: string; readonly resource: string; at: number }>();
const SHARED_MS = 1_000;

/** Whether an event of the wait that several runs share was told a moment ago, for another one. */
function isTold({ stdout }: CliIo, resource: string, event: MigrationEvent, now: number): boolean {
  const isShared = event.type === "converged" || event.type === "settling" || event.type === "settled";
  if (!isShared && !(event.type === "waiting" && event.for === "apiServer")) return false;
  const key = JSON.stringify(event);
  const last = SHARED_WAITS.get(stdout);
  if (last?.key === key && last.resource !== resource && now - last.at < SHARED_MS) return true;
  SHARED_WAITS.set(stdout, { key, resource, at: now });
  return false;
}

function lineReporter(io: CliIo, resource: string, clock: Clock): Reporter {
  const startedAt = clock.monotonic();
  let firstProgressAt: number | undefined;
  const isProgressDue = throttle(clock, LINE_INTERVAL_MS);
  let isWaitDue = throttle(clock, WAIT_INTERVAL_MS);
  const line = (text: string): void => void io.stdout.write(`${oneLine(`${resource}: ${text}`)}\n`);
  return {
    event: (event) => {
      if (event.type === "progress") {
        const now = clock.monotonic();
        const isDue = isProgressDue();
        // The first one says that nothing is done yet.
        if (firstProgressAt === undefined) firstProgressAt = now;
        else if (isDue) line(progressLine(event.tally, now - firstProgressAt));
        return;
      }
      // A wait is told by each try. Once a minute is enough for a log.
      if (event.type !== "waiting") isWaitDue = throttle(clock, WAIT_INTERVAL_MS);
      else if (!isWaitDue()) return;
      const text = describeEvent(event);
      if (text !== undefined && !isTold(io, resource, event, clock.monotonic())) line(text);
    },
    note: line,
    ...endings(io, () => clock.monotonic() - startedAt, line),
  };
}

/**
 * A terminal has one line at its end that is drawn again and again: the result of one resource may come while another
 * one is at work.
 */
interface LiveLine {
  readonly update: ReturnType<typeof createLogUpdate>;
  latest: string;
  /** The resource that the lines above are about. */
  heading: string;
}

const LIVE_LINES = new WeakMap<CliIo["stdout"], LiveLine>();

function liveLineOn(stdout: CliIo["stdout"]): LiveLine {
  const live = LIVE_LINES.get(stdout) ?? {
    update: createLogUpdate(stdout, { showCursor: true }),
    latest: "",
    heading: "",
  };
  LIVE_LINES.set(stdout, live);
  return live;
}

const MARKS = { done: ["✔", "green"], note: ["·", "dim"], warning: ["!", "yellow"] } as const;
const DEFAULT_COLUMNS = 80;

/** The resource once, one line for each step with how long it took, and what is under way in a line at the end. */
function checklistReporter(io: CliIo, resource: string, clock: Clock): Reporter {
  const { stdout } = io;
  const live = liveLineOn(stdout);
  const startedAt = clock.monotonic();
  const checklist = new Checklist(startedAt);
  const isDrawDue = throttle(clock, BAR_INTERVAL_MS);
  const painted = (style: Parameters<typeof styleText>[0], text: string): string =>
    styleText(style, text, { stream: stdout });
  const write = (lines: readonly string[]): void => {
    live.update.clear();
    const heading = live.heading === resource ? [] : [painted("bold", oneLine(resource))];
    live.heading = resource;
    stdout.write([...heading, ...lines].map((text) => `${text}\n`).join(""));
    if (live.latest !== "") {
      live.update(live.latest);
    }
  };
  const lineOf = ({ mark, text, tookMs }: ChecklistLine): string => {
    const [sign, style] = MARKS[mark];
    const took = tookMs === undefined ? "" : painted("dim", `  ${durationText(tookMs)}`);
    return `  ${painted(style, sign)} ${oneLine(text)}${took}`;
  };
  const end = (rewritesNothing = false): void => {
    live.latest = "";
    const last = checklist.end(clock.monotonic());
    const lines = rewritesNothing ? [] : last.map(lineOf);
    live.update.clear();
    live.update.done();
    if (lines.length > 0) {
      write(lines);
    }
  };
  const { error, result } = endings(
    io,
    () => clock.monotonic() - startedAt,
    (text) => write([`  ${oneLine(text)}`]),
  );
  return {
    event: (event) => {
      const now = clock.monotonic();
      const taken = checklist.take(event, now);
      const lines = isTold(io, resource, event, now) ? [] : taken;
      const { active } = checklist;
      live.latest = active === undefined ? "" : activeLine(active, now, stdout.columns ?? DEFAULT_COLUMNS);
      if (lines.length > 0) {
        write(lines.map(lineOf));
      } else if (live.latest === "") {
        live.update.clear();
      } else if (isDrawDue()) {
        live.update(live.latest);
      }
    },
    note: (text) => write([lineOf({ mark: "note", text })]),
    error: (thrown) => {
      end();
      error(thrown);
    },
    result: (shown, purpose) => {
      end(purpose === "dry-run");
      result(shown, purpose);
    },
  };
}
