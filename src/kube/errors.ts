import { type ErrorCode, KsvmError } from "../errors.ts";

/** The parts of a `metav1.Status` that decide something. */
export interface Status {
  readonly kind?: string;
  readonly code?: number;
  readonly reason?: string;
  readonly message?: string;
  readonly metadata?: { readonly continue?: string };
  readonly details?: {
    readonly name?: string;
    readonly kind?: string;
    readonly retryAfterSeconds?: number;
    readonly causes?: readonly { readonly reason?: string; readonly message?: string; readonly field?: string }[];
  };
}

interface ApiErrorOptions {
  readonly answer?: Status | undefined;
  /** Seconds. */
  readonly retryAfter?: number | undefined;
  readonly code?: ErrorCode;
  readonly cause?: unknown;
}

/**
 * A request that an API server did not do: it answered with an error, or no usable answer came (status 0). The message
 * names the request and what was said, and never a header or a body that was sent.
 */
export class ApiError extends KsvmError {
  override readonly name = "ApiError";
  /** The HTTP status; 0 where no usable answer came. */
  readonly status: number;
  /** The `reason` of the Status, such as `NotFound`; empty where the answer is none. */
  readonly reason: string;
  /** What the API server said, or why no answer came. */
  readonly said: string;
  readonly causes: readonly { readonly reason?: string; readonly message?: string; readonly field?: string }[];
  /** The Status of the answer, where it is one. */
  readonly answer: Status | undefined;
  /** Seconds that the API server asks to wait. */
  readonly retryAfter: number | undefined;

  constructor(request: string, status: number, said: string, options: ApiErrorOptions = {}) {
    const text = oneLine(said) || "no message";
    const who = status === 0 ? "" : `the API server answered ${status}: `;
    super(options.code ?? codeOf(status), `Cannot ${request}: ${who}${text}`, { cause: options.cause });
    this.status = status;
    this.said = text;
    this.answer = options.answer;
    this.reason = options.answer?.reason ?? "";
    this.causes = options.answer?.details?.causes ?? [];
    this.retryAfter = options.retryAfter ?? options.answer?.details?.retryAfterSeconds;
  }
}

function codeOf(status: number): ErrorCode {
  const codes: Readonly<Record<number, ErrorCode>> = {
    0: "ServerUnreachable",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
  };
  return codes[status] ?? "ApiRequestFailed";
}

/** A message may quote an object of any size. */
const MAX_SAID = 2_000;

function oneLine(text: string): string {
  return text
    .replaceAll(/\s*\n\s*/g, " ")
    .trim()
    .slice(0, MAX_SAID);
}

/**
 * Whose failure an answer is. It decides what a run does:
 *
 * - `object`: it is about this one object. The object fails at once and is named, the others go on.
 * - `webhook`: an admission or conversion webhook could not be asked. Wait without a freeze, then go on.
 * - `apiServer`: nothing is known about the request. Send it again.
 * - `rights`: the user may not do this. An API server that has just started may say so too, so it is asked again.
 * - `conflict`: a precondition does not hold, or the object exists already. Read it again.
 * - `gone`: there is no such object or path. No proof by itself.
 * - `expired`: a resourceVersion or continue token is too old. List again.
 */
export type Whose = "object" | "webhook" | "apiServer" | "rights" | "conflict" | "gone" | "expired";

type Row = readonly [Whose, (error: ApiError) => boolean];

const says =
  (...patterns: readonly RegExp[]) =>
  ({ said }: ApiError): boolean =>
    patterns.some((pattern) => pattern.test(said));
const hasStatus =
  (...statuses: readonly number[]) =>
  ({ status }: ApiError): boolean =>
    statuses.includes(status);

/**
 * How client-go's REST client names the HTTP status that a conversion webhook's server, or a proxy before it, answered:
 * k8s.io/apimachinery v0.36.0, pkg/api/errors/errors.go, NewGenericServerResponse.
 */
const GENERIC_ANSWERS = [
  "the server is currently unable to handle the request",
  "the server has received too many requests",
  "the server was unable to return a response in the time allotted",
  "the server could not find the requested resource",
  "the server has asked for the client to provide credentials",
  "the server rejected our request",
  "an error on the server",
];

/** The rest of what is said about a conversion webhook, after its version and kind. */
function conversionFailure(said: string): string | undefined {
  return /conversion webhook for .+?, Kind=\S+ (failed: .+|returned .+)$/.exec(said)?.[1];
}

/** Whether the conversion webhook was reached and said itself that it cannot convert an object. */
export function isConversionRefusal(error: unknown): error is ApiError {
  if (!(error instanceof ApiError) || isDenial(error)) return false;
  const failure = conversionFailure(error.said);
  if (failure === undefined) return false;
  const reason = failure.replace(/^failed: /, "");
  return ![...GENERIC_ANSWERS, "Post "].some((begin) => reason.startsWith(begin));
}

