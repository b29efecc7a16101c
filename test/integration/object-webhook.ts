import type { Test } from "tap";
import { MERGE_PATCH, WEBHOOK_CONFIGURATIONS } from "../api-client.ts";
import { type Cluster, eventually } from "./cluster.ts";
import { GROUP, type TestKind } from "./crd-fixture.ts";
import { type ServedWebhook, serveWebhook } from "./serve-webhook.ts";

/** What an admission webhook answers to the update of one object. */
export interface Verdict {
  readonly allowed: boolean;
  /** A `metav1.Status`, such as another client's answer that the webhook passes on. */
  readonly status?: object;
  /** A JSON patch; of a mutating webhook. */
  readonly patch?: readonly object[];
}

/** The part of an AdmissionReview request that a webhook of a test looks at. */
interface Review {
  readonly request: { readonly uid: string; readonly name: string; readonly dryRun?: boolean };
}

/** How an admission webhook of a test behaves. */
export interface ObjectWebhookOptions {
  /** What it answers for an object, by its name. */
  readonly decide: (name: string, isDryRun: boolean) => Verdict | Promise<Verdict>;
  /** @default "Validating" */
  readonly type?: "Validating" | "Mutating";
  /** Of what besides the objects it is asked. @default of nothing */
  readonly subresource?: "status";
  /** How long API servers wait for it. @default 10 */
  readonly timeoutSeconds?: number;
}

/**
 * An admission webhook of another owner on the updates of a kind's objects. It is in force when this returns, and ends
 * with the test.
 */
export async function objectWebhook(
  t: Test,
  cluster: Cluster,
  kind: TestKind,
  { decide, subresource, timeoutSeconds = 10, type = "Validating" }: ObjectWebhookOptions,
): Promise<ServedWebhook> {
  const { api } = cluster;
  const served = await serveWebhook(t, async ({ request }: Review) => {
    const { patch, ...verdict } = await decide(request.name, request.dryRun === true);
    const patched = patch && { patchType: "JSONPatch", patch: Buffer.from(JSON.stringify(patch)).toString("base64") };
    return {
      apiVersion: "admission.k8s.io/v1",
      kind: "AdmissionReview",
      response: { uid: request.uid, ...verdict, ...patched },
    };
  });
  const resource =
    type === "Validating"
      ? WEBHOOK_CONFIGURATIONS
      : { ...WEBHOOK_CONFIGURATIONS, resource: "mutatingwebhookconfigurations" };
  const asked = [kind.plural, ...(subresource === undefined ? [] : [`${kind.plural}/${subresource}`])];
  await api.create(resource, {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: `${type}WebhookConfiguration`,
    metadata: { name: kind.plural },
    webhooks: [
      {
        name: "own.example.com",
        clientConfig: served.clientConfig,
        rules: [{ apiGroups: [GROUP], apiVersions: ["*"], resources: asked, operations: ["UPDATE"] }],
        sideEffects: "None",
        timeoutSeconds,
        admissionReviewVersions: ["v1"],
      },
    ],
  });
  t.teardown(() => api.delete(resource, { name: kind.plural }));
  const before = served.calls();
  const { items } = await api.listMetadata(kind.resource("v1"), { limit: 1 });
  const ref = { name: items[0]?.metadata.name ?? "", namespace: "default" };
  const touch = { type: MERGE_PATCH, body: { metadata: { labels: { touched: "yes" } } } };
  await eventually(async () => {
    await api.patch(kind.resource("v1"), ref, touch, { dryRun: true }).catch(() => undefined);
    return served.calls() > before;
  }, "the webhook is in force");
  return served;
}
