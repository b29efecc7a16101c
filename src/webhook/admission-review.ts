import type { CustomResourceDefinition } from "../api/crd.ts";
import { boolean, listOf, literal, optional, recordOf, shape, string, text } from "./shape.ts";

/** An update of a CRD that the API server asks about. Of both objects only what the freeze rule reads is checked. */
export interface UpdateRequest {
  readonly uid: string;
  readonly operation: "UPDATE";
  readonly object: CustomResourceDefinition;
  readonly oldObject: CustomResourceDefinition;
}

/** The result of {@link parseAdmissionReview}; `problem` is a sentence, `uid` is empty where none could be read. */
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
    readonly status?: { readonly code: number; readonly reason: string; readonly message: string };
  };
}

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
  const { uid, operation, object, oldObject } = (body as { request: UpdateRequest }).request;
  return { valid: true, request: { uid, operation, object, oldObject } };
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
export function denied(uid: string, message: string): ReviewAnswer {
  return answer({ uid, allowed: false, status: { code: 403, reason: "Forbidden", message } });
}

/** There is no verdict, and so no update. */
export function errored(uid: string, code: number, message: string): ReviewAnswer {
  const reason = code >= 500 ? "InternalError" : "BadRequest";
  return answer({ uid, allowed: false, status: { code, reason, message } });
}

function answer(response: ReviewAnswer["response"]): ReviewAnswer {
  return { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response };
}