/**
 * The first row that matches decides. The paths are those of k8s.io/apiserver v0.36.0, unless another module is named.
 */
const ROWS: readonly Row[] = [
  // Denied. The status, reason and details are the webhook's choice: 404, 409, 429 and 500 all occur.
  // pkg/admission/plugin/webhook/errors/statuserror.go, pkg/admission/plugin/policy/validating/dispatcher.go
  [
    "object",
    says(
      /^admission webhook "[^"]*" denied the request\b/,
      /^(\S+ ("[^"]*" )?is forbidden: )?ValidatingAdmissionPolicy '[^']*' (with binding '[^']*' )?denied request\b/,
    ),
  ],
  ["webhook", says(/failed calling webhook "/)],
  // k8s.io/apiextensions-apiserver v0.36.0, pkg/apiserver/conversion/webhook_converter.go
  ["object", isConversionRefusal],
  ["webhook", ({ said }) => conversionFailure(said) !== undefined],
  // managedFields name a version that the CRD no longer has, or a field that its schema no longer has.
  // k8s.io/apimachinery v0.36.0, pkg/util/managedfields/internal/structuredmerge.go
  ["object", says(/(to|from) an invalid group\/version/, /failed to create typed/, /field not declared in schema/)],
  // The watch cache of a custom resource cannot be filled while its conversion webhook is down.
  // pkg/storage/cacher/cacher.go
  ["webhook", (error) => error.status === 429 && /\(re\)initializing/.test(error.said)],
  // The object is larger in its new encoding than etcd, or the connection to it, takes.
  // etcd v3.6.8, api/v3rpc/rpctypes/error.go
  ["object", says(/etcdserver: request is too large/, /trying to send message larger than max/)],
  // No usable answer, or a redirect, which no API server sends.
  ["apiServer", ({ status }) => status < 400],
  // The first answer of all came with these credentials: the token has expired.
  ["rights", hasStatus(401)],
  // The authorizer says which user may not do what. A 403 of an admission plugin is about the object.
  // pkg/endpoints/handlers/responsewriters/errors.go
  ["rights", (error) => error.status === 403 && / cannot [a-z]+ (resource|path) /.test(error.said)],
  ["gone", hasStatus(404)],
  ["conflict", hasStatus(409)],
  ["expired", hasStatus(410)],
  ["apiServer", hasStatus(408, 425, 429, 500, 502, 503, 504)],
  // The API server understood, and refused: schema, admission, bad request.
  ["object", () => true],
];

/**
 * Whose failure an error is, by one table; `undefined` where no request raised it: a fault of this program is never
 * retried and never counted as an object's.
 */
export function whose(error: unknown): Whose | undefined {
  return error instanceof ApiError ? ROWS.find(([, matches]) => matches(error))?.[0] : undefined;
}

/** Whether an admission webhook or a ValidatingAdmissionPolicy denied the request. */
export function isDenial(error: unknown): boolean {
  return error instanceof ApiError && ROWS[0]?.[1](error) === true;
}

/** Whether the same request may be answered otherwise a moment later. */
export function mayPass(error: unknown): boolean {
  const kind = whose(error);
  return kind === "apiServer" || kind === "webhook" || kind === "rights";
}

/** Whether the authorizer refused, as against an admission plugin or a page of a proxy. */
export function isForbidden(error: unknown): error is ApiError {
  return error instanceof ApiError && error.status === 403 && error.reason === "Forbidden" && whose(error) === "rights";
}

/** What is read; `undefined` where this user may not read it. */
export async function unlessForbidden<T>(read: Promise<T>): Promise<T | undefined> {
  return read.catch((error: unknown) => {
    if (isForbidden(error)) return undefined;
    throw error;
  });
}

/** Whether the API server says that exactly this object does not exist. Any other 404 proves nothing. */
export function isAbsent(error: unknown, name: string): boolean {
  return (
    whose(error) === "gone" &&
    error instanceof ApiError &&
    error.reason === "NotFound" &&
    error.answer?.details?.name === name
  );
}

/** Whether validation refused the values of an object, as its own schema does, and no webhook or policy. */
export function isInvalid(error: unknown): boolean {
  return error instanceof ApiError && error.status === 422 && error.reason === "Invalid" && !isDenial(error);
}

/** Whether an answer took too long, or was too large: one to a smaller question may come. */
export function isTooMuch(error: unknown): boolean {
  if (!(error instanceof ApiError) || whose(error) !== "apiServer") return false;
  return error.status === 504 || /timed? ?out|timeout|deadline exceeded|larger than|beyond \d+ bytes/i.test(error.said);
}
