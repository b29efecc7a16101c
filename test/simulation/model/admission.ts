import {
  FROZEN_CEL,
  freezeVerdict,
  MESSAGE_CEL,
  MIGRATING,
  STORAGE_CHANGED_CEL,
  storageVersions,
} from "../../../src/freeze/rule.ts";
import type { Crd } from "../../../src/kube/objects.ts";
import { forbidden, internalError, Refusal } from "./answers.ts";
import { type AdmissionOperation, type Hook, isMatched, type ServerContext } from "./context.ts";
import { jsonPatched } from "./documents.ts";
import { type Fields, isSame, type ModelObject } from "./etcd.ts";
import type { ServedKind } from "./kinds.ts";
import { statusText } from "./stored-objects.ts";

/** What admission decides on. */
export interface Admitted {
  readonly kind: ServedKind;
  readonly operation: AdmissionOperation;
  readonly subresource: string | undefined;
  readonly name: string;
  readonly namespace: string | undefined;
  /** What is to be; `undefined` where it is to be deleted. */
  readonly object: ModelObject | undefined;
  readonly oldObject: ModelObject | undefined;
  readonly isDryRun: boolean;
  readonly user: string;
  readonly fieldManager: string | undefined;
}

/** Whether nothing takes part in admission: then a write need not wait for it. */
export function isAnythingAsked({ admission }: ServerContext, what: Admitted): boolean {
  const { mutating, policies, validating } = admission;
  if (mutating.length + policies.length + validating.length === 0) return false;
  return !isExempt(what.kind);
}

/** What the mutating webhooks make of an object, each after the other. @throws {Refusal} */
export async function mutated(context: ServerContext, what: Admitted): Promise<ModelObject | undefined> {
  let { object } = what;
  for (const hook of context.admission.mutating) {
    const response = isCalled(hook, { ...what, object }) ? await call(context, hook, { ...what, object }) : undefined;
    if (response?.patch !== undefined) {
      object = jsonPatched(object, JSON.parse(Buffer.from(response.patch, "base64").toString())) as ModelObject;
    }
  }
  return object;
}

