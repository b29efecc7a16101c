import { FREEZE_REASON, MANAGED_BY, MANAGED_BY_LABEL, WEBHOOK_NAME } from "../../api/names.ts";

/** The values of `--guard`. */
export const GUARD_CHOICES = ["auto", "webhook", "policy"] as const;

/** Which guard enforces a freeze: `auto` is the webhook where it is installed, else a policy for the one run. */
export type GuardChoice = (typeof GUARD_CHOICES)[number];

/** The default of `--guard`. */
export const DEFAULT_GUARD: GuardChoice = "auto";

/** Which guard enforces the freeze, under which name the API server reports its denials. */
export interface GuardIdentity {
  readonly kind: "webhook" | "policy";
  readonly name: string;
}

/** A CRD that a run freezes, and the guard that enforces it: chosen once for a run. */
export interface GuardedCrd {
  readonly crdName: string;
  readonly guard: GuardIdentity;
}

/** The labels of every object that this program creates in a cluster. */
export const MANAGED_LABELS: Readonly<Record<string, string>> = { [MANAGED_BY_LABEL]: MANAGED_BY };

/** The installed webhook. */
export const WEBHOOK_GUARD: GuardIdentity = { kind: "webhook", name: WEBHOOK_NAME };

/**
 * Whether a message of the API server is a denial of a storage change by this guard. Only the guard's name together
 * with our reason counts: a denial by the authorizer, by validation or by another webhook proves nothing.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/validating/dispatcher.go
 */
export function isDenialBy(guard: GuardIdentity, crdName: string, message: string): boolean {
  return message.startsWith(`${denialPrefix(guard, crdName)}${FREEZE_REASON}:`);
}

function denialPrefix(guard: GuardIdentity, crdName: string): string {
  if (guard.kind === "webhook") {
    return `admission webhook "${guard.name}" denied the request: `;
  }
  const subject = `customresourcedefinitions.apiextensions.k8s.io "${crdName}" is forbidden: `;
  return `${subject}ValidatingAdmissionPolicy '${guard.name}' with binding '${guard.name}' denied request: `;
}
