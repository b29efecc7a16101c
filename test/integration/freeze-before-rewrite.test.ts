import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { FREEZE_REASON, WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { CRDS, MERGE_PATCH, WEBHOOK_CONFIGURATIONS } from "../api-client.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { alone } from "./parallel.ts";
import { serveWebhook } from "./serve-webhook.ts";
import { TestKind } from "./crd-fixture.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const READS_CRDS = [{ apiGroups: ["apiextensions.k8s.io"], resources: ["customresourcedefinitions"], verbs: ["get"] }];

const RBAC = { group: "rbac.authorization.k8s.io", version: "v1" };
await api.create(
  { ...RBAC, resource: "clusterroles" },
  { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", metadata: { name: "reader" }, rules: READS_CRDS },
);
await api.create(
  { ...RBAC, resource: "clusterrolebindings" },
  {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "ClusterRoleBinding",
    metadata: { name: "reader" },
    subjects: [{ kind: "User", name: "reader", apiGroup: "rbac.authorization.k8s.io" }],
    roleRef: { kind: "ClusterRole", name: "reader", apiGroup: "rbac.authorization.k8s.io" },
  },
);

alone("migrate does nothing where a guard under our name denies everything", async (t) => {
  const kind = new TestKind("deny");
  await cluster.createStale(kind, 3);
  // It lets real writes pass, so that the run gets as far as the proof, and its own freeze can be lifted again.
  const webhook = await serveWebhook(t, ({ request }: { request: { uid: string; dryRun: boolean } }) => ({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    response: { uid: request.uid, allowed: !request.dryRun, status: { code: 403, message: `${FREEZE_REASON}: no` } },
  }));
  const rule = {
    apiGroups: ["apiextensions.k8s.io"],
    apiVersions: ["v1"],
    resources: ["customresourcedefinitions"],
    operations: ["UPDATE"],
  };
  await api.create(WEBHOOK_CONFIGURATIONS, {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: WEBHOOK_NAME },
    webhooks: [
      {
        name: WEBHOOK_NAME,
        clientConfig: webhook.clientConfig,
        rules: [rule],
        sideEffects: "None",
        admissionReviewVersions: ["v1"],
      },
    ],
  });
  const label = { type: MERGE_PATCH, body: { metadata: { labels: { a: "b" } } } };
  await eventually(
    () =>
      api.patch(CRDS, kind, label, { dryRun: true }).then(
        () => false,
        () => true,
      ),
    "the webhook is in force",
  );
  const run = await cluster.migrate([kind.name, "--max-idle", "1s"]);
  t.equal(run.code, 1);
  t.match(run.stderr, /by webhook "crd.kube-storage-version-migrator.io".*\[FreezeNotProven\]/);
  t.ok(webhook.calls() > 1);
  t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await api.delete(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
  await assertUnfrozen(t, cluster, kind);
});

alone("migrate refuses a user who may not do all of it, before it changes anything", async (t) => {
  const kind = new TestKind("reader");
  await cluster.createStale(kind, 3);
  const before = await cluster.crd(kind);
  const run = await cluster.migrate([kind.name, "--kubeconfig", cluster.controlPlane.kubeconfigFor("reader")]);
  t.equal(run.code, 1);
  t.match(run.stderr, /this user may not .*patch customresourcedefinitions.apiextensions.k8s.io.*\[Forbidden\]/);
  t.match(run.stderr.trim().split("\n").at(-1), /^error: .*\[Forbidden\]$/, "on one line");
  t.equal((await cluster.crd(kind)).metadata.resourceVersion, before.metadata.resourceVersion);
});

alone("migrate and plan say in one line that a name does not exist", async (t) => {
  for (const command of ["migrate", "plan"]) {
    for (const name of ["nothing.example.com", "nothing", "nothing.apps"]) {
      const run = await cluster.ksvm([command, name]);
      t.equal(run.code, 1);
      t.match(run.stderr, /^error: Cannot find "nothing.*\[ResourceNotFound\]\n$/);
      t.equal(run.stdout, "");
    }
  }
});
