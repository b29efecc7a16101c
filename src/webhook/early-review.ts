import type { Projection } from "../json/json-projection.ts";
import {
  allowed,
  allowedWithWarning,
  checkedReview,
  decodeReview,
  deniedForNow,
  type AuditAnnotations,
  type ParsedReview,
  type ReviewAnswer,
} from "./admission-review.ts";
import type { EarlyVerdict, InTreeResource } from "./early-migrations.ts";
import type { ReceivedBody } from "./receive-body.ts";
import { decode, refusal } from "./review.ts";
import { literal, optional, shape, string, text } from "./shape.ts";

/** A review of a new migration of Kubernetes' own migrator that was answered. */
export interface EarlyReviewed {
  /** The HTTP status of the answer. */
  readonly status: number;
  readonly answer: ReviewAnswer;
  /** Nothing where the body was no review. */
  readonly verdict?: EarlyVerdict;
}

/** Whatever the version of the API, `spec.resource` has a group and a resource. */
const PROJECTION: Projection = {
  fields: {
    apiVersion: "scalar",
    kind: "scalar",
    request: {
      fields: {
        uid: "scalar",
        operation: "scalar",
        object: {
          fields: { spec: { fields: { resource: { fields: { group: "scalar", resource: "scalar" } } } } },
        },
      },
    },
  },
};

interface CreateRequest {
  readonly uid: string;
  readonly object: { readonly spec: { readonly resource: InTreeResource } };
}

const checkReview = shape({
  apiVersion: literal("admission.k8s.io/v1"),
  kind: literal("AdmissionReview"),
  request: shape({
    uid: text,
    operation: literal("CREATE"),
    object: shape({ spec: shape({ resource: shape({ group: optional(string), resource: string }) }) }),
  }),
});

/**
 * Answers the body of a review, whatever it holds. Every HTTP status but 200 lets the migration be created: the API server ignores what
 * it cannot read.
 */
export async function reviewEarly(
  body: ReceivedBody,
  judge: (resource: InTreeResource) => Promise<EarlyVerdict>,
): Promise<EarlyReviewed> {
  const parsed = requestIn(body);
  // What follows takes its time.
  body.release();
  if (parsed === "over budget") {
    return refusal(413);
  }
  if (!parsed.valid) {
    return refusal(400, parsed.uid, parsed.problem);
  }
  const { uid, object } = parsed.request;
  const verdict = await judge(object.spec.resource);
  return { status: 200, answer: answerOf(uid, verdict), verdict };
}

function requestIn({ bytes }: ReceivedBody): ParsedReview<CreateRequest> | "over budget" {
  return bytes === undefined
    ? "over budget"
    : decode(bytes, (body) => checkedReview(decodeReview(body, PROJECTION), checkReview));
}

function answerOf(uid: string, verdict: EarlyVerdict): ReviewAnswer {
  switch (verdict.decision) {
    case "allowed":
      return allowed(uid);
    case "unread":
      return allowedWithWarning(uid, verdict.message, { "not-judged": verdict.crdName });
    case "warned":
      return allowedWithWarning(uid, verdict.message, auditAnnotationsOf(verdict));
    case "denied":
      return deniedForNow(uid, verdict.message, verdict.seconds, auditAnnotationsOf(verdict));
  }
}

function auditAnnotationsOf({
  crdName,
  seconds,
}: Extract<EarlyVerdict, { readonly seconds: number }>): AuditAnnotations {
  return { "too-early-for": crdName, "seconds-left": String(seconds) };
}
