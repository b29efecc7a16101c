import { styleText } from "node:util";
import { createLogUpdate } from "log-update";
import type { Clock } from "../../clock.ts";
import type { MigrationEvent } from "../../old/migrator/events.ts";
import type { MigrationResult } from "../../old/migrator/result.ts";
import { activeLine, Checklist, type ChecklistLine } from "./checklist.ts";
import {
  describeChanged,
  describeEvent,
  describeFailures,
  describeKeptFields,
  describeResult,
  durationText,
  progressLine,
} from "./describe-event.ts";
import type { RUN_FORMATS } from "../flags/run-flags.ts";
import type { CliIo } from "./io.ts";
import { eventLine } from "./document.ts";
import { oneLine, printable } from "./printable.ts";
import { codeOf, errorLine } from "./report-error.ts";

/** Shows one run to a user. */
export interface Reporter {
  event(event: MigrationEvent): void;
  /** Shows a message. */
  note(text: string): void;
  result(result: MigrationResult): void;
  error(error: unknown): void;
}

const BAR_INTERVAL_MS = 100;
const LINE_INTERVAL_MS = 5_000;
const JSON_INTERVAL_MS = 1_000;

/** The reporter for an output: JSON lines, a checklist on a terminal, plain lines elsewhere. */
export function createReporter(
  io: CliIo,
  resource: string,
  options: { readonly format: (typeof RUN_FORMATS)[number]; readonly clock: Clock },
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
      if (event.type !== "progress" || isDue()) {
        write(event);
      }
    },
    note: (message) => write({ type: "note", message }),
    result: (result) => write({ type: "result", ...result }),
    error: (error) => {
      write({ type: "error", code: codeOf(error), message: error instanceof Error ? error.message : String(error) });
      io.stderr.write(`${errorLine(error)}\n`);
    },
  };
}

/** What a result and an error say after the run, in pipes as on a terminal. */
function endings(io: CliIo, elapsedMs: () => number, line: (text: string) => void): Omit<Reporter, "event" | "note"> {
  const details = (lines: readonly string[]): void => {
    io.stderr.write(lines.map((text) => `${oneLine(text)}\n`).join(""));
  };
  return {
    result: (result) => {
      line(describeResult(result, elapsedMs()));
      details([
        ...section("could not be migrated", describeFailures(result)),
        ...section("with managedFields that still name another version", describeKeptFields(result)),
        ...section(
          "changed beyond their encoding, by admission webhooks or policies, or by the API server, which emptied managedFields that name a version which is gone",
          describeChanged(result),
        ),
      ]);
    },
    error: (error) => void io.stderr.write(`${errorLine(error)}\n`),
  };
}

function section(title: string, lines: readonly string[]): readonly string[] {
  return lines.length === 0 ? [] : [`objects ${title}:`, ...lines];
}

function lineReporter(io: CliIo, resource: string, clock: Clock): Reporter {
  const startedAt = clock.monotonic();
  let firstProgressAt: number | undefined;
  const isProgressDue = throttle(clock, LINE_INTERVAL_MS);
  // In an outage every request fails repeatedly; showing one of the failures is enough.
  const isRetryDue = throttle(clock, LINE_INTERVAL_MS);
  const line = (text: string): void => void io.stdout.write(`${oneLine(`${resource}: ${text}`)}\n`);
  return {
    event: (event) => {
      if (event.type === "progress") {
        firstProgressAt ??= clock.monotonic();
        if (isProgressDue()) {
          line(progressLine(event.counts, clock.monotonic() - firstProgressAt));
        }
        return;
      }
      const text = event.type === "retrying" && !isRetryDue() ? undefined : describeEvent(event);
      if (text !== undefined) {
        line(text);
      }
    },
    note: line,
    ...endings(io, () => clock.monotonic() - startedAt, line),
  };
}

/** A terminal has one line at its end that is drawn again and again: the result of one resource may come while another one is at work. */
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
  const isRetryDue = throttle(clock, LINE_INTERVAL_MS);
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
      const lines = event.type === "retrying" && !isRetryDue() ? [] : checklist.take(event, clock.monotonic());
      const { active } = checklist;
      live.latest =
        active === undefined ? "" : activeLine(active, clock.monotonic(), stdout.columns ?? DEFAULT_COLUMNS);
      if (lines.length > 0) {
        write(lines.map(lineOf));
      } else if (live.latest !== "" && isDrawDue()) {
        live.update(live.latest);
      }
    },
    note: (text) => write([lineOf({ mark: "note", text })]),
    error: (thrown) => {
      end();
      error(thrown);
    },
    result: (shown) => {
      end(shown.isDryRun === true || shown.outcome === "dry-run");
      result(shown);
    },
  };
}
