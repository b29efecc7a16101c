import pino from "pino";
import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import type { NewObject } from "../../src/kube/client.ts";
import { MERGE_PATCH, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { rolesForRuns } from "../../src/migrator/run-roles.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { startWebhookServer } from "../../src/webhook/server.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";

const RBAC = { group: "rbac.authorization.k8s.io", version: "v1" };
const SEEING = {
  apiGroups: [WEBHOOK_CONFIGURATIONS.group],
  resources: [WEBHOOK_CONFIGURATIONS.resource],
  resourceNames: [WEBHOOK_NAME],
  verbs: ["get"],
};

const cluster = await Cluster.start(t, { users: [{ name: "narrow" }, { name: "seeing" }] });
const { api } = cluster;
const kind = new TestKind("guarded");
await cluster.createStale(kind, 3);

/** What `ksvm rbac NAME --guard webhook` prints, bound to a user: no right on policies, or to see the webhook configuration. */
async function bindNarrowRole(user: string): Promise<void> {
  const subjects = [{ apiGroup: RBAC.group, kind: "User", name: user }];
  const roles = rolesForRuns([kind.name], { name: user, guard: "webhook", leaseNamespace: "kube-system" });
  for (const role of roles) {
    const resource = role.kind === "Role" ? "roles" : "clusterroles";
    await api.create({ ...RBAC, resource }, role as object as NewObject);
    await api.create(
      { ...RBAC, resource: role.kind === "Role" ? "rolebindings" : "clusterrolebindings" },
      {
        apiVersion: role.apiVersion,
        kind: `${role.kind}Binding`,
        metadata: role.metadata,
        roleRef: { apiGroup: RBAC.group, kind: role.kind, name: user },
        subjects,
      },
    );
  }
}

function migrateAs(user: string, args: readonly string[] = []) {
  const kubeconfig = cluster.controlPlane.kubeconfigFor(user);
  return cluster.migrate([kind.name, "--kubeconfig", kubeconfig, "--proof-timeout", "3s", ...args]);
}

async function isUntouched(): Promise<boolean> {
  const crd = await cluster.crd(kind);
  return !hasFreezeAnnotation(crd) && storedVersionsOf(crd).join() === "v1alpha1,v1";
}

await bindNarrowRole("narrow");
await api.create({ ...RBAC, resource: "clusterroles" }, {
  apiVersion: "rbac.authorization.k8s.io/v1",
  kind: "ClusterRole",
  metadata: { name: "seeing" },
  rules: [SEEING],
} as object as NewObject);
await api.create({ ...RBAC, resource: "clusterrolebindings" }, {
  apiVersion: "rbac.authorization.k8s.io/v1",
  kind: "ClusterRoleBinding",
  metadata: { name: "seeing" },
  roleRef: { apiGroup: RBAC.group, kind: "ClusterRole", name: "seeing" },
  subjects: [{ apiGroup: RBAC.group, kind: "User", name: "seeing" }],
} as object as NewObject);

const { certificate, caBundle } = await issueServing();
const serving = { host: "127.0.0.1", certificate, logger: pino({ level: "silent" }), drainMs: 0, port: 0 };
const webhook = await startWebhookServer({ ...serving, metrics: new Metrics() });
t.teardown(() => webhook.close());
await t.test("without the webhook, and without rights on guards, a run prunes nothing and names them", async (t) => {
  const run = await migrateAs("narrow");
  t.equal(run.code, 1);
  t.match(run.stderr, /\[FreezeNotProven\]/);
  t.match(run.stderr, /the webhook may not be installed, and this user may not get validatingwebhookconfigurations/);
  t.match(run.stderr, /create validatingadmissionpolicies\.admissionregistration\.k8s\.io/);
  t.match(run.stderr, `ksvm rbac ${kind.name} prints the roles that it needs`);
  t.ok(await isUntouched(), "the freeze is lifted, and nothing is pruned");
});

await t.test("where the webhook is seen to be installed no right on policies is asked for", async (t) => {
  await api.create(WEBHOOK_CONFIGURATIONS, {
    ...webhookConfigurationOf({ clientConfig: { url: `${webhook.url}${VALIDATE_PATH}`, caBundle } }),
  });
  const run = await migrateAs("seeing");
  t.equal(run.code, 1);
  t.match(run.stderr, /patch customresourcedefinitions.*\[Forbidden\]/);
  t.notMatch(run.stderr, /validatingadmissionpolic/);
  t.notMatch(run.stderr, /validatingwebhookconfigurations/);
  t.ok(await isUntouched());
});

await t.test("a webhook that the user may not see, but that denies, guards the run", async (t) => {
  const empty = { webhooks: [] };
  await api.patch(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME }, { type: MERGE_PATCH, body: empty });
  const unproven = await migrateAs("narrow");
  t.match(unproven.stderr, /\[FreezeNotProven\]/, "negative control: that it is installed proves nothing");
  t.ok(await isUntouched());
  const { webhooks } = webhookConfigurationOf({ clientConfig: { url: `${webhook.url}${VALIDATE_PATH}`, caBundle } });
  await api.patch(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME }, { type: MERGE_PATCH, body: { webhooks } });
  const run = await migrateAs("narrow", ["--proof-timeout", "30s"]);
  t.equal(run.code, 0, run.stderr);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});
