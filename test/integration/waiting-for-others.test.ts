import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import { CRDS, MERGE_PATCH, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { parallel } from "./parallel.ts";
import { GROUP, TestKind, versionsOf } from "./crd-fixture.ts";
import { conversionBy, serveConversion, serveWebhook } from "./serve-webhook.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;

/** Starts a run whose output can be read while it runs. */
function startRun(args: readonly string[]) {
  const seen = { output: "" };
  const ended = cluster.migrate(args, {
    onStdout: (text) => {
      seen.output += text;
    },
  });
  return { seen, ended };
}

parallel("F9: a conversion webhook that is down is waited for by its name, and does not fail the run", async (t) => {
  const webhook = await serveConversion(t);
  const kind = new TestKind("down");
  await cluster.createStale(kind, 5, { conversion: conversionBy(webhook) });
  webhook.setDown(true);
  const { seen, ended } = startRun([kind.name]);
  await eventually(async () => /retrying .*conversion webhook for example.com/.test(seen.output), "the run waits");
  t.same(await cluster.storedAs(kind), { v1alpha1: 5 });
  webhook.setDown(false);
  const { code, stderr } = await ended;
  t.equal(code, 0, stderr);
  t.same(await cluster.storedAs(kind), { v1: 5 });
  await assertNoTraces(t, cluster, kind);
});

parallel(
  "F8: an operator's own admission webhook that has no endpoints yet is waited for, with the freeze lifted",
  async (t) => {
    const webhook = await serveWebhook(t, ({ request }: { request: { uid: string } }) => ({
      apiVersion: "admission.k8s.io/v1",
      kind: "AdmissionReview",
      response: { uid: request.uid, allowed: true },
    }));
    const kind = new TestKind("own");
    await cluster.createStale(kind, 5);
    await api.create(WEBHOOK_CONFIGURATIONS, {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingWebhookConfiguration",
      metadata: { name: kind.plural },
      webhooks: [
        {
          name: "own.example.com",
          clientConfig: webhook.clientConfig,
          rules: [{ apiGroups: [GROUP], apiVersions: ["*"], resources: [kind.plural], operations: ["UPDATE"] }],
          sideEffects: "None",
          admissionReviewVersions: ["v1"],
        },
      ],
    });
    t.teardown(() => api.delete(WEBHOOK_CONFIGURATIONS, { name: kind.plural }));
    webhook.setDown(true);
    const touch = { type: MERGE_PATCH, body: { metadata: { labels: { touched: "yes" } } } };
    const isRefused = (): Promise<boolean> =>
      api.patch(kind.resource("v1"), { name: "w0", namespace: "default" }, touch, { dryRun: true }).then(
        () => false,
        () => true,
      );
    await eventually(isRefused, "the webhook is in force");

    const { seen, ended } = startRun([kind.name, "--max-freeze-idle", "3s"]);
    await eventually(async () => /waiting up to .*for webhook "own.example.com"/.test(seen.output), "the run names it");
    t.match(seen.output, /lifted the freeze/);
    await assertUnfrozen(t, cluster, kind);
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    webhook.setDown(false);
    const { code, stderr } = await ended;
    t.equal(code, 0, stderr);
    t.same(await cluster.storedAs(kind), { v1: 5 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  },
);

parallel(
  "Long waits do not hold the freeze: it never blocks the update of the CRD that repairs its own conversion webhook",
  async (t) => {
    const [broken, repaired] = [await serveConversion(t), await serveConversion(t)];
    const kind = new TestKind("repair");
    await cluster.createStale(kind, 5, { conversion: conversionBy(broken) });
    broken.setDown(true);
    const { seen, ended } = startRun([kind.name, "--max-freeze-idle", "3s"]);
    await eventually(async () => /waiting up to .* without a freeze/.test(seen.output), "the run lifted its freeze");
    t.notOk(hasFreezeAnnotation(await cluster.crd(kind)));
    // The upgrade that brings the new webhook makes another version the storage version, too: a freeze would deny it.
    const upgrade = { spec: { versions: versionsOf({ storage: "v1alpha1" }), conversion: conversionBy(repaired) } };
    await t.resolves(api.patch(CRDS, kind, { type: MERGE_PATCH, body: upgrade }), "the repair is accepted");
    const { code, stderr } = await ended;
    t.equal(code, 0, stderr);
    t.same(await cluster.storedAs(kind), { v1alpha1: 5 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1"], "what is stored, after all, is what is listed");
    await assertNoTraces(t, cluster, kind);
  },
);

parallel("a webhook that never comes back ends the run with its name, after the stated time", async (t) => {
  const webhook = await serveConversion(t);
  const kind = new TestKind("never");
  await cluster.createStale(kind, 5, { conversion: conversionBy(webhook) });
  webhook.setDown(true);
  const run = await cluster.migrate([kind.name, "--max-freeze-idle", "2s", "--webhook-wait", "5s"]);
  t.equal(run.code, 1);
  t.match(run.stderr, /conversion webhook for example.com.*\[RetryBudgetExceeded\]/);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});
