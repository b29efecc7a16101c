import { pino } from "pino";
import t from "tap";
import { Agent, request } from "undici";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import type { KubeObject, NewObject } from "../../src/kube/client.ts";
import { type Access, describeAccess, isAllowed } from "../../src/kube/access.ts";
import { loadKubeConfig } from "../../src/kube/connect/config.ts";
import {
  CRDS,
  LEASES,
  MIGRATIONS,
  POLICIES,
  SECRETS,
  STORAGE_STATES,
  WEBHOOK_CONFIGURATIONS,
} from "../../src/kube/resources.ts";
import { Transport } from "../../src/kube/transport.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { startWebhookServer } from "../../src/webhook/server.ts";
import { WARN_POLICY_NAME } from "../../src/webhook/warn-policy.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import {
  applyAll,
  applyBase,
  NAMESPACE,
  overlayWithImage,
  pointWebhookAt,
  startAsServiceAccount,
  tokenOf,
} from "./installation.ts";
import { render } from "./kubectl.ts";
import { freePort, ONLY_CUSTOM, spawnController, untilReady } from "./replica.ts";

const JOBS = { group: "batch", version: "v1", resource: "jobs" };
const CRON_JOBS = { group: "batch", version: "v1", resource: "cronjobs" };
const PODS = { group: "", version: "v1", resource: "pods" };
const DEPLOYMENTS = { group: "apps", version: "v1", resource: "deployments" };
const ROLES = { group: "rbac.authorization.k8s.io", version: "v1", resource: "clusterroles" };

interface PodTemplate {
  readonly metadata?: object;
  readonly spec: { readonly containers: readonly { readonly image: string; readonly args: readonly string[] }[] };
}

const cluster = await Cluster.start(t);
const { api } = cluster;
await applyBase(cluster);

async function podTemplates(): Promise<Readonly<Record<string, PodTemplate>>> {
  const ref = { namespace: NAMESPACE };
  const deployment = await api.get<{ spec: { template: PodTemplate } }>(DEPLOYMENTS, {
    ...ref,
    name: "ksvm-controller",
  });
  const cronJob = async (name: string): Promise<PodTemplate> =>
    (await api.get<{ spec: { jobTemplate: { spec: { template: PodTemplate } } } }>(CRON_JOBS, { ...ref, name })).spec
      .jobTemplate.spec.template;
  return {
    controller: deployment.spec.template,
    certificates: await cronJob("ksvm-certificates"),
    init: await cronJob("ksvm-init"),
  };
}

/** The caBundle of the installed webhook. */
async function caBundle(): Promise<string | undefined> {
  const ref = { name: WEBHOOK_NAME };
  const { webhooks } = await api.get<{ webhooks: { clientConfig: { caBundle?: string } }[] }>(
    WEBHOOK_CONFIGURATIONS,
    ref,
  );
  return webhooks[0]?.clientConfig.caBundle;
}

async function isWebhookGone(): Promise<boolean> {
  return (await api.find(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME })) === undefined;
}

/** Which of these a service account may do, as RBAC errors spell them. */
async function allowedOf(serviceAccount: string, accesses: readonly Access[]): Promise<readonly string[]> {
  const kubeconfig = await startAsServiceAccount(cluster, serviceAccount);
  const transport = new Transport(loadKubeConfig({ kubeconfig }));
  const allowed: string[] = [];
  for (const access of accesses) {
    if (await isAllowed(transport, access)) allowed.push(describeAccess(access));
  }
  await transport.close();
  return allowed;
}

