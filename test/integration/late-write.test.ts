import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { Cluster, eventually } from "./cluster.ts";
import { serveWebhook } from "./serve-webhook.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";

// A request may be under way for as long as the API server's --request-timeout; the settle time has to match it.
const REQUEST_TIMEOUT_S = 10;
const HELD_MS = 7_000;

const cluster = await Cluster.start(t, { requestTimeout: `${REQUEST_TIMEOUT_S}s` });
const { api } = cluster;

/** Holds every create of an object of this kind whose name begins with "late", as a slow admission webhook does. */
async function holdLateCreates(kind: TestKind): Promise<() => number> {
  const webhook = await serveWebhook(t, async ({ request }: { request: { uid: string; name: string } }) => {
    await delay(request.name.startsWith("late") ? HELD_MS : 0);
    const response = { uid: request.uid, allowed: true };
    return { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response };
  });
  await api.create(
    { group: "admissionregistration.k8s.io", version: "v1", resource: "validatingwebhookconfigurations" },
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingWebhookConfiguration",
      metadata: { name: kind.plural },
      webhooks: [
        {
          name: "slow.example.com",
          clientConfig: webhook.clientConfig,
          rules: [{ apiGroups: [GROUP], apiVersions: ["*"], resources: [kind.plural], operations: ["CREATE"] }],
          sideEffects: "None",
          admissionReviewVersions: ["v1"],
          timeoutSeconds: REQUEST_TIMEOUT_S,
        },
      ],
    },
  );
  return () => webhook.calls();
}

/** A create that is under way while v1 becomes the storage version, and the run that meets it. */
async function runAcrossLateWrite(kind: TestKind, settle: string) {
  const calls = await holdLateCreates(kind);
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await eventually(async () => {
    await api.create(kind.resource("v1alpha1"), kind.object("early", "v1alpha1")).catch(() => undefined);
    await api.delete(kind.resource("v1alpha1"), { name: "early", namespace: "default" });
    return calls() > 0;
  }, "the slow webhook is in force");
  const before = calls();
  const late = api.create(kind.resource("v1alpha1"), kind.object("late", "v1alpha1"));
  await eventually(async () => calls() > before, "the create is held");
  await cluster.setVersions(kind, { storage: "v1" });
  const run = await cluster.ksvm(["migrate", kind.name, "--settle", settle]);
  await late;
  return run;
}

await t.test(
  "a write of the old version that was under way when the storage version changed is migrated",
  async (t) => {
    const kind = new TestKind("settled");
    const run = await runAcrossLateWrite(kind, `${REQUEST_TIMEOUT_S}s`);
    t.equal(run.code, 0, run.stderr);
    t.match(run.stdout, /until late writes of an old version must have landed/);
    t.same(await cluster.storedAs(kind), { v1: 1 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  },
);

await t.test("negative control: without settling the late write stays in a version that was pruned", async (t) => {
  const kind = new TestKind("hasty");
  // The API server joined long ago by now, so that nothing else is waited for.
  const run = await runAcrossLateWrite(kind, "0");
  t.equal(run.code, 0, run.stderr);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.same(await cluster.storedAs(kind), { v1alpha1: 1 }, "this is the object that nobody could read any more");
});
