import { InvalidValue } from "./flag.ts";

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
const SECOND_MS = 1_000;
/**
 * Of a millisecond: Go's durations have no smaller part, and what is smaller is an error of floating point, as in 1.1
 * hours.
 */
const NANOSECOND_DIGITS = 6;

const DURATION = /^(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?$/;

/** Any text. */
export function anyText(text: string): string {
  return text;
}

/** Any text but an empty one, which a variable without a value leaves, or spaces. @throws {InvalidValue} for that. */
export function someText(text: string): string {
  if (text.trim() === "") {
    throw new InvalidValue("a text that is not empty");
  }
  return text;
}

/**
 * Reads a duration in Go's notation, such as `65s`, `1m30s` or `500ms`; a bare `0` is valid.
 * @returns whole milliseconds, rounded up, so that no duration but 0 is 0
 * @throws {InvalidValue} for anything else.
 */
export function parseDuration(text: string): number {
  if (text === "0") {
    return 0;
  }
  const match = text === "" ? null : DURATION.exec(text);
  if (match === null) {
    throw new InvalidValue('a duration such as "65s", "1m30s" or "500ms"');
  }
  const [, hours = 0, minutes = 0, seconds = 0, milliseconds = 0] = match.map((part) => Number(part ?? 0));
  const ms = hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS + milliseconds;
  return Math.ceil(Number(ms.toFixed(NANOSECOND_DIGITS)));
}

/**
 * A parser of durations within a range, in milliseconds.
 * @throws {InvalidValue} for anything else.
 */
export function parseDurationFrom(minMs: number, maxMs: number): (text: string) => number {
  return (text) => {
    const ms = parseDuration(text);
    if (ms < minMs || ms > maxMs) {
      throw new InvalidValue(`a duration from ${durationText(minMs)} to ${durationText(maxMs)}`);
    }
    return ms;
  };
}

/** A duration as {@link parseDuration} reads it, in the largest unit that leaves no rest: `8760h`, `5m`, `65s`. */
export function durationText(ms: number): string {
  const units = [
    ["h", HOUR_MS],
    ["m", MINUTE_MS],
    ["s", SECOND_MS],
  ] as const;
  const isWhole = ([unit, unitMs]: (typeof units)[number]): boolean => ms % unitMs === 0 && (ms > 0 || unit === "s");
  const [unit, size] = units.find(isWhole) ?? ["ms", 1];
  return `${ms / size}${unit}`;
}

/**
 * A parser of whole numbers within a range.
 * @throws {InvalidValue} for anything else.
 */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (Number.isNaN(value) || value < min || value > max) {
      throw new InvalidValue(`a whole number from ${min} to ${max}`);
    }
    return value;
  };
}

/**
 * A parser of one of several words.
 * @throws {InvalidValue} for anything else.
 */
export function oneOf<Choice extends string>(choices: readonly Choice[]): (text: string) => Choice {
  return (text) => {
    const found = choices.find((choice) => choice === text);
    if (found === undefined) {
      throw new InvalidValue(`one of: ${choices.join(", ")}`);
    }
    return found;
  };
}

/** Reads `true` or `false`. @throws {InvalidValue} for anything else. */
export function parseBoolean(text: string): boolean {
  return oneOf(["true", "false"])(text) === "true";
}

/**
 * Reads `--max-qps`: objects per second, 0 for no limit.
 * @throws {InvalidValue} for anything but a number of 0 or more.
 */
export function parseQps(text: string): number {
  const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isNaN(value)) {
    throw new InvalidValue("a number of objects per second, 0 for no limit");
  }
  return value === 0 ? Number.POSITIVE_INFINITY : value;
}

/** Reads a share such as `0.3` or `1/3`. @throws {InvalidValue} if it does not lie between 0 and 1. */
export function parseShare(text: string): number {
  const [, dividend, divisor = "1"] = /^(\d+(?:\.\d+)?)(?:\/(\d+))?$/.exec(text) ?? [];
  const share = Number(dividend) / Number(divisor);
  if (!(share > 0 && share < 1)) {
    throw new InvalidValue('a share between 0 and 1, such as "0.3" or "1/3"');
  }
  return share;
}

/** `namespace/name`. */
export function parseServiceAccount(text: string): { readonly namespace: string; readonly name: string } {
  const [, namespace, name] = /^([a-z0-9-]+)\/([a-z0-9.-]+)$/.exec(text) ?? [];
  if (namespace === undefined || name === undefined) {
    throw new InvalidValue('the namespace and the name of a ServiceAccount, such as "default/migrator"');
  }
  return { namespace, name };
}
