import { freezeVerdict } from "../../../src/freeze/rule.ts";
import type { Crd } from "../../../src/kube/objects.ts";
import { webhookConfigurationOf } from "../../../src/webhook/webhook-configuration.ts";
import type { WebhookAnswer } from "../model/answers.ts";
import type { SimWebhook } from "./cluster.ts";

// What the webhooks of simulated worlds answer: those of users, and ksvm's own.

/** What a webhook of the simulation is asked about. */
interface ReviewedRequest {
  readonly uid: string;
  readonly name: string;
  readonly operation: string;
  readonly userInfo: { readonly username: string };
  readonly object: {
    readonly metadata: { readonly annotations?: Readonly<Record<string, string>> };
    readonly spec?: Readonly<Record<string, unknown>>;
  } | null;
  readonly oldObject: unknown;
}

/** An admission webhook that answers with what `response` says, beside the uid. */
export function admissionWebhook(response: (request: ReviewedRequest) => object): SimWebhook {
  return async (body) => {
    const { request } = JSON.parse(body) as { request: ReviewedRequest };
    return reviewed(
      { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview" },
      { uid: request.uid, ...response(request) },
    );
  };
}

/** Allows, and changes the object by a JSON patch. */
export function mutation(patch: readonly object[]): object {
  return { allowed: true, patchType: "JSONPatch", patch: Buffer.from(JSON.stringify(patch)).toString("base64") };
}

function reviewed(of: object, response: object): WebhookAnswer {
  return { status: 200, body: JSON.stringify({ ...of, response }) };
}

/** Never answers. */
export function hang(): Promise<WebhookAnswer> {
  return new Promise(() => undefined);
}

/** How a webhook fails. */
export const BAD_ANSWERS: Readonly<Record<string, SimWebhook>> = {
  hang,
  reset: async () => ({ error: "read tcp: connection reset by peer" }),
  error: async () => ({ status: 500, body: "it fails" }),
  busy: async () => ({ status: 429, body: "" }),
  html: async () => ({ status: 200, body: "<html></html>" }),
  nothing: async () => ({ status: 200, body: "{}" }),
  otherReview: async () =>
    reviewed({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview" }, { uid: "other", allowed: true }),
};

/** Where API servers call the webhook of ksvm. */
export const GUARD_URL = "https://ksvm-webhook.sim/validate";
export const GUARD_CONFIGURATION = webhookConfigurationOf({ clientConfig: { url: GUARD_URL } });

/** The webhook of ksvm, which decides by the rule of the freeze. */
export const GUARD_WEBHOOK = admissionWebhook(({ object, oldObject }) => {
  const denial = freezeVerdict(oldObject as Crd, object as unknown as Crd);
  if (denial === undefined) return { allowed: true };
  return { allowed: false, status: { code: 403, reason: "Forbidden", message: denial.message } };
});