await t.test("the installation can be applied again and again with a new image", async (t) => {
  // Regression test for https://github.com/knative/operator/issues/2008: the template of a Job never changes.
  for (const newTag of ["1", "2", "3"]) {
    const image = { newName: "mirror.example/tools/ksvm", newTag };
    await applyAll(api, await render(overlayWithImage(t, "deploy/base", image)));
    await applyAll(api, await render(overlayWithImage(t, "deploy/initializer", image)));
    const images = Object.values(await podTemplates()).flatMap(({ spec }) => spec.containers.map((c) => c.image));
    t.same(new Set(images), new Set([`mirror.example/tools/ksvm:${newTag}`]));
  }
  const { spec, metadata } = (await podTemplates())["certificates"] ?? { spec: { containers: [] } };
  const job = (image: string): NewObject => ({
    apiVersion: "batch/v1",
    kind: "Job",
    metadata: { name: "direct", namespace: NAMESPACE },
    spec: { template: { metadata, spec: { ...spec, containers: spec.containers.map((c) => ({ ...c, image })) } } },
  });
  await applyAll(api, [job("ksvm:1")]);
  await t.rejects(applyAll(api, [job("ksvm:2")]), /field is immutable/, "negative control: a Job cannot");
  await api.delete(JOBS, { name: "direct", namespace: NAMESPACE });
});

await t.test("every pod passes the restricted Pod Security Standard, which the namespace enforces", async (t) => {
  const create = (name: string, template: PodTemplate): Promise<unknown> => {
    const pod = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { ...template.metadata, name, namespace: NAMESPACE },
      spec: template.spec,
    };
    return api.create(PODS, pod, { dryRun: true });
  };
  // The controller manager creates the account "default"; these pods name their own.
  for (const [name, template] of Object.entries(await podTemplates())) {
    await t.resolves(create(name, template), name);
  }
  const { certificates } = await podTemplates();
  const careless = { ...certificates, spec: { ...certificates?.spec, securityContext: {} } } as PodTemplate;
  await t.rejects(create("careless", careless), /violates PodSecurity "restricted/, "negative control");
});

await t.test("the webhook has no caBundle until a client fills it in, and applying again keeps it", async (t) => {
  t.equal(await caBundle(), undefined);
  const filled = Buffer.from(cluster.controlPlane.ca).toString("base64");
  const body = [{ op: "add", path: "/webhooks/0/clientConfig/caBundle", value: filled }];
  await api.patch(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME }, { type: "application/json-patch+json", body });
  await applyBase(cluster);
  t.equal(await caBundle(), filled);
});

for (const account of ["storage-migrator-certificates", "storage-migrator"]) {
  await t.test(`the certificate job runs with the rights of ${account}`, async (t) => {
    const args = (await podTemplates())["certificates"]?.spec.containers[0]?.args ?? [];
    const kubeconfig = await startAsServiceAccount(cluster, account);
    const ref = { namespace: NAMESPACE, name: "ksvm-webhook-certificates" };
    await api.delete(SECRETS, ref);
    const missing = await cluster.ksvm([...args, "--kubeconfig", kubeconfig]);
    t.match(missing, { code: 1, stderr: /cannot create resource "secrets"/ }, "it may not create Secrets");
    await applyBase(cluster);
    const run = await cluster.ksvm([...args, "--kubeconfig", kubeconfig]);
    t.equal(run.code, 0, run.stderr);
    const secret = await api.get<{ data: Record<string, string> }>(SECRETS, ref);
    t.equal(await caBundle(), secret.data["ca.crt"]);
    // Written once, so that the next run has to replace it.
    const quick = ["--apiserver-dwell", "1s", "--replica-dwell", "1s"];
    const again = await cluster.ksvm(["certs", "rotate", "--now", ...quick, "--kubeconfig", kubeconfig]);
    t.equal(again.code, 0, again.stderr);
    t.not((await api.get<{ data: Record<string, string> }>(SECRETS, ref)).data["ca.crt"], secret.data["ca.crt"]);
  });
}

