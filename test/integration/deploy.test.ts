// What stands in deploy/: it renders, can be applied again and again, and gives each ServiceAccount the rights that it needs and no more.
import t from "tap";
import { Agent, request } from "undici";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import {
  type ApiClient,
  CRDS,
  JSON_PATCH,
  type KubeObject,
  LEASES,
  MIGRATIONS,
  POLICIES,
  type Resource,
  SECRETS,
  STORAGE_STATES,
  WEBHOOK_CONFIGURATIONS,
} from "../api-client.ts";
import { Cluster } from "./cluster.ts";
import {
  applyAll,
  applyBase,
  foldersOf,
  NAMESPACE,
  overlayOf,
  overlayWithImage,
  startAsServiceAccount,
  tokenOf,
} from "./installation.ts";
import { render } from "./kubectl.ts";

const CRON_JOBS = { group: "batch", version: "v1", resource: "cronjobs" };
const PODS = { group: "", version: "v1", resource: "pods" };
const DEPLOYMENTS = { group: "apps", version: "v1", resource: "deployments" };
const ROLES = { group: "rbac.authorization.k8s.io", version: "v1", resource: "clusterroles" };
const CERTIFICATE_SECRET = { namespace: NAMESPACE, name: "ksvm-webhook-certificates" };

interface PodTemplate {
  readonly metadata?: object;
  readonly spec: { readonly containers: readonly { readonly image: string; readonly args: readonly string[] }[] };
}

const cluster = await Cluster.start(t);
const { api } = cluster;
await applyBase(cluster);
await applyAll(api, await render("deploy/initializer"));

async function podTemplates() {
  const ref = { namespace: NAMESPACE };
  const deployment = await api.get<{ spec: { template: PodTemplate } }>(DEPLOYMENTS, {
    ...ref,
    name: "ksvm-controller",
  });
  const ofCronJob = async (name: string): Promise<PodTemplate> => {
    type CronJob = { spec: { jobTemplate: { spec: { template: PodTemplate } } } };
    return (await api.get<CronJob>(CRON_JOBS, { ...ref, name })).spec.jobTemplate.spec.template;
  };
  return {
    controller: deployment.spec.template,
    certificates: await ofCronJob("ksvm-certificates"),
    init: await ofCronJob("ksvm-init"),
  };
}

/** The caBundle of the installed webhook. */
async function caBundle(): Promise<string | undefined> {
  const { webhooks } = await api.get<{ webhooks: { clientConfig: { caBundle?: string } }[] }>(WEBHOOK_CONFIGURATIONS, {
    name: WEBHOOK_NAME,
  });
  return webhooks[0]?.clientConfig.caBundle;
}

/** Names of what nothing here serves. */
const FOREIGN = /^(cert-manager\.io|monitoring\.coreos\.com)\//;

await t.test("every folder of deploy/ renders, and an API server takes what comes out", async (t) => {
  const overlays = foldersOf("Kustomization").filter((folder) => !folder.includes("vendor"));
  const withComponents = foldersOf("Component").map((component) => overlayOf(t, ["deploy/base", component]));
  for (const folder of [...overlays, ...withComponents]) {
    const documents = await render(folder);
    const known = documents.filter(({ apiVersion = "" }) => !FOREIGN.test(apiVersion));
    t.ok(known.length > 0);
    await t.resolves(applyAll(api, known, { dryRun: true }), folder);
  }
});

