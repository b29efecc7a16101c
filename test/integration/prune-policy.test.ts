// What deploy/components/deny-unproven-prunes does on an API server: prunes by other tools are denied, or put back (docs/guard.md).
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { type ApiClient, CRDS, MERGE_PATCH, type NewObject } from "../api-client.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { applyAll, overlayOf, startAsServiceAccount } from "./installation.ts";
import { render } from "./kubectl.ts";

const cluster = await Cluster.start(t);
const inTree = await clientOfInTree();

/** Acts under the ServiceAccount of Kubernetes' own migrator, which may do everything here. */
async function clientOfInTree(): Promise<ApiClient> {
  const [name, namespace] = ["storage-version-migrator-controller", "kube-system"];
  const group = "rbac.authorization.k8s.io";
  await applyAll(cluster.api, [
    { apiVersion: "v1", kind: "ServiceAccount", metadata: { name, namespace } },
    {
      apiVersion: `${group}/v1`,
      kind: "ClusterRoleBinding",
      metadata: { name },
      roleRef: { apiGroup: group, kind: "ClusterRole", name: "cluster-admin" },
      subjects: [{ kind: "ServiceAccount", name, namespace }],
    },
  ]);
  return cluster.clientBy(await startAsServiceAccount(cluster, name, 0, namespace));
}

/** What cluster-api, cmctl and Kubernetes' own migrator send: the status with the storage version alone. */
async function prune(
  kind: TestKind,
  { api = cluster.api, dryRun = false, status = {} } = {},
): Promise<readonly string[]> {
  const patch = { type: MERGE_PATCH, body: { status: { ...status, storedVersions: ["v1"] } } };
  return storedVersionsOf(await api.patch(CRDS, kind, patch, { subresource: "status", dryRun }));
}

function mayPrune(kind: TestKind): Promise<boolean> {
  return prune(kind, { dryRun: true }).then(
    () => true,
    () => false,
  );
}

/** As the in-tree controller ends a migration. */
function pruneAs(api: ApiClient, kind: TestKind, reason: string, message = ""): Promise<readonly string[]> {
  const lastTransitionTime = "2026-01-01T00:00:00Z";
  const conditions = [{ type: "StorageMigrating", status: "False", reason, message, lastTransitionTime }];
  return prune(kind, { api, dryRun: true, status: { conditions } });
}

const [lost, kind, listed] = [new TestKind("lost"), new TestKind("kept"), new TestKind("listed")];
await Promise.all([lost, kind, listed].map((one) => cluster.createStale(one, 3)));

await t.test("negative control: without the policy a prune by another tool lets the old version go", async (t) => {
  t.same(await prune(lost), ["v1"]);
  await cluster.setVersions(lost, { storage: "v1", versions: ["v1"] });
  t.same(await cluster.storedAs(lost), { v1alpha1: 3 });
});

/** The objects of the component, as kubectl renders them. */
let policies: readonly NewObject[] = [];

await t.test("the component adds two policies and their bindings to deploy/base", async (t) => {
  const objects = await render(overlayOf(t, ["deploy/base", "deploy/components/deny-unproven-prunes"]));
  policies = objects.filter(({ metadata }) => metadata.name?.startsWith("ksvm-stored-versions"));
  t.equal(policies.length, 4);
  await applyAll(cluster.api, policies);
  await eventually(async () => !(await mayPrune(kind)), "the policy is in force");
  await eventually(async () => {
    const left = await pruneAs(inTree, kind, "MigrationFailed").catch(() => []);
    return left.length === 2;
  }, "what puts versions back is in force");
});

await t.test("a prune by another tool is denied, and the message says what to do", async (t) => {
  await t.rejects(prune(kind), {
    status: 403,
    message: new RegExp(`would lose "v1alpha1".*ksvm migrate ${kind.name}`),
  });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
});

await t.test("other updates of a status pass", async (t) => {
  const body = { status: { storedVersions: ["v1alpha1", "v1"], acceptedNames: { shortNames: ["x"] } } };
  await t.resolves(cluster.api.patch(CRDS, kind, { type: MERGE_PATCH, body }, { subresource: "status", dryRun: true }));
});

await t.test(
  "what the in-tree controller prunes after a failure is put back; after a success it may prune",
  async (t) => {
    t.same(await pruneAs(inTree, kind, "MigrationFailed"), ["v1alpha1", "v1"]);
    t.same(await pruneAs(inTree, kind, "MigrationSucceeded"), ["v1"]);
    const message = "the stored versions have not been updated due to a generation mismatch";
    t.same(await pruneAs(inTree, kind, "MigrationSucceeded", message), ["v1alpha1", "v1"]);
    await t.rejects(pruneAs(cluster.api, kind, "MigrationSucceeded"), { message: /would lose/ });
  },
);

await t.test("a run of ksvm prunes", async (t) => {
  const { code, stderr } = await cluster.migrate([kind.name]);
  t.equal(code, 0, stderr);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.same(await cluster.storedAs(kind), { v1: 3 });
});

await t.test("a tool that the administrator lists may prune", async (t) => {
  t.notOk(await mayPrune(listed));
  const tools = JSON.stringify(policies).replace('"[]"', JSON.stringify('["admin"]'));
  await applyAll(cluster.api, JSON.parse(tools) as typeof policies);
  await eventually(() => mayPrune(listed), "the list is in force");
});
