import { InvalidArgumentError } from "commander";

const DURATION = /^(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?$/;

/**
 * Reads a duration as Go spells it, such as `65s`, `1m30s` or `500ms`; a bare `0` is none at all.
 * @returns milliseconds
 * @throws {InvalidArgumentError} for anything else.
 */
export function parseDuration(text: string): number {
  if (text === "0") {
    return 0;
  }
  const match = text === "" ? null : DURATION.exec(text);
  if (match === null) {
    throw new InvalidArgumentError('Expected a duration such as "65s", "1m30s" or "500ms".');
  }
  const [, hours, minutes, seconds, milliseconds] = match.map((part) => Number(part ?? 0));
  return (hours ?? 0) * 3_600_000 + (minutes ?? 0) * 60_000 + (seconds ?? 0) * 1_000 + (milliseconds ?? 0);
}

/**
 * A parser of durations within a range, in milliseconds.
 * @throws {InvalidArgumentError} for anything else.
 */
export function durationFrom(minMs: number, maxMs: number): (text: string) => number {
  return (text) => {
    const ms = parseDuration(text);
    if (ms < minMs || ms > maxMs) {
      throw new InvalidArgumentError(`Expected a duration from ${minMs / 1_000}s to ${maxMs / 1_000}s.`);
    }
    return ms;
  };
}

/**
 * A parser of whole numbers within a range.
 * @throws {InvalidArgumentError} for anything else.
 */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (Number.isNaN(value) || value < min || value > max) {
      throw new InvalidArgumentError(`Expected a whole number from ${min} to ${max}.`);
    }
    return value;
  };
}

/**
 * Reads `--max-qps`: requests per second, 0 for no limit.
 * @throws {InvalidArgumentError} for anything but a number of 0 or more.
 */
export function parseQps(text: string): number {
  const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isNaN(value)) {
    throw new InvalidArgumentError("Expected a number of requests per second, 0 for no limit.");
  }
  return value === 0 ? Number.POSITIVE_INFINITY : value;
}

/**
 * Reads `--apiserver-endpoints`: URLs with commas between them, each with a path where the API server has one.
 * @throws {InvalidArgumentError} where one is not an https URL.
 */
export function parseEndpoints(text: string): readonly string[] {
  return text.split(",").map((part) => {
    const url = URL.parse(part.trim());
    if (url?.protocol !== "https:" || url.search !== "" || url.hash !== "" || url.username !== "") {
      throw new InvalidArgumentError('Expected https URLs with commas between them, such as "https://10.0.0.1:6443".');
    }
    return `${url.origin}${url.pathname}`.replace(/\/+$/, "");
  });
}

/** Reads an option that may be given several times: every value of it. */
export function collect(value: string, previous: readonly string[] | undefined): readonly string[] {
  return [...(previous ?? []), value];
}

/**
 * Reads API groups with commas between; `core` is the one without a name.
 * @throws {InvalidArgumentError} where one is no DNS name.
 */
export function parseGroups(text: string): readonly string[] {
  return text.split(",").map((part) => {
    const group = part.trim();
    if (!/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/.test(group)) {
      throw new InvalidArgumentError('Expected API groups with commas between, such as "example.com,core".');
    }
    return group === "core" ? "" : group;
  });
}

/** Reads the URL of the webhook. @throws {InvalidArgumentError} where API servers would not take it. */
export function parseWebhookUrl(text: string): string {
  const url = URL.parse(text);
  if (url?.protocol !== "https:" || url.search !== "" || url.hash !== "" || url.username !== "") {
    throw new InvalidArgumentError('Expected an https URL without a query, such as "https://192.0.2.1:9443/validate".');
  }
  return url.href;
}
