import { EXIT, type ExitCode } from "./exit-codes.ts";

/** What a command over several resources came to, by their names. Field names are those of the line of `-o json`. */
export interface RunSummary {
  readonly type: "summary";
  readonly done: readonly string[];
  readonly incomplete: readonly string[];
  readonly failed: readonly string[];
  /** Also those that were not begun when the interruption came. */
  readonly interrupted: readonly string[];
}

/** What came of each resource. */
export function runSummaryOf(codes: ReadonlyMap<string, ExitCode>): RunSummary {
  const named = (isIn: (code: ExitCode) => boolean): readonly string[] =>
    [...codes].filter(([, code]) => isIn(code)).map(([name]) => name);
  return {
    type: "summary",
    done: named((code) => code === EXIT.done),
    incomplete: named((code) => code === EXIT.incomplete),
    failed: named((code) => code !== EXIT.done && code !== EXIT.incomplete && code !== EXIT.interrupted),
    interrupted: named((code) => code === EXIT.interrupted),
  };
}

/** The summary in words, on one line: `3 resources: 2 done, 1 failed (gadgets.example.com)`. */
export function describeRunSummary({ done, incomplete, failed, interrupted }: RunSummary): string {
  const named = Object.entries({ incomplete, failed, interrupted }).filter(([, names]) => names.length > 0);
  const total = named.reduce((sum, [, names]) => sum + names.length, done.length);
  const parts = named.map(([word, names]) => `${names.length} ${word} (${names.join(", ")})`);
  return `${total} resources: ${[`${done.length} done`, ...parts].join(", ")}`;
}
