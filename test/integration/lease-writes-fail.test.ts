import t, { type Test } from "tap";
import { storedVersionsOf } from "../crd.ts";
import { WEBHOOK_CONFIGURATIONS } from "../api-client.ts";
import { leaseName } from "../../src/migrator/run-lease.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { parallel } from "./parallel.ts";
import { serveWebhook } from "./serve-webhook.ts";
import { SLOW_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;

/**
 * An admission webhook of another owner on the Lease of a run, and on nothing else: while it is down, only the writes of
 * that Lease fail.
 */
async function leaseWebhook(t: Test, kind: TestKind) {
  const webhook = await serveWebhook(t, ({ request }: { request: { uid: string } }) => ({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    response: { uid: request.uid, allowed: true },
  }));
  await api.create(WEBHOOK_CONFIGURATIONS, {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: kind.plural },
    webhooks: [
      {
        name: "leases.example.com",
        clientConfig: webhook.clientConfig,
        rules: [
          {
            apiGroups: ["coordination.k8s.io"],
            apiVersions: ["*"],
            resources: ["leases"],
            operations: ["UPDATE", "DELETE"],
          },
        ],
        matchConditions: [{ name: "one", expression: `request.name == "${leaseName(kind.name)}"` }],
        sideEffects: "None",
        admissionReviewVersions: ["v1"],
      },
    ],
  });
  t.teardown(() => api.delete(WEBHOOK_CONFIGURATIONS, { name: kind.plural }));
  return webhook;
}

parallel("a run whose Lease cannot be written goes on, and prunes what it has rewritten", async (t) => {
  const kind = new TestKind("unwritten");
  const webhook = await leaseWebhook(t, kind);
  await cluster.createStale(kind, SLOW_RUN_OBJECTS);
  const ended = cluster.migrate([kind.name, ...SLOW_FLAGS, "--max-qps", "4"]);
  await untilRewriting(cluster, kind, { ended });
  await eventually(async () => webhook.calls() > 0, "the webhook is called for the Lease");
  webhook.setDown(true);
  const { code, stderr } = await ended;
  t.equal(code, 0, stderr);
  t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertUnfrozen(t, cluster, kind);

  // The Lease that stays expires by itself.
  webhook.setDown(false);
  const again = await cluster.migrate([kind.name, "--force"]);
  t.equal(again.code, 0, again.stderr);
  await assertNoTraces(t, cluster, kind);
});
