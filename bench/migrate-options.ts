import { parseArgs } from "node:util";

import { wholeNumber } from "../src/cli/flags/parsers.ts";

/** What bench/migrate.ts measures. */
export interface MigrateBenchOptions {
  /** @default 20,000 */
  readonly objects: number;
  /** Bytes of each object as it is sent. @default 2,000 */
  readonly size: number;
  /** A run of ksvm for each. @default 4, 8, 16, 32 */
  readonly maxInFlight: readonly number[];
  /** Other migrators that get the same work in the same run. @default none */
  readonly peers: readonly "in-tree"[];
  /** Compiled ksvm, one or several to compare; `make bench-migrate` names one. @default the sources, with Node's type stripping in every figure */
  readonly programs: readonly string[];
  /** So often everything is measured, in turn: what else the machine does falls on all of them alike. @default 1 */
  readonly rounds: number;
  /** @default "table" */
  readonly output: "table" | "json";
}

/** What `--help` prints. */
export const USAGE = `node bench/migrate.ts [options]
  --objects <n>            custom resources to migrate (20000)
  --size <bytes>           of each, as it is sent (2000)
  --max-in-flight <list>   a run of ksvm for each (4,8,16,32)
  --peer in-tree           also run the in-tree controller, its client limits lifted
  --program <file>         ksvm, compiled; several times to compare (src/cli/main.ts, which costs CPU and memory for its types)
  --rounds <n>             measure everything so often, in turn (1)
  -o, --output <format>    table or json (table)
  -h, --help               print this`;

/**
 * Reads the flags of bench/migrate.ts.
 * @returns undefined where help is asked for
 * @throws {Error} for flags or values that it does not know
 */
export function parseMigrateBenchOptions(args: readonly string[]): MigrateBenchOptions | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      objects: { type: "string", default: "20000" },
      size: { type: "string", default: "2000" },
      "max-in-flight": { type: "string", default: "4,8,16,32" },
      peer: { type: "string", multiple: true, default: [] },
      program: { type: "string", multiple: true, default: [] },
      rounds: { type: "string", default: "1" },
      output: { type: "string", short: "o", default: "table" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) return undefined;
  return {
    objects: wholeNumber(1, 1_000_000)(values.objects),
    size: wholeNumber(500, 1_000_000)(values.size),
    maxInFlight: values["max-in-flight"].split(",").map(wholeNumber(1, 256)),
    peers: values.peer.map((peer) => oneOf(["in-tree"], peer)),
    programs: values.program,
    rounds: wholeNumber(1, 100)(values.rounds),
    output: oneOf(["table", "json"], values.output),
  };
}

function oneOf<T extends string>(known: readonly T[], text: string): T {
  const found = known.find((value) => value === text);
  if (found === undefined) throw new Error(`Cannot use "${text}": choose from ${known.join(", ")}`);
  return found;
}
