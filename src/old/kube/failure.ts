import { isTooMuch } from "../../kube/errors.ts";
import { ApiError, DoubtfulAnswer } from "./errors.ts";

/**
 * What a failed request means for its sender. docs/errors.md holds this table in words.
 *
 * - `transient`: the same request may pass later
 * - `expired`: a resourceVersion or continue token is too old (410)
 * - `conflict`: a precondition failed, or the object exists already (409)
 * - `gone`: the named object does not exist
 * - `unserved`: the path itself is not served: the version is unserved, the CRD is gone or its handler not ready
 * - `denied`: the user may not do this (403 of the authorizer, 401 where no API server ever accepted the credentials)
 * - `rejected`: the API server understood and refused (schema, admission, bad request)
 */
export type FailureKind = "transient" | "expired" | "conflict" | "gone" | "unserved" | "denied" | "rejected";

const TRANSIENT_STATUSES = new Set([408, 425, 429, 500, 502, 503, 504]);

// Words of an internal error that come from the object itself, so that waiting does not help.
/** https://github.com/kubernetes/kubernetes/issues/111937 */
const INVALID_GROUP_VERSION = ["to an invalid group/version", "from an invalid group/version"];
/**
 * An object is larger in its new encoding than etcd takes: by etcd's own limit, or by that of the connection to it.
 *
 * https://github.com/etcd-io/etcd/blob/v3.6.8/api/v3rpc/rpctypes/error.go
 */
const TOO_LARGE_FOR_ETCD = ["etcdserver: request is too large", "trying to send message larger than max"];
/**
 * The object does not fit the schema of the version any more, so an apply cannot read it. A merge patch passes where the
 * value is not touched, but makes the API server drop all managedFields.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal/structuredmerge.go
 */
const UNTYPED = ["failed to create typed live object"];
const PERMANENT_INTERNAL_ERRORS = [...INVALID_GROUP_VERSION, ...TOO_LARGE_FOR_ETCD, ...UNTYPED];

/**
 * Classifies anything thrown by a request. Errors that no request raised are not failures of a request and come back
 * as `undefined`, so that a fault of this program is never retried or counted as an object's.
 */
export function failureKindOf(error: unknown): FailureKind | undefined {
  if (error instanceof DoubtfulAnswer) {
    return "transient";
  }
  return error instanceof ApiError ? kindOfAnswer(error) : undefined;
}

const KINDS: Readonly<Record<number, (error: ApiError) => FailureKind>> = {
  // It is never about what was asked for: a token expired, or the authentication webhook of the API server is down.
  // Whoever connects has seen the credentials accepted.
  401: () => "transient",
  403: (error) => (isAuthorizerRefusal(error) ? "denied" : "rejected"),
  404: (error) => (error.answer?.details?.name === undefined ? "unserved" : "gone"),
  409: () => "conflict",
  410: () => "expired",
};

function kindOfAnswer(error: ApiError): FailureKind {
  if (isAdmissionDenial(error)) {
    return "rejected";
  }
  const kind = KINDS[error.status]?.(error);
  // No API server redirects: what stands before it does.
  const isRedirect = error.status < 400;
  const isTransient = isRedirect || (TRANSIENT_STATUSES.has(error.status) && !isPermanentInternalError(error));
  return kind ?? (isTransient ? "transient" : "rejected");
}

/**
 * Whether the authorizer refused: who asked is known, and may not do this. It answers with a Status, so a page of a proxy that
 * has the same words is none of it.
 */
export function isForbidden(error: unknown): error is ApiError {
  const isStatus = error instanceof ApiError && error.status === 403 && error.reason === "Forbidden";
  return isStatus && failureKindOf(error) === "denied";
}

/**
 * Whether a write that failed may have been done, or may be done yet: no answer came, or one that an API server gives after it has begun to write, or
 * a proxy in its place. Any other one is given before that.
 */
export function mayBeDone(error: unknown): boolean {
  return !(error instanceof ApiError) || error.status < 400 || error.status === 408 || error.status >= 500;
}

