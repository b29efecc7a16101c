import { freezerOf } from "../freeze/freeze.ts";
import { freezeMark, freezeVerdict } from "../freeze/rule.ts";
import type { WebhookDecision } from "../observability/metrics.ts";
import { OverBudget } from "../old/json/json-projection.ts";
import {
  allowed,
  decodeReview,
  denied,
  errored,
  type ParsedReview,
  parseAdmissionReview,
  type ReviewAnswer,
  uidAtStart,
  type UpdateRequest,
} from "./admission-review.ts";
import { OVER_BUDGET_MESSAGE, STATUS_TEXTS, tooLargeMessage } from "./http-statuses.ts";
import type { ReceivedBody } from "./receive-body.ts";

/** How far the migration of a CRD is, in a few words for people; `undefined` where it is not known. */
export type ProgressOf = (crdName: string) => string | undefined;

/** A review that was answered. */
export interface Reviewed {
  /** The HTTP status of the answer. */
  readonly status: number;
  readonly answer: ReviewAnswer;
  readonly decision: WebhookDecision;
  /** The CRD that the verdict is on; missing where the body was no review. */
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
  return parsed.valid ? answerTo(parsed.request, progressOf) : refusal(400, parsed.uid, parsed.problem);
}

/** An answer without a verdict, for a body that is no review or cannot be reviewed. */
export function refusal(status: number, uid = "", message = STATUS_TEXTS[status] ?? ""): Reviewed {
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

function answerTo({ object, oldObject, uid }: UpdateRequest, progressOf: ProgressOf | undefined): Reviewed {
  const { metadata } = oldObject;
  const crdName = metadata.name;
  const freezer = freezeMark(oldObject) === "annotation" ? freezerOf(metadata) : undefined;
  const owner = freezer === "other" ? undefined : freezer;
  const progress = progressOf?.(crdName);
  const held = owner && `it is held by "${owner.lease}", run "${owner.identity}", since "${owner.since}"`;
  const denial = freezeVerdict(oldObject, object, [
    ...(held === undefined ? [] : [held]),
    ...(progress === undefined ? [] : [`so far ${progress}`]),
  ]);
  if (denial === undefined) {
    return { status: 200, answer: allowed(uid), decision: "allowed", crdName };
  }
  const { mark, message, newStorage, oldStorage } = denial;
  const answer = denied(uid, message, {
    "frozen-by": mark,
    "storage-version": oldStorage,
    "requested-storage-version": newStorage,
    ...(owner === undefined ? {} : { "migration-lease": owner.lease, "migration-identity": owner.identity }),
  });
  return { status: 200, answer, decision: "denied", crdName };
}
