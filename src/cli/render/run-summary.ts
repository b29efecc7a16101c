import { EXIT, type ExitCode } from "./exit-codes.ts";

/** What a command over several resources came to, by their names. Field names are those of the line of `-o json`. */
export interface RunSummary {
  readonly type: "summary";
  readonly done: readonly string[];
  readonly incomplete: readonly string[];
  readonly failed: readonly string[];
}

/** What came of each resource. */
export function runSummaryOf(codes: ReadonlyMap<string, ExitCode>): RunSummary {
  const named = (isIn: (code: ExitCode) => boolean): readonly string[] =>
    [...codes].filter(([, code]) => isIn(code)).map(([name]) => name);
  return {
    type: "summary",
    done: named((code) => code === EXIT.done),
    incomplete: named((code) => code === EXIT.incomplete),
    failed: named((code) => code !== EXIT.done && code !== EXIT.incomplete),
  };
}

/** The summary in words, on one line: `3 resources: 2 done, 1 failed (gadgets.example.com)`. */
export function describeRunSummary({ done, incomplete, failed }: RunSummary): string {
  const parts = [
    `${done.length} done`,
    ...(incomplete.length === 0 ? [] : [`${incomplete.length} incomplete (${incomplete.join(", ")})`]),
    ...(failed.length === 0 ? [] : [`${failed.length} failed (${failed.join(", ")})`]),
  ];
  return `${done.length + incomplete.length + failed.length} resources: ${parts.join(", ")}`;
}
