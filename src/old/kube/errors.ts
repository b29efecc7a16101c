import type { Status } from "../../api/meta.ts";
import { type ErrorCode, KsvmError } from "../../errors.ts";
import { untrustedRemedy } from "./untrusted-certificate.ts";

/** What an {@link ApiError} is made of. */
interface ApiErrorOptions {
  readonly answer?: Status;
  readonly text?: string;
  /** The header. */
  readonly retryAfter?: string;
  /** The clock of who answered, in milliseconds since the Unix epoch. */
  readonly serverTime?: number | undefined;
  /** Whether an API server accepted credentials of this user before. @default false */
  readonly wereAccepted?: boolean;
}

/** An error answer of an API server, or a redirect of what stands before it (status 300 and above). */
export class ApiError extends KsvmError {
  override readonly name = "ApiError";
  /** The HTTP status. */
  readonly status: number;
  /** The `metav1.Status` of the answer; `undefined` where the body was something else, as for an unserved path. */
  readonly answer: Status | undefined;
  /** Seconds from the `Retry-After` header, or from the Status' details. */
  readonly retryAfterSeconds: number | undefined;
  /** Whether an API server accepted credentials of this user before: then a 401 may pass. */
  readonly wereAccepted: boolean;
  /** The clock of who answered, in milliseconds since the Unix epoch; where it is not known, that of this machine. */
  readonly serverTime: number | undefined;

  constructor(request: string, status: number, options: ApiErrorOptions) {
    const said = options.answer?.message ?? options.text?.trim().slice(0, 500) ?? "no message";
    super(codeOf(status), `Cannot ${request}: the API server answered ${status}: ${said}`);
    this.status = status;
    this.answer = options.answer;
    this.wereAccepted = options.wereAccepted ?? false;
    this.serverTime = options.serverTime;
    this.retryAfterSeconds = retryAfterOf(options) ?? secondsOf(options.answer?.details?.retryAfterSeconds);
  }

  /** The `reason` of the Status, such as `Expired` or `AlreadyExists`. */
  get reason(): string | undefined {
    return this.answer?.reason;
  }

  /** What the API server said, without this program's own words before it. */
  get said(): string {
    return this.answer?.message ?? this.message;
  }
}

/** Whether the API server's validation, or an expression of a policy, refused the object as it would have become. */
export function isInvalid(error: unknown): boolean {
  return error instanceof ApiError && error.status === 422;
}

/**
 * No answer came: the connection was refused or reset, the answer was cut off, or the time was up (ServerUnreachable); or the
 * certificate of who would answer is not trusted (ServerUntrusted).
 */
export class TransportError extends KsvmError {
  override readonly name = "TransportError";

  constructor(request: string, server: string, cause: unknown) {
    const remedy = untrustedRemedy(cause);
    const why = causeText(cause);
    if (remedy === undefined) {
      super("ServerUnreachable", `Cannot ${request}: no answer from ${server}: ${why}`, { cause });
    } else {
      super("ServerUntrusted", `Cannot ${request}: no trusted connection to ${server}: ${why}; ${remedy}`, { cause });
    }
  }
}

/**
 * An answer that is no proof of what it seems to say, such as a 404 for what the API server lists: it comes from a proxy,
 * from an API server that is starting, or from one of several that has not followed yet. The next one may be better.
 */
export class DoubtfulAnswer extends KsvmError {
  override readonly name = "DoubtfulAnswer";

  constructor(message: string, cause?: unknown) {
    super("ApiRequestFailed", message, { cause });
  }
}

/** Seconds, or a date by the clock of who answered (RFC 9110, section 10.2.3). */
function retryAfterOf({ retryAfter = "", serverTime }: ApiErrorOptions): number | undefined {
  const seconds = retryAfter === "" ? undefined : secondsOf(retryAfter);
  const date = Date.parse(retryAfter);
  const isDate = seconds === undefined && /[a-z]/i.test(retryAfter) && !Number.isNaN(date);
  return isDate && serverTime !== undefined ? Math.max(0, (date - serverTime) / 1_000) : seconds;
}

function secondsOf(value: string | number | undefined): number | undefined {
  const seconds = Number(value);
  return Number.isFinite(seconds) && seconds >= 0 ? seconds : undefined;
}

function codeOf(status: number): ErrorCode {
  switch (status) {
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "NotFound";
    case 409:
      return "Conflict";
    default:
      return "ApiRequestFailed";
  }
}

/** undici wraps the socket's error, and Happy Eyeballs an AggregateError without a message: show what lies beneath. */
function causeText(cause: unknown): string {
  if (cause instanceof AggregateError && cause.errors.length > 0) {
    return causeText(cause.errors[0]);
  }
  if (cause instanceof Error) {
    const inner = cause.cause instanceof Error ? cause.cause.message : "";
    const text = cause.message.includes(inner) ? cause.message : `${cause.message}: ${inner}`;
    return text.replaceAll(/\s*\n\s*/g, " ");
  }
  return String(cause);
}