for (const [overlay, flags] of [
  ["cert-manager", ["--certificates=secret", "--cert-secret=ksvm-webhook-tls"]],
  ["files", ["--certificates=files", "--cert-dir=/certificates"]],
] as const) {
  await t.test(`the overlay ${overlay} leaves the certificate job and its rights out`, async (t) => {
    const documents = await render(`deploy/overlays/${overlay}`);
    const text = JSON.stringify(documents);
    t.notMatch(text, /storage-migrator-certificates|CronJob|"Job"/);
    const args: readonly string[] = text.match(/--cert[^"]*/g) ?? [];
    t.same(args, flags);
    t.notMatch(text, /"caBundle"/);
    t.equal(/inject-ca-from":"kube-storage-migration\/ksvm-webhook"/.test(text), overlay === "cert-manager");
    // Nothing here serves cert-manager's own kinds.
    const known = documents.filter(({ apiVersion }) => apiVersion?.startsWith("cert-manager.io") !== true);
    await t.resolves(applyAll(api, known, { dryRun: true }));
  });
}

await t.test("ksvm init runs with the rights of its service account and no more", async (t) => {
  const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator-init");
  const run = await cluster.ksvm(["init", "--kubeconfig", kubeconfig]);
  t.equal(run.code, 0, run.stderr);
  const [migration] = await api.list<StorageVersionMigration>(MIGRATIONS);
  const owner = { kind: "CustomResourceDefinition", name: "storageversionmigrations.migration.k8s.io" };
  t.match(migration?.metadata.ownerReferences, [owner]);
  // As on the first day, when the CRDs are not there yet.
  for (const { resource, group } of [MIGRATIONS, STORAGE_STATES]) {
    await api.delete(CRDS, { name: `${resource}.${group}` });
  }
  const again = await cluster.ksvm(["init", "-y", "--kubeconfig", kubeconfig]);
  t.equal(again.code, 0, again.stderr);
  t.match(again.stdout, /created CustomResourceDefinition "storageversionmigrations/);
  const tooMuch: readonly Access[] = [
    { verb: "patch", resource: SECRETS },
    { verb: "get", resource: SECRETS, namespace: NAMESPACE },
    { verb: "delete", resource: DEPLOYMENTS },
    { verb: "delete", resource: CRDS },
    { verb: "patch", resource: CRDS, name: "widgets.example.com" },
  ];
  t.same(await allowedOf("storage-migrator-init", tooMuch), []);
});

await t.test("the whole life of one CRD runs with the rights of the controller", async (t) => {
  const { caBundle: ca, certificate } = await issueServing();
  const logger = pino({ level: "silent" });
  const options = { host: "127.0.0.1", port: 0, certificate, metrics: new Metrics(), logger, drainMs: 0 };
  const server = await startWebhookServer(options);
  t.teardown(() => server.close());
  await pointWebhookAt(cluster, { url: `${server.url}${VALIDATE_PATH}`, caBundle: ca });
  const kind = new TestKind("life");
  await cluster.createStale(kind, 40);

  const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
  const asController = ["--lease-namespace", NAMESPACE, "--kubeconfig", kubeconfig];
  const run = await cluster.migrate([kind.name, ...asController]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, /guarded by webhook.*40 rewritten; storedVersions is \[v1\]/s);
  t.same(await cluster.storedAs(kind), { v1: 40 });
  await assertNoTraces(t, cluster, kind);
  t.match(await cluster.ksvm(["status", "--kubeconfig", kubeconfig]), { code: 0, stdout: /no CRD is frozen/ });
  t.match(await cluster.ksvm(["unfreeze", kind.name, "-y", "--kubeconfig", kubeconfig]), {
    code: 0,
    stdout: /nothing to do/,
  });

  // RBAC refuses a client that grants rights which it does not have; a write that changes nothing passes.
  const roles = await cluster.migrate(["clusterroles.rbac.authorization.k8s.io", ...asController]);
  t.equal(roles.code, 0, roles.stdout + roles.stderr);
});

await t.test("the controller that leads makes the first certificates at its start", async (t) => {
  const ref = { namespace: NAMESPACE, name: "ksvm-webhook-certificates" };
  await api.delete(SECRETS, ref);
  const documents = await render("deploy/base");
  t.notOk(
    documents.some(({ kind }) => kind === "Job"),
    "nothing else does, and GitOps tools find no Job that is gone when it has run",
  );
  const isEmptySecret = ({ kind, metadata }: NewObject): boolean => kind === "Secret" && metadata.name === ref.name;
  await applyAll(api, documents.filter(isEmptySecret));
  const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
  const options = { webhookPort: await freePort(), byService: true, flags: ONLY_CUSTOM };
  const startedAt = performance.now();
  const replica = await spawnController(t, { kubeconfig }, options);
  const isReady = async (): Promise<boolean> => (await replica.health("/readyz")).status === 200;
  await eventually(isReady, `it is ready:\n${replica.log()}`, 30_000);
  t.comment(`ready ${Math.round(performance.now() - startedAt)} ms after its start`);
  t.equal(await caBundle(), (await api.get<{ data: Record<string, string> }>(SECRETS, ref)).data["ca.crt"]);
  replica.kill("SIGTERM");
  t.equal(await replica.ended, 0, replica.log());
});

await t.test(
  "ksvm controller takes a CRD from a change of its storage version to pruned with its rights alone",
  async (t) => {
    const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
    // The migrations of the initializer, some fifty, are before the one of the trigger.
    const migrating = [...ONLY_CUSTOM, "--concurrent-migrations=16"];
    const replica = await spawnController(t, { kubeconfig }, { webhookPort: await freePort(), flags: migrating });
    await untilReady(replica);
    const kind = new TestKind("unattended");
    await cluster.createStale(kind, 20);
    const isPruned = async (): Promise<boolean> => storedVersionsOf(await cluster.crd(kind)).join() === "v1";
    await eventually(isPruned, "storedVersions is pruned", 180_000).catch((error: unknown) => {
      t.comment(replica.log());
      throw error;
    });
    t.same(await cluster.storedAs(kind), { v1: 20 });
    replica.kill("SIGTERM");
    t.equal(await replica.ended, 0, replica.log());
    await assertNoTraces(t, cluster, kind);
    t.notMatch(replica.log(), /forbidden/i, "RBAC refused nothing");

    const flags = [...ONLY_CUSTOM, "--manage-stored-versions=false"];
    const off = await spawnController(t, { kubeconfig }, { webhookPort: await freePort(), flags });
    await eventually(isWebhookGone, `the webhook's configuration is gone:\n${off.log()}`);
    off.kill("SIGTERM");
    t.equal(await off.ended, 0, off.log());
    t.notMatch(off.log(), /forbidden/i, "nor here");
    await applyBase(cluster);
  },
);

await t.test("the controller may do nothing that it does not need", async (t) => {
  const tooMuch: readonly Access[] = [
    { verb: "create", resource: SECRETS, namespace: NAMESPACE },
    { verb: "create", resource: SECRETS, namespace: "default" },
    { verb: "update", resource: SECRETS, namespace: NAMESPACE, name: "another" },
    { verb: "delete", resource: SECRETS, namespace: NAMESPACE },
    { verb: "create", resource: PODS, namespace: NAMESPACE },
    { verb: "create", resource: CRDS },
    { verb: "delete", resource: CRDS },
    { verb: "create", resource: POLICIES },
    { verb: "delete", resource: WEBHOOK_CONFIGURATIONS },
    { verb: "watch", resource: WEBHOOK_CONFIGURATIONS, name: "of-another-owner" },
    { verb: "watch", resource: SECRETS },
    { verb: "watch", resource: SECRETS, namespace: NAMESPACE, name: "another" },
    { verb: "create", resource: LEASES, namespace: "kube-system" },
    { verb: "update", resource: LEASES, namespace: "kube-system" },
    { verb: "escalate", resource: ROLES },
    { verb: "bind", resource: ROLES },
    { verb: "impersonate", resource: { group: "", resource: "users" } },
  ];
  t.same(await allowedOf("storage-migrator", tooMuch), []);
  const needed: readonly Access[] = [
    ...["get", "watch"].map((verb) => ({
      verb,
      resource: SECRETS,
      namespace: NAMESPACE,
      name: "ksvm-webhook-certificates",
    })),
    ...["get", "create", "patch", "update"].map((verb) => ({ verb, resource: LEASES, namespace: NAMESPACE })),
    ...["watch", "create", "delete"].map((verb) => ({ verb, resource: MIGRATIONS })),
    { verb: "patch", resource: MIGRATIONS, subresource: "status" },
    ...["watch", "create", "patch"].map((verb) => ({ verb, resource: WEBHOOK_CONFIGURATIONS, name: WEBHOOK_NAME })),
    ...["watch", "create", "patch"].map((verb) => ({ verb, resource: POLICIES, name: WARN_POLICY_NAME })),
    { verb: "update", resource: SECRETS, namespace: NAMESPACE, name: "ksvm-webhook-certificates" },
    { verb: "create", resource: { group: "", resource: "events" }, namespace: "default" },
  ];
  t.same(await allowedOf("storage-migrator", needed), needed.map(describeAccess));
});

await t.test("the certificate job may write one Secret and one caBundle", async (t) => {
  const named = { namespace: NAMESPACE, name: "ksvm-webhook-certificates" };
  const needed: readonly Access[] = [
    { verb: "get", resource: SECRETS, ...named },
    { verb: "update", resource: SECRETS, ...named },
    { verb: "patch", resource: WEBHOOK_CONFIGURATIONS, name: WEBHOOK_NAME },
    { verb: "list", resource: LEASES, namespace: "kube-system" },
    { verb: "list", resource: { group: "discovery.k8s.io", resource: "endpointslices" }, namespace: "default" },
    { verb: "list", resource: { group: "discovery.k8s.io", resource: "endpointslices" }, namespace: NAMESPACE },
  ];
  const tooMuch: readonly Access[] = [
    { verb: "get", resource: SECRETS, namespace: NAMESPACE, name: "another" },
    { verb: "list", resource: SECRETS, namespace: NAMESPACE },
    { verb: "create", resource: SECRETS, namespace: NAMESPACE },
    { verb: "patch", resource: WEBHOOK_CONFIGURATIONS, name: "of-another-owner" },
    { verb: "patch", resource: CRDS },
    { verb: "list", resource: PODS },
  ];
  const allowed = await allowedOf("storage-migrator-certificates", [...needed, ...tooMuch]);
  t.same(allowed, needed.map(describeAccess));
});

/** The uid of a priority level, by which answers name it. */
async function uidOf(name: string): Promise<string | undefined> {
  const levels = { group: "flowcontrol.apiserver.k8s.io", version: "v1", resource: "prioritylevelconfigurations" };
  return (await api.get<KubeObject>(levels, { name })).metadata.uid;
}

await t.test("rewriting goes behind everybody else, Leases do not wait with it", async (t) => {
  const token = await tokenOf(cluster, "storage-migrator");
  const agent = new Agent({ connect: { ca: cluster.controlPlane.ca } });
  t.teardown(() => agent.close());
  const levelOf = async (path: string): Promise<unknown> => {
    const url = `${cluster.controlPlane.apiservers[0]?.url}${path}`;
    const answer = await request(url, { dispatcher: agent, headers: { authorization: `Bearer ${token}` } });
    await answer.body.dump();
    return answer.headers["x-kubernetes-pf-prioritylevel-uid"];
  };
  t.equal(await levelOf("/apis/example.com/v1/widgets?limit=1"), await uidOf("ksvm-rewrite"));
  t.equal(await levelOf("/api/v1/namespaces/default/configmaps/a"), await uidOf("ksvm-rewrite"));
  t.equal(await levelOf("/apis/migration.k8s.io/v1alpha1/storagestates"), await uidOf("workload-low"));
  t.equal(await levelOf("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/a"), await uidOf("workload-low"));
  const lease = `/apis/coordination.k8s.io/v1/namespaces/${NAMESPACE}/leases/a`;
  t.equal(await levelOf(lease), await uidOf("leader-election"));
});
