import { KsvmError } from "../errors.ts";
import { MAX_IN_FLIGHT } from "../retry/limiter.ts";

/** The numbers of a migration, by the names of its options. */
type Numbers = Readonly<
  Record<"maxIdleMs" | "maxInFlight" | "maxQps" | "settleMs" | "shutdownDelayMs" | "webhookWaitMs", number>
>;

/** The least and the most of each. */
const RANGES: Readonly<Record<keyof Numbers, readonly [min: number, max: number]>> = {
  settleMs: [0, Number.MAX_SAFE_INTEGER],
  shutdownDelayMs: [0, Number.MAX_SAFE_INTEGER],
  maxIdleMs: [0, Number.MAX_SAFE_INTEGER],
  webhookWaitMs: [0, Number.MAX_SAFE_INTEGER],
  maxInFlight: [1, MAX_IN_FLIGHT],
  maxQps: [0, Number.POSITIVE_INFINITY],
};

/** Without the fields that are `undefined`, as where a program has no such setting: each of them has a default. */
export function withoutUndefined<T extends object>(options: T): T {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as T;
}

/**
 * The numbers of a migration as a run takes them: a wait of `NaN` milliseconds would never end.
 * @throws {KsvmError} Usage where one of them is none, or out of range.
 */
export function checkedNumbers(numbers: Numbers): Numbers {
  for (const [name, [min, max]] of Object.entries(RANGES)) {
    const value: unknown = numbers[name as keyof Numbers];
    if (typeof value !== "number" || !(value >= min && value <= max)) {
      throw new KsvmError("Usage", `Cannot migrate: ${name} is not a number from ${min} to ${max}`);
    }
  }
  return { ...numbers, maxQps: numbers.maxQps === 0 ? Number.POSITIVE_INFINITY : numbers.maxQps };
}

/**
 * Keeps a program without types from handing over a text, as of a variable: a run takes `"true"` for a dry run, and its writes do not.
 * @throws {KsvmError} Usage where one of them is no truth value.
 */
export function assertSwitches(switches: Readonly<Record<"dryRun" | "force", unknown>>): void {
  for (const [name, value] of Object.entries(switches)) {
    if (typeof value !== "boolean") {
      throw new KsvmError("Usage", `Cannot migrate: ${name} is neither true nor false`);
    }
  }
}
