import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { resourceNameOf, type StorageVersionMigration } from "../../src/api/migration.ts";
import { systemClock } from "../../src/clock.ts";
import { MIGRATIONS } from "../../src/kube/resources.ts";
import { rolesForRuns } from "../../src/migrator/run-roles.ts";
import { discoverMigratable } from "../../src/resources/discover.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { encryptionConfig, IDENTITY } from "../control-plane/encryption.ts";
import { unlessAtLeast } from "../control-plane/features.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { applyAll, NAMESPACE, overlayOf, startAsServiceAccount } from "./installation.ts";
import { render } from "./kubectl.ts";
import { accountFor } from "./rbac-account.ts";
import { freePort, spawnController, untilReady } from "./replica.ts";

const CONFIG_MAPS = { group: "", version: "v1", resource: "configmaps" };

const cluster = await Cluster.start(t, {
  apiservers: 2,
  encryptionConfig: encryptionConfig(["key0", IDENTITY], ["configmaps"]),
});
const { api } = cluster;

async function prunedBy(t: Test, kind: TestKind, args: readonly string[]): Promise<void> {
  const run = await cluster.migrate([kind.name, ...args]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.notMatch(run.stdout + run.stderr, /forbidden|may not|sampled|warning/i, "nothing was refused");
  t.same(await cluster.storedAs(kind), { v1: 10 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
}

await t.test("ksvm migrate migrates a CRD under exactly the roles that ksvm rbac prints for it", async (t) => {
  const [kind, other] = [new TestKind("mine"), new TestKind("other")];
  await cluster.createStale(kind, 10);
  await cluster.createStale(other, 10);
  const kubeconfig = await accountFor(cluster, "one-crd", [kind.name]);
  await prunedBy(t, kind, ["--kubeconfig", kubeconfig]);
  const refused = await cluster.migrate([other.name, "--kubeconfig", kubeconfig]);
  t.equal(refused.code, 1);
  t.match(refused.stderr + refused.stdout, /forbidden|may not/i);
  t.same(await cluster.storedAs(other), { v1alpha1: 10 }, "another CRD is out of reach");
});

await t.test("ksvm rbac prints roles for another namespace of the Lease", async (t) => {
  const kind = new TestKind("elsewhere");
  await cluster.createStale(kind, 10);
  const lease = ["--lease-namespace", NAMESPACE];
  const kubeconfig = await accountFor(cluster, "elsewhere", [kind.name, ...lease]);
  await prunedBy(t, kind, ["--kubeconfig", kubeconfig, ...lease]);
});

await t.test("ksvm rbac prints roles for migrations through the status subresource", async (t) => {
  const kind = new TestKind("via");
  await cluster.createStale(kind, 10, { statusSubresource: true });
  const kubeconfig = await accountFor(cluster, "via-status", [kind.name, "--via", "status"]);
  const normal = await cluster.migrate([kind.name, "--kubeconfig", kubeconfig]);
  t.match(
    normal,
    { code: 1, stderr: new RegExp(`may not patch ${kind.name.replaceAll(".", "\\.")}`) },
    "and for no others",
  );
  t.same(await cluster.storedAs(kind), { v1alpha1: 10 });
  await prunedBy(t, kind, ["--via", "status", "--kubeconfig", kubeconfig]);
});

await t.test(
  "ksvm migrate rewrites a built-in resource under exactly the roles that ksvm rbac prints for it",
  async (t) => {
    await cluster.createObjects(CONFIG_MAPS, [
      { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "a", namespace: "default" } },
    ]);
    const names = ["configmaps", "deployments.apps", "roles.rbac.authorization.k8s.io"];
    const kubeconfig = await accountFor(cluster, "built-in", names);
    const run = await cluster.migrate([...names, "--kubeconfig", kubeconfig]);
    t.equal(run.code, 0, run.stdout + run.stderr);
    t.notMatch(run.stdout + run.stderr, /forbidden|may not|sampled|warning/i, "nothing was refused");
    const refused = await cluster.migrate(["secrets", "--kubeconfig", kubeconfig]);
    t.match(refused, { code: 1, stderr: /may not list secrets, patch secrets/ });
  },
);

await t.test(
  "ksvm reencrypt works under exactly the roles that ksvm rbac prints for the resources",
  { skip: unlessAtLeast(34, "API servers show which encryption configuration they use") },
  async (t) => {
    const kind = new TestKind("secret");
    await cluster.createCrd(kind, { storage: "v1" });
    await cluster.createObjects(kind.resource("v1"), kind.objects(10, "v1"));
    const names = ["configmaps", kind.name];
    const kubeconfig = await accountFor(cluster, "reencrypt", names);
    const run = await cluster.ksvm(["reencrypt", "--settle", "1s", ...names, "--kubeconfig", kubeconfig]);
    t.equal(run.code, 0, run.stdout + run.stderr);
    t.match(run.stdout, /re-encrypted 2 of 2 resources/);
    t.notMatch(run.stdout + run.stderr, /forbidden|may not list|sampled|warning/i, "nothing was refused");
  },
);

/** Those whose roles let a run create a policy, beside rewriting policies. */
function freezing(names: readonly string[]): readonly string[] {
  const options = { name: "a", guard: "auto", leaseNamespace: "kube-system" } as const;
  return names.filter((name) =>
    rolesForRuns([name], options)
      .flatMap(({ rules }) => rules)
      .some(({ resources, verbs }) => resources?.includes("validatingadmissionpolicies") && verbs.includes("create")),
  );
}

await t.test("the roles for a resource of Kubernetes itself hold no right to freeze", async (t) => {
  const retrier = new Retrier({ clock: systemClock, random: Math.random, maxIdleMs: 30_000 });
  const { signal } = new AbortController();
  const { migratable } = await discoverMigratable({ client: api, clock: systemClock, retrier, signal });
  const builtIn = migratable.filter(({ group }) => group !== "example.com").map(resourceNameOf);
  t.ok(builtIn.length > 40);
  const ofPolicies = new Set(["validatingadmissionpolicies.admissionregistration.k8s.io"]);
  t.same(
    freezing(builtIn).filter((name) => !ofPolicies.has(name)),
    [],
  );
  t.same(freezing(["widgets.example.com"]), ["widgets.example.com"], "negative control");
});

await t.test("the component only-these-resources limits the trigger to what the role allows", async (t) => {
  const [wanted, unwanted] = [new TestKind("wanted"), new TestKind("unwanted")];
  const component = join(cluster.controlPlane.dir, "only-these");
  mkdirSync(component);
  const printed = await cluster.ksvm(["rbac", wanted.name, "configmaps", "-o", "component"]);
  writeFileSync(join(component, "kustomization.yaml"), printed.stdout);
  const documents = await render(overlayOf(t, ["deploy/base", component]));
  await applyAll(api, documents);
  const [container] = documents
    .filter(({ kind }) => kind === "Deployment")
    .flatMap((found) => (found as unknown as Deployment).spec.template.spec.containers);
  const flag = container?.args.find((arg) => arg.startsWith("--trigger-only-resources=")) ?? "";
  t.equal(flag, `--trigger-only-resources=${wanted.name},configmaps`);

  await cluster.createStale(unwanted, 3);
  await cluster.createStale(wanted, 3);
  const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
  const replica = await spawnController(t, { kubeconfig }, { webhookPort: await freePort(), flags: [flag] });
  await untilReady(replica);
  const isPruned = async (): Promise<boolean> => storedVersionsOf(await cluster.crd(wanted)).join() === "v1";
  await eventually(isPruned, "storedVersions is pruned", 180_000).catch((error: unknown) => {
    t.comment(replica.log());
    throw error;
  });
  const migrations = await api.list<StorageVersionMigration>(MIGRATIONS);
  const resources = new Set(migrations.map(({ spec }) => resourceNameOf(spec.resource)));
  t.same(
    [...resources].filter((name) => name !== wanted.name && name !== "configmaps"),
    [],
  );
  t.same(await cluster.storedAs(unwanted), { v1alpha1: 3 });
  replica.kill("SIGTERM");
  t.equal(await replica.ended, 0, replica.log());
  t.notMatch(replica.log(), /forbidden/i, "RBAC refused nothing");
});

interface Deployment {
  readonly spec: {
    readonly template: { readonly spec: { readonly containers: readonly { readonly args: readonly string[] }[] } };
  };
}
