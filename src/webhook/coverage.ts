import { WEBHOOK_NAME } from "../api/names.ts";
import type { KubeObject } from "../kube/client.ts";

interface Rule {
  readonly apiGroups?: readonly string[];
  readonly apiVersions?: readonly string[];
  readonly operations?: readonly string[];
  readonly resources?: readonly string[];
  readonly scope?: string;
}

interface Webhook {
  readonly name?: string;
  readonly failurePolicy?: string;
  readonly objectSelector?: object;
  readonly rules?: readonly Rule[];
}

/**
 * Whether a configuration that is not of our making can enforce the freeze, as far as that shows without evaluating CEL: our
 * webhook is there, fails closed, and selects every update of a CRD. An older keeper leaves to a newer one nothing that enforces less.
 *
 * A namespaceSelector exempts no CRD, which belongs to no namespace: see `webhookConfigurationOf`.
 *
 * This is no proof, and S1 does not rest on it: a match condition may still be false for every request, or the webhook may not be
 * reached. Each run proves its freeze on every API server before it prunes, and takes no configuration for a proof
 * (src/freeze/freeze-proof.ts). What a wrong configuration can cost is therefore a migration that waits or fails, never an object.
 */
export function coversFreeze(live: KubeObject): boolean {
  const { webhooks } = live as { readonly webhooks?: unknown };
  const ours = (Array.isArray(webhooks) ? (webhooks as readonly Webhook[]) : []).find(
    ({ name }) => name === WEBHOOK_NAME,
  );
  return ours?.failurePolicy === "Fail" && isEmpty(ours.objectSelector) && (ours.rules ?? []).some(selectsCrdUpdates);
}

function selectsCrdUpdates({ apiGroups, apiVersions, operations, resources, scope = "*" }: Rule): boolean {
  return (
    names(apiGroups, "apiextensions.k8s.io") &&
    names(apiVersions, "v1") &&
    names(operations, "UPDATE") &&
    (names(resources, "customresourcedefinitions") || names(resources, "*/*")) &&
    scope !== "Namespaced"
  );
}

function names(values: readonly string[] | undefined, value: string): boolean {
  return values?.some((one) => one === value || one === "*") === true;
}

/** The API server fills in an empty selector where there is none. */
function isEmpty(selector: object | undefined): boolean {
  return Object.keys(selector ?? {}).length === 0;
}
