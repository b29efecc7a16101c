import { MIGRATING, OWNER } from "../freeze/rule.ts";
import type { Crd } from "../kube/objects.ts";
import { type Projection, type ProjectionBudget, projectJson, prune } from "../old/json/json-projection.ts";

/** An update of a CRD that the API server asks about. Of both objects only what the freeze rule reads is checked. */
export interface UpdateRequest {
  readonly uid: string;
  readonly operation: "UPDATE";
  readonly object: Crd;
  readonly oldObject: Crd;
}

/** What a review asks about; `problem` is a sentence, `uid` is empty where none could be read. */
export type ParsedReview =
  | { readonly valid: true; readonly request: UpdateRequest }
  | { readonly valid: false; readonly uid: string; readonly problem: string };

/** The answer to an AdmissionReview, admission.k8s.io/v1. */
export interface ReviewAnswer {
  readonly apiVersion: "admission.k8s.io/v1";
  readonly kind: "AdmissionReview";
  readonly response: {
    readonly uid: string;
    readonly allowed: boolean;
    readonly status?: {
      readonly code: number;
      readonly reason: string;
      readonly message: string;
    };
    /** For the audit log; the API server puts the webhook's name before each key. */
    readonly auditAnnotations?: AuditAnnotations;
  };
}

/** What the audit log is to hold of a review. */
export type AuditAnnotations = Readonly<Record<string, string>>;

/** HTTP status and reason of an answer without a verdict, as metav1.Status has them. */
const REASONS: Readonly<Record<number, string>> = {
  413: "RequestEntityTooLarge",
  500: "InternalError",
  503: "ServiceUnavailable",
};

const CRD_PROJECTION: Projection = {
  fields: {
    apiVersion: "scalar",
    kind: "scalar",
    metadata: {
      fields: {
        name: "scalar",
        annotations: { fields: { [MIGRATING]: "scalar", [OWNER]: "scalar" } },
      },
    },
    spec: { fields: { versions: { items: { fields: { name: "scalar", storage: "scalar" } } } } },
    status: { fields: { conditions: { items: { fields: { type: "scalar", status: "scalar" } } } } },
  },
};

/** What {@link parseAdmissionReview} looks at of a review; see the checks below. */
const REVIEW_PROJECTION: Projection = {
  fields: {
    apiVersion: "scalar",
    kind: "scalar",
    request: { fields: { uid: "scalar", operation: "scalar", object: CRD_PROJECTION, oldObject: CRD_PROJECTION } },
  },
};

/**
 * What may be built of a review: more than two objects hold that an API server and etcd take, 3 MiB and 1.5 MiB, were
 * they made of the shortest conditions or versions alone; and little enough for a body that was made to use memory.
 */
export const REVIEW_BUDGET: ProjectionBudget = { maxValues: 400_000, maxBytes: 8 * 1024 * 1024 };

/** Below that JSON.parse is faster, and has little to build. */
const SMALL_REVIEW_BYTES = 128 * 1024;

const checkCrd = shape({
  apiVersion: literal("apiextensions.k8s.io/v1"),
  kind: literal("CustomResourceDefinition"),
  metadata: shape({ name: text, annotations: optional(recordOf(string)) }),
  spec: shape({ versions: listOf(shape({ name: text, storage: boolean })) }),
  status: optional(shape({ conditions: optional(listOf(shape({ type: string, status: string }))) })),
});

const checkReview = shape({
  apiVersion: literal("admission.k8s.io/v1"),
  kind: literal("AdmissionReview"),
  request: shape({ uid: text, operation: literal("UPDATE"), object: checkCrd, oldObject: checkCrd }),
});

/**
 * The body of a review, as far as it is looked at.
 * @throws {SyntaxError} where it is not JSON, or nested deeper than any CRD.
 * @throws {OverBudget} where more of it would be built than {@link REVIEW_BUDGET}.
 */
export function decodeReview(bytes: Buffer): unknown {
  if (bytes.length < SMALL_REVIEW_BYTES) {
    return prune(JSON.parse(bytes.toString()), REVIEW_PROJECTION);
  }
  const projected = projectJson(bytes, REVIEW_PROJECTION, REVIEW_BUDGET);
  if (projected === undefined) {
    throw new SyntaxError("the body is not JSON");
  }
  return projected.value;
}

/**
 * Checks the parsed JSON body of a review. Only updates are taken: the rule compares two objects, and an API server
 * that asks about anything else is configured wrongly.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/api/admission/v1/types.go
 */
