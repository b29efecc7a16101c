import { KsvmError } from "../../errors.ts";
import { withoutUser } from "../../kube/client.ts";

/** What the value of a flag is measured in. It ends the value's name: `--settle` is read as `settleMs`. */
export type FlagUnit = "" | "Ms";

/** `advanced` tunes what is right as it is, as a rule; `global` is what every command has. */
export type FlagGroup = "command" | "advanced" | "global";

/** One flag: how `--help` and docs/cli.md show it, and how its value is read. `src/cli/flags/kinds.ts` makes them. */
export interface Flag<Value, Unit extends FlagUnit = FlagUnit> {
  /** What the flag is for, as a phrase without a full stop. */
  readonly help: string;
  /** The letter of the short form. @default none */
  readonly short?: string | undefined;
  /** The name of the value in `--help`. @default none: the flag is a switch */
  readonly placeholder?: string | undefined;
  /** The values to choose from. @default any that {@link Flag.read} accepts */
  readonly choices?: readonly string[] | undefined;
  readonly isRepeatable: boolean;
  /** Under which heading `--help` lists it. @default "command" */
  readonly group?: FlagGroup | undefined;
  readonly unit: Unit;
  /** The value without the flag. `undefined` leaves the value out. */
  readonly fallback: Value;
  /** The fallback as a user would write it. @default none: `--help` shows no default */
  readonly fallbackText?: string | undefined;
  /**
   * Reads what the command line holds: a string, `true` for a switch, every string of a repeatable flag.
   * @throws {InvalidValue} for anything else.
   */
  read(given: unknown): Value;
}

/** The flags of a command by their long names, without the dashes. */
export type FlagTable = Readonly<Record<string, Flag<unknown>>>;

/** The same flags under another heading. */
export function inGroup<Table extends FlagTable>(group: FlagGroup, table: Table): Table {
  return Object.fromEntries(
    Object.entries(table).map(([name, flag]) => [name, { ...flag, group }]),
  ) as unknown as Table;
}

/** What the command line holds for each flag, by its long name; `undefined` without the flag. */
export type GivenFlags = Readonly<Record<string, unknown>>;

type CamelCase<Name extends string> = Name extends `${infer Head}-${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : Name;
type ValueOf<F> = F extends Flag<infer Value> ? Value : never;
type KeyOf<Name extends string, F> = F extends Flag<unknown, infer Unit> ? `${CamelCase<Name>}${Unit}` : never;
type RequiredKey<Name extends string, F> = undefined extends ValueOf<F> ? never : KeyOf<Name, F>;
type OptionalKey<Name extends string, F> = undefined extends ValueOf<F> ? KeyOf<Name, F> : never;

/** The values of a table: `{ "page-size": …, settle: duration(…) }` gives `{ pageSize: number, settleMs: number }`. */
export type FlagsOf<Table extends FlagTable> = {
  readonly [Name in keyof Table & string as RequiredKey<Name, Table[Name]>]: ValueOf<Table[Name]>;
} & {
  readonly [Name in keyof Table & string as OptionalKey<Name, Table[Name]>]?: Exclude<ValueOf<Table[Name]>, undefined>;
};

/** What is expected in place of a value that cannot be read. */
export class InvalidValue extends Error {
  override readonly name = "InvalidValue";

  constructor(expected: string) {
    super(`expected ${expected}`);
  }
}

/**
 * Reads the values of a table.
 * @throws {KsvmError} Usage for a flag that the table does not have, and for a value that its flag does not accept.
 */
export function readFlags<Table extends FlagTable>(table: Table, given: GivenFlags): FlagsOf<Table> {
  const unknown = Object.keys(given).find((name) => !Object.hasOwn(table, name));
  if (unknown !== undefined) {
    throw new KsvmError("Usage", `Cannot use --${unknown}: this command has no such flag`);
  }
  const entries = Object.entries(table).map(
    ([name, flag]) => [keyOf(name, flag), readFlag(name, flag, given)] as const,
  );
  const values = Object.fromEntries(entries.filter(([, value]) => value !== undefined));
  if (!isComplete(table, values)) {
    throw new KsvmError("Internal", "Cannot read the flags: one that has a default has no value");
  }
  return values;
}

function readFlag(name: string, flag: Flag<unknown>, given: GivenFlags): unknown {
  const value = given[name];
  if (value === undefined) {
    return flag.fallback;
  }
  try {
    return flag.read(value);
  } catch (error) {
    if (error instanceof InvalidValue) {
      // What is no URL that a flag takes may be one with a password in it.
      const shown = typeof value === "string" ? JSON.stringify(withoutUser(value)) : "that way";
      throw new KsvmError("Usage", `Cannot use --${name} ${shown}: ${error.message}`, { cause: error });
    }
    throw error;
  }
}

/** Every value comes from {@link Flag.read} or is a fallback; what is left to check is that none is missing. */
function isComplete<Table extends FlagTable>(table: Table, values: object): values is FlagsOf<Table> {
  return Object.entries(table).every(
    ([name, flag]) => flag.fallback === undefined || Object.hasOwn(values, keyOf(name, flag)),
  );
}

/** The name of a flag's value: `settleMs` for `--settle`. */
function keyOf(name: string, { unit }: Flag<unknown>): string {
  return `${name.replaceAll(/-(.)/g, (_, letter: string) => letter.toUpperCase())}${unit}`;
}

/** A flag as `--help` and docs/cli.md name it: `-o, --output <format>`. */
export function synopsisOf(name: string, { short, placeholder }: Flag<unknown>): string {
  const shortForm = short === undefined ? "" : `-${short}, `;
  const value = placeholder === undefined ? "" : ` <${placeholder}>`;
  return `${shortForm}--${name}${value}`;
}

/** The meaning of a flag as `--help` and docs/cli.md state it, with the values to choose from. */
export function meaningOf({ help, choices }: Flag<unknown>): string {
  return choices === undefined ? help : `${help} (one of: ${choices.join(", ")})`;
}
