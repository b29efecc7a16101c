import type { CustomResourceDefinition } from "../api/crd.ts";
import type { WebhookDecision } from "../observability/metrics.ts";
import {
  type AuditAnnotations,
  allowed,
  decodeReview,
  denied,
  errored,
  type ParsedReview,
  parseAdmissionReview,
  type ReviewAnswer,
  uidAtStart,
} from "./admission-review.ts";
import { type FreezeDenial, type FreezeVerdict, freezeVerdict, type ProgressOf } from "../old/freeze/freeze-rule.ts";
import { OverBudget } from "../old/json/json-projection.ts";
import { OVER_BUDGET_MESSAGE, STATUS_TEXTS, tooLargeMessage } from "./http-statuses.ts";
import type { ReceivedBody } from "./receive-body.ts";

/** A review that was answered. */
export interface Reviewed {
  /** The HTTP status of the answer. */
  readonly status: number;
  readonly answer: ReviewAnswer;
  readonly decision: WebhookDecision;
  /** The verdict and the CRD that it is on; nothing where the body was no review. */
  readonly verdict?: FreezeVerdict;
  readonly crdName?: string;
}

/** Options of {@link reviewBody}. */
export interface ReviewOptions {
  /** Bytes of the largest review that is read, for the words of a denial. */
  readonly bodyLimit: number;
  /** For the words of a denial. @default they leave it out */
  readonly progressOf?: ProgressOf | undefined;
}

/** Answers the body of a review, whatever it holds. */
export function reviewBody(body: ReceivedBody, { bodyLimit, progressOf }: ReviewOptions): Reviewed {
  if (body.bytes === undefined) {
    return reviewUnread(body.head, tooLargeMessage(body.length, bodyLimit));
  }
  const parsed = decode(body.bytes);
  if (parsed === "over budget") {
    return reviewUnread(body.bytes, OVER_BUDGET_MESSAGE);
  }
  if (!parsed.valid) {
    return refusal(400, parsed.uid, parsed.problem);
  }
  const { uid, object, oldObject } = parsed.request;
  return answerTo(uid, oldObject, freezeVerdict(oldObject, object, progressOf));
}

/** An answer without a verdict, for a body that is no review or cannot be reviewed. */
export function refusal(status: number, uid = "", message = STATUS_TEXTS[status] ?? ""): Omit<Reviewed, "verdict"> {
  return { status, answer: errored(uid, status, message), decision: "invalid" };
}

/** Reads the bytes of a body, whatever they hold. */
function decode(bytes: Buffer): ParsedReview | "over budget" {
  try {
    return parseAdmissionReview(decodeReview(bytes));
  } catch (error) {
    if (error instanceof OverBudget) {
      return "over budget";
    }
    // Neither the text nor where it breaks is repeated: it holds a user's objects.
    return { valid: false, uid: "", problem: STATUS_TEXTS[400] ?? "" };
  }
}

/**
 * The API server hands the words of an answer to the user only with status 200 and the review's uid. That one stands at
 * the beginning, so it is known although the review is not read.
 */
function reviewUnread(head: Buffer, message: string): Reviewed {
  const uid = uidAtStart(head);
  return uid === "" ? refusal(413) : { ...refusal(413, uid, message), status: 200 };
}

function answerTo(uid: string, { metadata: { name } }: CustomResourceDefinition, verdict: FreezeVerdict): Reviewed {
  if (verdict.allowed) {
    return { status: 200, answer: allowed(uid), decision: "allowed", verdict, crdName: name };
  }
  const answer = denied(uid, verdict.message, auditAnnotationsOf(verdict));
  return { status: 200, answer, decision: "denied", verdict, crdName: name };
}

function auditAnnotationsOf({ mark, owner, oldStorage, newStorage }: FreezeDenial): AuditAnnotations {
  return {
    "frozen-by": mark,
    "storage-version": oldStorage,
    "requested-storage-version": newStorage,
    ...(owner === undefined ? {} : { "migration-lease": owner.lease, "migration-identity": owner.identity }),
  };
}