export function parseAdmissionReview(body: unknown): ParsedReview {
  const problem = checkReview(body, "");
  if (problem !== undefined) {
    return { valid: false, uid: uidOf(body), problem: `Cannot read the AdmissionReview: ${problem}` };
  }
  const { uid, operation, object, oldObject } = (body as { readonly request: UpdateRequest }).request;
  return { valid: true, request: { uid, operation, object, oldObject } };
}

/** How every API server begins a review: as the fields of the Go type stand, metadata first. */
const REVIEW_START =
  /^\{"kind":"AdmissionReview","apiVersion":"admission\.k8s\.io\/v1","request":\{"uid":"([\w-]{1,64})"/;

/** The uid of a review of which only the beginning was read; empty where it does not begin as an API server's does. */
export function uidAtStart(head: Buffer): string {
  return REVIEW_START.exec(head.toString("latin1", 0, 256))?.[1] ?? "";
}

/** The uid of a review, whatever else is wrong with it; empty where there is none. */
export function uidOf(body: unknown): string {
  const uid = (body as { request?: { uid?: unknown } | null } | null | undefined)?.request?.uid;
  return typeof uid === "string" ? uid : "";
}

/** The update may go through. */
export function allowed(uid: string): ReviewAnswer {
  return answer({ uid, allowed: true });
}

/** The update is denied; the API server hands the message to the user. */
export function denied(uid: string, message: string, auditAnnotations?: AuditAnnotations): ReviewAnswer {
  const status = { code: 403, reason: "Forbidden", message };
  return answer({ uid, allowed: false, status, ...(auditAnnotations === undefined ? {} : { auditAnnotations }) });
}

/** There is no verdict, and so no update. */
export function errored(uid: string, code: number, message: string): ReviewAnswer {
  const reason = REASONS[code] ?? "BadRequest";
  return answer({ uid, allowed: false, status: { code, reason, message } });
}

function answer(response: ReviewAnswer["response"]): ReviewAnswer {
  return { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response };
}

/** Says what is wrong with a value, beginning with its path; `undefined` where nothing is. */
type Check = (value: unknown, path: string) => string | undefined;

/** Accepts any string but the empty one. */
function text(value: unknown, path: string): string | undefined {
  return typeof value === "string" && value !== "" ? undefined : `${path} must be a non-empty string`;
}

/** Accepts any string. */
function string(value: unknown, path: string): string | undefined {
  return typeof value === "string" ? undefined : `${path} must be a string`;
}

/** Accepts true and false. */
function boolean(value: unknown, path: string): string | undefined {
  return typeof value === "boolean" ? undefined : `${path} must be a boolean`;
}

/** Accepts one value. */
function literal(expected: string): Check {
  return (value, path) => (value === expected ? undefined : `${path} must be "${expected}"`);
}

/** Accepts a missing value; null is one, as Go encodes an empty list or map. */
function optional(check: Check): Check {
  return (value, path) => (value === undefined || value === null ? undefined : check(value, path));
}

/** Accepts an object whose named fields pass; other fields may be there and are not looked at. */
function shape(fields: Readonly<Record<string, Check>>): Check {
  const checks = Object.entries(fields);
  return (value, path) =>
    isRecord(value)
      ? firstProblem(checks, ([name, check]) => check(value[name], path === "" ? name : `${path}.${name}`))
      : `${path === "" ? "the body" : path} must be an object`;
}

/** Accepts an object all of whose values pass. */
function recordOf(check: Check): Check {
  return (value, path) =>
    isRecord(value)
      ? firstProblem(Object.entries(value), ([name, entry]) => check(entry, `${path}[${JSON.stringify(name)}]`))
      : `${path} must be an object`;
}

/** Accepts an array all of whose items pass. */
function listOf(check: Check): Check {
  return (value, path) => (Array.isArray(value) ? firstItemProblem(value, check, path) : `${path} must be an array`);
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Names an item only where it has a problem: a list may be long. */
function firstItemProblem(items: readonly unknown[], check: Check, path: string): string | undefined {
  const index = items.findIndex((item) => check(item, "") !== undefined);
  return index === -1 ? undefined : check(items[index], `${path}[${index}]`);
}

function firstProblem<T>(items: readonly T[], problemOf: (item: T) => string | undefined): string | undefined {
  for (const item of items) {
    const problem = problemOf(item);
    if (problem !== undefined) {
      return problem;
    }
  }
  return undefined;
}
