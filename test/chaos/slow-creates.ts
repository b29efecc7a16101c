import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";
import type { ApiClient } from "../api-client.ts";
import { GROUP } from "../integration/crd-fixture.ts";
import { type ServedWebhook, serveWebhook } from "../integration/serve-webhook.ts";

/** Which creates are held, and for how long. */
export interface SlowCreates {
  /** Of the names of the objects. */
  readonly prefix: string;
  readonly heldMs: number;
  /** Lets the creates go that come from now on before that, once it resolves. @default never */
  readonly letGo?: () => Promise<unknown>;
}

/** Installs an admission webhook that holds some creates, as a slow webhook of another owner does. */
export async function holdCreates(t: Test, api: ApiClient, options: SlowCreates): Promise<ServedWebhook> {
  const { prefix, heldMs, letGo = () => new Promise(() => undefined) } = options;
  const webhook = await serveWebhook(t, async ({ request }: { request: { uid: string; name: string } }) => {
    if (request.name.startsWith(prefix)) await Promise.race([delay(heldMs), letGo()]);
    const response = { uid: request.uid, allowed: true };
    return { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response };
  });
  await api.create(
    { group: "admissionregistration.k8s.io", version: "v1", resource: "validatingwebhookconfigurations" },
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingWebhookConfiguration",
      metadata: { name: "slow" },
      webhooks: [
        {
          name: "slow.example.com",
          clientConfig: webhook.clientConfig,
          rules: [{ apiGroups: [GROUP], apiVersions: ["*"], resources: ["*"], operations: ["CREATE"] }],
          // Only those are sent to it, so that other creates do not wait for it.
          matchConditions: [{ name: "held", expression: `object.metadata.name.startsWith("${prefix}")` }],
          sideEffects: "None",
          admissionReviewVersions: ["v1"],
          timeoutSeconds: 30,
        },
      ],
    },
  );
  return webhook;
}
