import { createLogUpdate } from "log-update";
import type { Clock } from "../../clock.ts";
import type { Counts } from "../../migrator/rewrite/counts.ts";
import type { MigrationEvent } from "../../migrator/events.ts";
import type { MigrationResult } from "../../migrator/result.ts";
import type { Verification } from "../../verify/verification.ts";
import {
  describeChanged,
  describeEvent,
  describeFailures,
  describeKeptFields,
  describeResult,
  progressLine,
} from "./describe-event.ts";
import type { RUN_FORMATS } from "../flags/run-flags.ts";
import type { CliIo } from "./io.ts";
import { oneLine, printable } from "./printable.ts";
import { describeNotShown, describeUnnamed, describeVerification } from "./render-verification.ts";
import { codeOf, errorLine } from "./report-error.ts";

/** Shows one run to a user. */
export interface Reporter {
  event(event: MigrationEvent): void;
  /** Shows a message. */
  note(text: string): void;
  result(result: MigrationResult): void;
  verification(verification: Verification): void;
  error(error: unknown): void;
}

const BAR_INTERVAL_MS = 100;
const LINE_INTERVAL_MS = 5_000;
const JSON_INTERVAL_MS = 1_000;
const BAR_WIDTH = 30;

/** The reporter for an output: JSON lines, a progress bar on a terminal, plain lines elsewhere. */
export function createReporter(
  io: CliIo,
  resource: string,
  options: { readonly format: (typeof RUN_FORMATS)[number]; readonly clock: Clock },
): Reporter {
  if (options.format === "json") {
    return jsonReporter(io, resource, options.clock);
  }
  return io.stdout.isTTY === true
    ? barReporter(io, resource, options.clock)
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
    const text = JSON.stringify({ time: new Date(clock.now()).toISOString(), resource, ...line });
    io.stdout.write(`${printable(text)}\n`);
  };
  return {
    event: (event) => {
      if (event.type !== "progress" || isDue()) {
        write(event);
      }
    },
    note: (message) => write({ type: "note", message }),
    result: (result) => write({ type: "result", ...result }),
    verification: (verification) => write({ type: "verification", ...verification }),
    error: (error) => {
      write({ type: "error", code: codeOf(error), message: error instanceof Error ? error.message : String(error) });
      io.stderr.write(`${errorLine(error)}\n`);
    },
  };
}

interface TextOutput {
  /** Writes a line that stays. */
  line(text: string): void;
  /** Shows the progress of the run. */
  progress(counts: Readonly<Counts>, elapsedMs: number): void;
  end(): void;
}

function textReporter(io: CliIo, resource: string, clock: Clock, output: TextOutput): Reporter {
  const startedAt = clock.monotonic();
  let firstProgressAt: number | undefined;
  // In an outage every request fails repeatedly; showing one of the failures is enough.
  const isRetryDue = throttle(clock, LINE_INTERVAL_MS);
  return {
    event: (event) => {
      if (event.type === "progress") {
        firstProgressAt ??= clock.monotonic();
        output.progress(event.counts, clock.monotonic() - firstProgressAt);
        return;
      }
      const text = event.type === "retrying" && !isRetryDue() ? undefined : describeEvent(event);
      if (text !== undefined) {
        output.line(`${resource}: ${text}`);
      }
    },
    note: (text) => output.line(`${resource}: ${text}`),
    result: (result) => {
      output.end();
      output.line(`${resource}: ${describeResult(result, clock.monotonic() - startedAt)}`);
      const listed = [
        ...section("could not be migrated", describeFailures(result)),
        ...section("with managedFields that still name another version", describeKeptFields(result)),
        ...section("changed by admission webhooks or policies, beyond their encoding", describeChanged(result)),
      ];
      io.stderr.write(listed.map((line) => `${oneLine(line)}\n`).join(""));
    },
    verification: (verification) => {
      output.end();
      output.line(`${resource}: ${describeVerification(verification)}`);
      const lines = [
        ...section("of which nothing is known", describeNotShown(verification)),
        ...describeUnnamed(verification),
      ];
      io.stderr.write(lines.map((line) => `${oneLine(line)}\n`).join(""));
    },
    error: (error) => {
      output.end();
      io.stderr.write(`${errorLine(error)}\n`);
    },
  };
}

function section(title: string, lines: readonly string[]): readonly string[] {
  return lines.length === 0 ? [] : [`objects ${title}:`, ...lines];
}

function lineReporter(io: CliIo, resource: string, clock: Clock): Reporter {
  const isDue = throttle(clock, LINE_INTERVAL_MS);
  const line = (text: string): void => {
    io.stdout.write(`${oneLine(text)}\n`);
  };
  return textReporter(io, resource, clock, {
    line,
    progress: (counts, elapsedMs) => {
      if (isDue()) {
        line(`${resource}: ${progressLine(counts, elapsedMs, 0)}`);
      }
    },
    end: () => undefined,
  });
}

interface Bar {
  readonly update: ReturnType<typeof createLogUpdate>;
  latest: string;
}

/** A terminal has one: the result of one resource may come while another one is at work. */
const BARS = new WeakMap<CliIo["stdout"], Bar>();

function barOn(stdout: CliIo["stdout"]): Bar {
  const bar = BARS.get(stdout) ?? { update: createLogUpdate(stdout, { showCursor: true }), latest: "" };
  BARS.set(stdout, bar);
  return bar;
}

function barReporter(io: CliIo, resource: string, clock: Clock): Reporter {
  const bar = barOn(io.stdout);
  const isDue = throttle(clock, BAR_INTERVAL_MS);
  return textReporter(io, resource, clock, {
    line: (text) => {
      bar.update.clear();
      io.stdout.write(`${oneLine(text)}\n`);
      if (bar.latest !== "") {
        bar.update(bar.latest);
      }
    },
    progress: (counts, elapsedMs) => {
      bar.latest = progressLine(counts, elapsedMs, BAR_WIDTH);
      if (isDue()) {
        bar.update(bar.latest);
      }
    },
    end: () => {
      bar.update.clear();
      bar.latest = "";
      bar.update.done();
    },
  });
}
