import type { Test } from "tap";
import { WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { type Cluster, eventually } from "./cluster.ts";
import { GROUP, type TestKind } from "./crd-fixture.ts";
import { serveWebhook } from "./serve-webhook.ts";

/** An object that is being created, and stands in the admission of the API server. */
export interface HeldCreation {
  /** Lets the creation go on, and waits until it has ended. */
  letGo(): Promise<void>;
}

/** An API server gives up on a write after 34 s: so long an admission webhook may take. */
const TIMEOUT_SECONDS = 30;

/**
 * Begins to create an object in a version of a kind; a slow admission webhook holds it, which ends with the test. The API server has
 * chosen the version that the object is stored in when this returns.
 */
export async function holdCreation(
  t: Test,
  { api, controlPlane }: Cluster,
  kind: TestKind,
  { name, version }: { readonly name: string; readonly version: string },
): Promise<HeldCreation> {
  const held = Promise.withResolvers<void>();
  let isHeld = false;
  interface Review {
    readonly request: { readonly uid: string; readonly dryRun?: boolean };
  }
  const webhook = await serveWebhook(t, async ({ request }: Review) => {
    if (request.dryRun !== true) {
      isHeld = true;
      await held.promise;
    }
    const response = { uid: request.uid, allowed: true };
    return { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response };
  });
  const metadata = { name: `hold.${kind.plural}` };
  const rules = [{ apiGroups: [GROUP], apiVersions: ["*"], resources: [kind.plural], operations: ["CREATE"] }];
  const hook = {
    name: "slow.example.com",
    clientConfig: webhook.clientConfig,
    rules,
    sideEffects: "None",
    timeoutSeconds: TIMEOUT_SECONDS,
  };
  await api.create(WEBHOOK_CONFIGURATIONS, {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata,
    webhooks: [{ ...hook, admissionReviewVersions: ["v1"] }],
  });
  t.teardown(() => api.delete(WEBHOOK_CONFIGURATIONS, metadata));
  const object = kind.object(name, version);
  await eventually(async () => {
    await api.create(kind.resource(version), object, { dryRun: true });
    return webhook.calls() > 0;
  }, "the slow webhook is in force");
  const path = `/apis/${GROUP}/${version}/namespaces/default/${kind.plural}`;
  const created = controlPlane.request(path, { method: "POST", body: object, timeoutMs: 60_000 });
  await eventually(async () => isHeld, "the creation is held");
  return {
    letGo: async () => {
      held.resolve();
      const { body, status } = await created;
      if (status !== 201) {
        throw new Error(`Cannot create a held object: ${status} ${JSON.stringify(body)}`);
      }
    },
  };
}