/** Has policies, then webhooks decide. The webhooks are asked at the same time. @throws {Refusal} */
export async function validate(context: ServerContext, what: Admitted): Promise<void> {
  if (isExempt(what.kind)) return;
  assertPolicies(context, what);
  const hooks = context.admission.validating.filter((hook) => isCalled(hook, what));
  if (hooks.length === 0) return;
  const outcomes = await Promise.allSettled(hooks.map((hook) => call(context, hook, what)));
  const failed = outcomes.find((outcome) => outcome.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/validating/dispatcher.go */
function assertPolicies({ admission }: ServerContext, what: Admitted): void {
  for (const { binding, isDenying, matchConditions, name, rules, validations } of admission.policies) {
    if (!isDenying || !isMatched(rules, what.kind, what)) continue;
    if (!matchConditions.every(({ expression }) => evaluate(expression, what) === true)) continue;
    const failed = validations.find(({ expression }) => evaluate(expression, what) !== true);
    if (failed === undefined) continue;
    const { expression, message = `failed expression: ${expression}`, messageExpression, reason = "Invalid" } = failed;
    const text = messageExpression === undefined ? message : String(evaluate(messageExpression, what));
    const said = `ValidatingAdmissionPolicy '${name}' with binding '${binding}' denied request: ${text}`;
    const { details, message: whole = "" } = forbidden(what.kind, what.name, said).status;
    const code = { Unauthorized: 401, Forbidden: 403, RequestEntityTooLarge: 413 }[reason] ?? 422;
    throw new Refusal({ code, reason, message: whole, details: { ...details, causes: [{ message: said }] } });
  }
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules/rules.go */
function isExempt({ group, resource }: ServedKind): boolean {
  return group === "admissionregistration.k8s.io" && /^(validating|mutating)/.test(resource);
}

function isCalled(hook: Hook, what: Admitted): boolean {
  if (!isMatched(hook.rules, what.kind, what) || isExempt(what.kind)) return false;
  return hook.matchConditions.every(({ expression }) => evaluate(expression, what) === true);
}

interface HookResponse {
  readonly uid?: string;
  readonly allowed?: boolean;
  readonly status?: Fields;
  readonly patch?: string;
}

/** @returns the response of a webhook that allows; `undefined` where it failed, and its failure is ignored */
async function call(context: ServerContext, hook: Hook, what: Admitted): Promise<HookResponse | undefined> {
  const uid = context.etcd.nextId();
  const url = `${hook.url}?timeout=${hook.timeoutSeconds}s`;
  const review = JSON.stringify(reviewOf(uid, what));
  const answer = await context.io.callWebhook(url, review, hook.timeoutSeconds * 1_000);
  let problem: string;
  if ("error" in answer) {
    problem = `failed to call webhook: Post ${JSON.stringify(url)}: ${answer.error}`;
  } else if (answer.status !== 200) {
    problem = `failed to call webhook: ${statusText(answer)}`;
  } else {
    const response = responseIn(answer.body, uid);
    if (typeof response !== "string") return verdictOf(hook, response);
    problem = response;
  }
  if (hook.isIgnoredOnFailure) return undefined;
  throw internalError(`failed calling webhook "${hook.name}": ${problem}`);
}

/** @returns the response, or what is wrong with the answer */
function responseIn(body: string, uid: string): HookResponse | string {
  let review: { apiVersion?: string; kind?: string; response?: HookResponse } | null;
  try {
    review = JSON.parse(body) as typeof review;
  } catch (error) {
    return `failed to call webhook: ${String(error)}`;
  }
  if (review?.kind !== "AdmissionReview" || review.apiVersion !== "admission.k8s.io/v1") {
    const said = `${review?.apiVersion ?? ""}, Kind=${review?.kind ?? ""}`;
    return `received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got ${said}`;
  }
  const { response } = review;
  if (response === undefined) return "received invalid webhook response: webhook response was absent";
  if (response.uid !== uid) {
    return `received invalid webhook response: expected response.uid="${uid}", got "${response.uid ?? ""}"`;
  }
  return response;
}

/**
 * A denial carries the status code, reason and details that the webhook chose.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go
 */
function verdictOf(hook: Hook, response: HookResponse): HookResponse {
  if (response.allowed === true) return response;
  const {
    code = 0,
    details,
    message = "",
    reason,
  } = (response.status ?? {}) as {
    code?: number;
    details?: object;
    message?: string;
    reason?: string;
  };
  const said = message === "" ? (reason ?? "") : message;
  throw new Refusal({
    code: Math.max(400, code),
    ...(reason === undefined ? {} : { reason }),
    ...(details === undefined ? {} : { details }),
    message: `admission webhook "${hook.name}" denied the request${said === "" ? " without explanation" : `: ${said}`}`,
  });
}

function reviewOf(uid: string, what: Admitted): object {
  const {
    fieldManager,
    isDryRun,
    kind: bound,
    name,
    namespace,
    object,
    oldObject,
    operation,
    subresource,
    user,
  } = what;
  const { group, kind, resource, version } = bound;
  const [gvk, gvr] = [
    { group, version, kind },
    { group, version, resource },
  ];
  const options = {
    kind: `${operation.charAt(0)}${operation.slice(1).toLowerCase()}Options`,
    apiVersion: "meta.k8s.io/v1",
  };
  const request = {
    uid,
    kind: gvk,
    resource: gvr,
    ...(subresource === undefined ? {} : { subResource: subresource }),
    requestKind: gvk,
    requestResource: gvr,
    name,
    ...(namespace === undefined ? {} : { namespace }),
    operation,
    userInfo: { username: user },
    object: object ?? null,
    oldObject: oldObject ?? null,
    dryRun: isDryRun,
    options: fieldManager === undefined ? options : { ...options, fieldManager },
  };
  return { kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", request };
}

/** What an expression sees. */
interface ExpressionInput {
  readonly object: ModelObject | undefined;
  readonly oldObject: ModelObject | undefined;
  readonly fieldManager: string | undefined;
}

type Evaluation = (input: ExpressionInput) => unknown;

/**
 * The CEL expressions that ksvm installs, as functions. That they say the same as the API server makes of them is for
 * test/contract to prove.
 */
const EVALUATIONS = new Map<string, Evaluation>([
  [FROZEN_CEL, ({ oldObject }) => Object.hasOwn(crdOf(oldObject).metadata.annotations ?? {}, MIGRATING)],
  [STORAGE_CHANGED_CEL, isStorageChanged],
  [`!(${STORAGE_CHANGED_CEL})`, (input) => !isStorageChanged(input)],
  [MESSAGE_CEL, ({ object, oldObject }) => freezeVerdict(crdOf(oldObject), crdOf(object))?.message],
  ["true", () => true],
  ["false", () => false],
]);

/** @throws {Error} for an expression that the model does not know */
function evaluate(expression: string, input: ExpressionInput): unknown {
  const evaluation = EVALUATIONS.get(expression);
  if (evaluation === undefined) throw new Error(`The model does not know the expression ${expression}`);
  return evaluation(input);
}

function isStorageChanged({ object, oldObject }: ExpressionInput): boolean {
  return !isSame(storageVersions(crdOf(oldObject)), storageVersions(crdOf(object)));
}

/** ksvm's policy and webhook are asked about updates alone: both are there. */
function crdOf(object: ModelObject | undefined): Crd {
  return object as unknown as Crd;
}
