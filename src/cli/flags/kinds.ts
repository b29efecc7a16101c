import { type Flag, type FlagUnit, InvalidValue } from "./flag.ts";
import { durationText, oneOf, parseDuration, parseDurationFrom } from "./parsers.ts";

interface Described {
  readonly help: string;
  readonly short?: string;
}

interface Valued extends Described {
  readonly placeholder: string;
}

/** Turns the text of a value into the value; throws InvalidValue. */
export type Parser<Value> = (text: string) => Value;

function flagOf<Value, Unit extends FlagUnit>(parts: Omit<Flag<Value, Unit>, "isRepeatable">): Flag<Value, Unit> {
  return { isRepeatable: false, ...parts };
}

function reader<Value>(parse: Parser<Value>): (given: unknown) => Value {
  return (given) => {
    if (typeof given !== "string") {
      throw new InvalidValue("one value");
    }
    return parse(given);
  };
}

/** A flag with a value and a default. */
export function value<Value>(
  parse: Parser<Value>,
  { default: fallback, defaultText, ...rest }: Valued & { readonly default: Value; readonly defaultText?: string },
): Flag<Value, ""> {
  return flagOf({ ...rest, unit: "", fallback, fallbackText: defaultText ?? String(fallback), read: reader(parse) });
}

/** A flag with a value that is left out without the flag. */
export function optional<Value>(parse: Parser<Value>, parts: Valued): Flag<Value | undefined, ""> {
  return flagOf<Value | undefined, "">({ ...parts, unit: "", fallback: undefined, read: reader(parse) });
}

/** A duration, in milliseconds. */
export function duration({
  default: fallback,
  range,
  ...rest
}: Described & {
  /** Milliseconds. */
  readonly default: number;
  /** The shortest and the longest one, in milliseconds. @default any */
  readonly range?: readonly [min: number, max: number];
}): Flag<number, "Ms"> {
  const read = reader(range === undefined ? parseDuration : parseDurationFrom(...range));
  return flagOf({ ...rest, placeholder: "duration", unit: "Ms", fallback, fallbackText: durationText(fallback), read });
}

/** One of several words. */
export function choice<const Choice extends string>(
  choices: readonly Choice[],
  { default: fallback, ...rest }: Valued & { readonly default: NoInfer<Choice> },
): Flag<Choice, ""> {
  return flagOf({ ...rest, unit: "", choices, fallback, fallbackText: fallback, read: reader(oneOf(choices)) });
}

/** A switch: off without the flag. */
export function toggle(parts: Described): Flag<boolean, ""> {
  return flagOf({ ...parts, unit: "", fallback: false, read: readSwitch });
}

function readSwitch(given: unknown): boolean {
  if (given !== true) {
    throw new InvalidValue("no value");
  }
  return true;
}

/** A flag that may be given several times: every value of it. */
export function repeated<Value>(parse: Parser<Value>, parts: Valued): Flag<readonly Value[] | undefined, ""> {
  const read = (given: unknown): readonly Value[] => {
    if (!Array.isArray(given)) {
      throw new InvalidValue("a list of values");
    }
    return given.map(reader(parse));
  };
  return { ...parts, isRepeatable: true, unit: "", fallback: undefined, read };
}