await t.test("with certificates of others there is no certificate job, and its rights are gone", async (t) => {
  for (const [overlay, flags] of [
    ["cert-manager", ["--certificates=secret", "--cert-secret=ksvm-webhook-tls"]],
    ["files", ["--certificates=files", "--cert-dir=/certificates"]],
  ] as const) {
    const text = JSON.stringify(await render(`deploy/overlays/${overlay}`));
    t.notMatch(text, /storage-migrator-certificates|CronJob|"Job"|"caBundle"/, overlay);
    t.same(text.match(/--cert[^"]*/g), flags);
    t.equal(/inject-ca-from":"kube-storage-migration\/ksvm-webhook"/.test(text), overlay === "cert-manager");
    t.equal(/"resourceNames":\["ksvm-webhook-tls"\]/.test(text), overlay === "cert-manager");
  }
});

await t.test("no-kube-system grants the Leases of API servers by a ClusterRole", async (t) => {
  const component = "deploy/components/no-kube-system";
  for (const [folders, accounts] of [
    [
      ["deploy/base", component],
      ["storage-migrator", "storage-migrator-certificates"],
    ],
    [["deploy/overlays/cert-manager", component], ["storage-migrator"]],
  ] as const) {
    const documents = await render(overlayOf(t, folders));
    t.notOk(documents.some(({ metadata }) => metadata.namespace === "kube-system"));
    const found = documents.filter(({ metadata }) => metadata.name?.endsWith("-identities") === true);
    const subjects = found.flatMap(
      (one) => (one["subjects"] as readonly { readonly name: string }[] | undefined) ?? [],
    );
    t.same(subjects.map(({ name }) => name).toSorted(), accounts);
    t.match(found.find(({ kind }) => kind === "ClusterRole")?.["rules"], [
      { apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get", "list", "watch"] },
    ]);
  }
});

await t.test("the installation can be applied again and again with a new image, and keeps its caBundle", async (t) => {
  const filled = Buffer.from(cluster.controlPlane.ca).toString("base64");
  t.equal(await caBundle(), undefined);
  const body = [{ op: "add", path: "/webhooks/0/clientConfig/caBundle", value: filled }];
  await api.patch(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME }, { type: JSON_PATCH, body });
  for (const newTag of ["1", "2"]) {
    const image = { newName: "mirror.example/tools/ksvm", newTag };
    await applyAll(api, await render(overlayWithImage(t, "deploy/base", image)));
    await applyAll(api, await render(overlayWithImage(t, "deploy/initializer", image)));
    const images = Object.values(await podTemplates()).flatMap(({ spec }) => spec.containers.map((c) => c.image));
    t.same(new Set(images), new Set([`mirror.example/tools/ksvm:${newTag}`]));
  }
  t.equal(await caBundle(), filled);
});

function createPod(name: string, { metadata, spec }: PodTemplate): Promise<unknown> {
  const pod = { apiVersion: "v1", kind: "Pod", metadata: { ...metadata, name, namespace: NAMESPACE }, spec };
  return api.create(PODS, pod, { dryRun: true });
}

await t.test("every pod passes the restricted Pod Security Standard, which the namespace enforces", async (t) => {
  const templates = await podTemplates();
  for (const [name, template] of Object.entries(templates)) await t.resolves(createPod(name, template), name);
  const careless = { ...templates.init, spec: { ...templates.init.spec, securityContext: {} } };
  await t.rejects(createPod("careless", careless), /violates PodSecurity "restricted/, "negative control");
});

for (const account of ["storage-migrator-certificates", "storage-migrator"]) {
  await t.test(`certificates are made and rotated with the rights of ${account}`, async (t) => {
    type Secret = { data?: Record<string, string> };
    const ca = async (): Promise<string | undefined> =>
      (await api.get<Secret>(SECRETS, CERTIFICATE_SECRET)).data?.["ca.crt"];
    const quick = ["--apiserver-dwell=1s", "--replica-dwell=1s"];
    const asAccount = [...quick, "--kubeconfig", await startAsServiceAccount(cluster, account)];
    const args = (await podTemplates()).certificates.spec.containers[0]?.args ?? [];
    await api.delete(SECRETS, CERTIFICATE_SECRET);
    const missing = await cluster.ksvm([...args, ...asAccount]);
    t.match(missing, { code: 1, stderr: /cannot create resource "secrets"/ }, "it may not create Secrets");
    await applyBase(cluster);
    const run = await cluster.ksvm([...args, ...asAccount]);
    t.equal(run.code, 0, run.stderr);
    const first = await ca();
    t.equal(await caBundle(), first);
    const again = await cluster.ksvm(["certs", "rotate", "--now", ...asAccount]);
    t.equal(again.code, 0, again.stderr);
    t.not(await ca(), first);
    t.equal(await caBundle(), await ca());
  });
}

await t.test("ksvm init runs with the rights of its ServiceAccount, also before the CRDs are there", async (t) => {
  const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator-init");
  const run = await cluster.ksvm(["init", "--kubeconfig", kubeconfig]);
  t.equal(run.code, 0, run.stderr);
  const [migration] = await api.list<StorageVersionMigration>(MIGRATIONS);
  const owner = { kind: "CustomResourceDefinition", name: "storageversionmigrations.migration.k8s.io" };
  t.match(migration?.metadata.ownerReferences, [owner]);
  for (const { resource, group } of [MIGRATIONS, STORAGE_STATES])
    await api.delete(CRDS, { name: `${resource}.${group}` });
  const again = await cluster.ksvm(["init", "-y", "--kubeconfig", kubeconfig]);
  t.equal(again.code, 0, again.stderr);
  t.match(again.stdout, /storageversionmigrations/);
});

interface Access {
  readonly verb: string;
  readonly resource: Pick<Resource, "group" | "resource">;
  readonly subresource?: string;
  readonly namespace?: string;
  readonly name?: string;
}

/** Verbs, one after the other, on a resource; `of` says which object. */
function accesses(
  verbs: string,
  resource: Access["resource"],
  of: Omit<Access, "verb" | "resource"> = {},
): readonly Access[] {
  return verbs.split(" ").map((verb) => ({ verb, resource, ...of }));
}

const SYSTEM = { namespace: "kube-system" };
const HERE = { namespace: NAMESPACE };
const OURS = { name: WEBHOOK_NAME };
const ANOTHER = { namespace: NAMESPACE, name: "another" };

const RIGHTS: Readonly<Record<string, { readonly needed: readonly Access[]; readonly tooMuch: readonly Access[] }>> = {
  "storage-migrator": {
    needed: [
      ...accesses("get watch update", SECRETS, CERTIFICATE_SECRET),
      ...accesses("get create patch update", LEASES, HERE),
      ...accesses("watch create delete", MIGRATIONS),
      ...accesses("patch", MIGRATIONS, { subresource: "status" }),
      ...accesses("watch patch", WEBHOOK_CONFIGURATIONS, OURS),
      ...accesses("create", { group: "", resource: "events" }, { namespace: "default" }),
    ],
    tooMuch: [
      ...accesses("create delete", SECRETS, HERE),
      ...accesses("create watch", SECRETS),
      ...accesses("update watch", SECRETS, ANOTHER),
      ...accesses("create", PODS, HERE),
      ...accesses("create delete", CRDS),
      ...accesses("create", POLICIES),
      ...accesses("delete", WEBHOOK_CONFIGURATIONS),
      ...accesses("watch", WEBHOOK_CONFIGURATIONS, { name: "of-another-owner" }),
      ...accesses("create update", LEASES, SYSTEM),
      ...accesses("escalate bind", ROLES),
      ...accesses("impersonate", { group: "", resource: "users" }),
    ],
  },
  "storage-migrator-certificates": {
    needed: [
      ...accesses("get update", SECRETS, CERTIFICATE_SECRET),
      ...accesses("patch", WEBHOOK_CONFIGURATIONS, OURS),
      ...accesses("list", LEASES, SYSTEM),
      ...accesses("list", { group: "discovery.k8s.io", resource: "endpointslices" }, HERE),
    ],
    tooMuch: [
      ...accesses("get", SECRETS, ANOTHER),
      ...accesses("list create", SECRETS, HERE),
      ...accesses("patch", WEBHOOK_CONFIGURATIONS, { name: "of-another-owner" }),
      ...accesses("patch", CRDS),
      ...accesses("list", PODS),
    ],
  },
  "storage-migrator-init": {
    needed: [...accesses("create", MIGRATIONS)],
    tooMuch: [
      ...accesses("patch", SECRETS),
      ...accesses("get", SECRETS, HERE),
      ...accesses("delete", DEPLOYMENTS),
      ...accesses("delete", CRDS),
      ...accesses("patch", CRDS, { name: "widgets.example.com" }),
    ],
  },
};

/** Every authenticated user may ask this of itself. */
async function isAllowed(client: ApiClient, { resource, ...of }: Access): Promise<boolean> {
  const { body } = await client.request<{ status: { allowed: boolean } }>({
    method: "POST",
    path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    body: {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SelfSubjectAccessReview",
      spec: { resourceAttributes: { group: resource.group, resource: resource.resource, ...of } },
    },
  });
  return body.status.allowed;
}

for (const [account, { needed, tooMuch }] of Object.entries(RIGHTS)) {
  await t.test(`${account} may do what it needs and no more`, async (t) => {
    const asAccount = cluster.clientBy(await startAsServiceAccount(cluster, account));
    const all = [...needed, ...tooMuch];
    const answers = await Promise.all(all.map((access) => isAllowed(asAccount, access)));
    t.same(
      all.filter((_, index) => answers[index]),
      needed,
    );
  });
}

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
  for (const [path, level] of [
    ["/apis/example.com/v1/widgets?limit=1", "ksvm-rewrite"],
    ["/api/v1/namespaces/default/configmaps/a", "ksvm-rewrite"],
    ["/apis/migration.k8s.io/v1alpha1/storagestates", "workload-low"],
    ["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/a", "workload-low"],
    [`/apis/coordination.k8s.io/v1/namespaces/${NAMESPACE}/leases/a`, "leader-election"],
  ] as const) {
    t.equal(await levelOf(path), await uidOf(level), path);
  }
});

await t.test("objects that RBAC guards are rewritten with the rights of the controller", async (t) => {
  // RBAC refuses a client that grants rights which it does not have; a write that changes nothing passes.
  const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
  const where = ["--lease-namespace", NAMESPACE, "--kubeconfig", kubeconfig];
  const run = await cluster.migrate(["clusterroles.rbac.authorization.k8s.io", ...where]);
  t.equal(run.code, 0, run.stdout + run.stderr);
});