/** The name of an admission webhook is a DNS name, so nothing in it is escaped. */
const WEBHOOK_DENIAL = /^admission webhook "[^"]*" denied the request\b/;
/** An API server puts the object before it: `widgets.example.com "a" is forbidden: ValidatingAdmissionPolicy …`. */
const POLICY_DENIAL =
  /^(?:\S+ (?:"[^"]*" )?is forbidden: )?ValidatingAdmissionPolicy '[^']*' (?:with binding '[^']*' )?denied request\b/;

/**
 * Whether an admission webhook or a ValidatingAdmissionPolicy denied the request. The status code of such an answer,
 * its reason and its details are what the webhook chose: a 404 says nothing about the object, a 409 nothing about a
 * precondition, and a 429 or 500 nothing about the API server. A webhook that could not be called denied nothing.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/validating/dispatcher.go
 */
export function isAdmissionDenial(error: unknown): boolean {
  return error instanceof ApiError && (WEBHOOK_DENIAL.test(error.said) || POLICY_DENIAL.test(error.said));
}

/**
 * A 403 of the authorizer, as against one of an admission plugin: it always says which user may not do what.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go
 */
function isAuthorizerRefusal(error: ApiError): boolean {
  return / cannot [a-z]+ (resource|path) /.test(error.said);
}

/**
 * The webhook of another client that an answer says could not be called: an admission webhook by its name, a conversion
 * webhook by the version and kind it converts.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go
 */
export function failedWebhookOf(error: unknown): string | undefined {
  if (!(error instanceof ApiError) || isAdmissionDenial(error)) {
    return undefined;
  }
  const admission = /failed calling webhook "([^"]+)"/.exec(error.said)?.[1];
  // A webhook that was reached and cannot convert one object fails in other words.
  const conversion = /(conversion webhook for .+?) failed: Post /.exec(error.said)?.[1];
  return admission ?? conversion ?? (isReinitializing(error) ? REINITIALIZING : undefined);
}

/** What stands for the name of the webhook that keeps a resource from being set up: the answer does not tell it. */
const REINITIALIZING = "the conversion webhook, without which the API server cannot set up the resource";

/**
 * A 429 that is not overload: the watch cache of a custom resource cannot be filled, as where its conversion webhook is
 * down. For a moment every CRD that was changed answers so.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/storage/cacher/cacher.go
 */
export function isReinitializing(error: unknown): boolean {
  const isThrottled = error instanceof ApiError && error.status === 429 && !isAdmissionDenial(error);
  return isThrottled && error.said.includes("(re)initializing");
}

/** Whether an object cannot be decoded or its managedFields name a version that the CRD no longer has. */
export function isInvalidGroupVersion(error: unknown): boolean {
  return says(error, INVALID_GROUP_VERSION);
}

function isPermanentInternalError(error: ApiError): boolean {
  return says(error, PERMANENT_INTERNAL_ERRORS) || isConversionRefusal(error);
}

function says(error: unknown, phrases: readonly string[]): boolean {
  const isAnswer = error instanceof ApiError && !isAdmissionDenial(error);
  return isAnswer && phrases.some((phrase) => error.said.includes(phrase));
}

/**
 * Whether a conversion webhook was reached and could not convert an object. One such object fails the whole list that it
 * is in.
 */
export function isConversionRefusal(error: unknown): error is ApiError {
  const isAnswer = error instanceof ApiError && !isAdmissionDenial(error);
  return isAnswer && /conversion webhook for .+? (returned |failed(?!: Post ))/.test(error.said);
}

/**
 * Whether an API server refused a read because its watch cache has not reached the resourceVersion that was asked for.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/storage/errors.go
 */
export function isTooLargeResourceVersion(error: unknown): error is ApiError {
  const causes = error instanceof ApiError && error.status === 504 ? error.answer?.details?.causes : undefined;
  return causes?.some(({ reason }) => reason === "ResourceVersionTooLarge") === true;
}

/** Whether an answer took too long, or was too large to give: one to a smaller question may come. */
export const isTimeout = isTooMuch;
