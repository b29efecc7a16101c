import { KsvmError } from "../errors.ts";
import { BACKDATE_MS } from "./lifetimes.ts";

/**
 * Clocks that are further apart than this, in milliseconds, do not agree on what is valid. Certificates are valid from five minutes
 * before they are issued: as long as one of the two clocks is right, those that are issued by the other one are valid at once.
 */
export const MAX_CLOCK_SKEW_MS = BACKDATE_MS - 60_000;

/** Whether two clocks agree. @param skewMs how far this machine's is ahead of the API server's; negative where it is behind */
export function doClocksAgree(skewMs: number): boolean {
  return Math.abs(skewMs) <= MAX_CLOCK_SKEW_MS;
}

const UNITS = [
  ["days", 86_400_000],
  ["hours", 3_600_000],
  ["minutes", 60_000],
] as const;

/** Such as "the clock of this machine is 400 days ahead of the API server's". */
export function skewText(skewMs: number): string {
  const size = Math.abs(skewMs);
  const [unit, unitMs] = UNITS.find(([, ms]) => size >= 2 * ms) ?? ["seconds", 1_000];
  return `the clock of this machine is ${Math.round(size / unitMs)} ${unit} ${skewMs < 0 ? "behind" : "ahead of"} the API server's`;
}

/** Nothing is replaced, since it is not known which of the two clocks is right. */
export function clocksDisagree(skewMs: number): KsvmError {
  const text = `Cannot replace certificates: ${skewText(skewMs)}, and one of them is wrong; correct it, run again`;
  return new KsvmError("ClocksDisagree", text);
}
