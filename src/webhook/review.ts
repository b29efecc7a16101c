import { freezerOf } from "../freeze/freeze.ts";
import { freezeVerdict } from "../freeze/rule.ts";
import type { Crd } from "../kube/objects.ts";
import type { WebhookDecision } from "../observability/metrics.ts";

/*
 * From the body of a request to the answer: what an AdmissionReview asks about, and the verdict of the freeze rule.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/api/admission/v1/types.go
 */

/** How far the migration of a CRD is, in a few words for people; `undefined` where it is not known. */
export type ProgressOf = (crdName: string) => string | undefined;

/** The answer to an AdmissionReview, admission.k8s.io/v1. */
export interface ReviewAnswer {
  readonly apiVersion: "admission.k8s.io/v1";
  readonly kind: "AdmissionReview";
  readonly response: {
    readonly uid: string;
    readonly allowed: boolean;
    readonly status?: { readonly code: number; readonly reason: string; readonly message: string };
    /** For the audit log. The API server puts the webhook's name before each key. */
    readonly auditAnnotations?: Readonly<Record<string, string>>;
  };
}

/** A review that was answered. */
export interface Reviewed {
  /** The HTTP status of the answer. */
  readonly status: number;
  readonly answer: ReviewAnswer;
  readonly decision: WebhookDecision;
  /** The CRD that the verdict is on; missing where the body was no review. */
  readonly crdName?: string;
}

/** Answers a review. Only updates are taken: the rule compares two objects. */
export function reviewBody(body: unknown, progressOf?: ProgressOf): Reviewed {
  const problem = problemIn(body);
  if (problem !== undefined) {
    const { uid } = fieldsOf(fieldsOf(body)["request"]);
    return refusal(400, `Cannot read the AdmissionReview: ${problem}`, typeof uid === "string" ? uid : "");
  }
  const { object, oldObject, uid } = (body as { readonly request: UpdateRequest }).request;
  const { name: crdName } = oldObject.metadata;
  const freezer = freezerOf(oldObject.metadata);
  const owner = freezer === "other" ? undefined : freezer;
  const progress = progressOf?.(crdName);
  const denial = freezeVerdict(oldObject, object, [
    ...(owner === undefined ? [] : [`it is held by "${owner.lease}", run "${owner.identity}", since "${owner.since}"`]),
    ...(progress === undefined ? [] : [`so far ${progress}`]),
  ]);
  if (denial === undefined) {
    return { status: 200, answer: answerOf({ uid, allowed: true }), decision: "allowed", crdName };
  }
  const { message, newStorage, oldStorage } = denial;
  const auditAnnotations = {
    "storage-version": oldStorage,
    "requested-storage-version": newStorage,
    ...(owner === undefined ? {} : { "migration-lease": owner.lease, "migration-identity": owner.identity }),
  };
  const status = { code: 403, reason: "Forbidden", message };
  const answer = answerOf({ uid, allowed: false, status, auditAnnotations });
  return { status: 200, answer, decision: "denied", crdName };
}

/** HTTP status and reason of an answer without a verdict, as metav1.Status has them. */
const REASONS: Readonly<Record<number, string>> = { 413: "RequestEntityTooLarge", 500: "InternalError" };

/** An answer without a verdict: there is no update. */
export function refusal(status: number, message: string, uid = ""): Reviewed {
  const reason = REASONS[status] ?? "BadRequest";
  const answer = answerOf({ uid, allowed: false, status: { code: status, reason, message } });
  return { status, answer, decision: "invalid" };
}

function answerOf(response: ReviewAnswer["response"]): ReviewAnswer {
  return { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response };
}

/** An update of a CRD that the API server asks about. */
interface UpdateRequest {
  readonly uid: string;
  readonly object: Crd;
  readonly oldObject: Crd;
}

/** What is wrong with the body of a review; `undefined` where the freeze rule can be asked about it. */
function problemIn(body: unknown): string | undefined {
  const { apiVersion, kind, request } = fieldsOf(body);
  const { object, oldObject, operation, uid } = fieldsOf(request);
  if (apiVersion !== "admission.k8s.io/v1") return 'apiVersion must be "admission.k8s.io/v1"';
  if (kind !== "AdmissionReview") return 'kind must be "AdmissionReview"';
  if (typeof uid !== "string" || uid === "") return "request.uid must be a non-empty string";
  if (operation !== "UPDATE") return 'request.operation must be "UPDATE"';
  return problemOfCrd("request.object", object) ?? problemOfCrd("request.oldObject", oldObject);
}

/** Checks what the freeze rule reads. A CRD that is not understood is not allowed to change. */
function problemOfCrd(path: string, crd: unknown): string | undefined {
  const { apiVersion, kind, metadata, spec } = fieldsOf(crd);
  if (apiVersion !== "apiextensions.k8s.io/v1" || kind !== "CustomResourceDefinition") {
    return `${path} must be a CustomResourceDefinition of apiextensions.k8s.io/v1`;
  }
  const { annotations = {}, name } = fieldsOf(metadata);
  if (typeof name !== "string" || name === "") return `${path}.metadata.name must be a non-empty string`;
  if (!isRecord(annotations) || Object.values(annotations).some((value) => typeof value !== "string")) {
    return `${path}.metadata.annotations must be an object of strings`;
  }
  const { versions } = fieldsOf(spec);
  const isVersion = (version: unknown): boolean => {
    const fields = fieldsOf(version);
    return typeof fields["name"] === "string" && typeof fields["storage"] === "boolean";
  };
  if (!Array.isArray(versions) || !versions.every(isVersion)) {
    return `${path}.spec.versions must be an array of versions`;
  }
  return undefined;
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return isRecord(value) ? value : {};
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
