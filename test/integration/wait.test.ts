import t from "tap";
import { specKeyOf } from "../../src/api/crd.ts";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { LEASES, MERGE_PATCH, MIGRATIONS } from "../../src/kube/resources.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { installCrds } from "./install-crds.ts";
import { startSlowRun } from "./slow-run.ts";

const cluster = await Cluster.start(t, { users: [{ name: "blind" }] });
await installCrds(cluster);

async function createMigration(resource: object): Promise<string> {
  const { metadata } = await cluster.api.create<{ metadata: { name: string } }>(MIGRATIONS, {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { generateName: "m-" },
    spec: { resource },
  });
  return metadata.name;
}

async function setCondition(name: string, condition: object): Promise<void> {
  const body = { status: { conditions: [{ status: "True", ...condition }] } };
  await cluster.api.patch(MIGRATIONS, { name }, { type: MERGE_PATCH, body }, { subresource: "status" });
}

await t.test("wait says that nothing is under way, and what it cannot find", async (t) => {
  t.match(await cluster.ksvm(["wait"]), { code: 0, stdout: "no migration is under way\n" });
  t.match(await cluster.ksvm(["wait", "nothing.example.com"]), {
    code: 1,
    stderr: /nothing\.example\.com.*\[ResourceNotFound\]\n$/,
  });
  t.match(await cluster.ksvm(["wait", "secrets"]), {
    code: 1,
    stderr: /no CRD and no migration has this name \[ResourceNotFound\]\n$/,
  });
});

await t.test("wait ends once a CRD is migrated, by a run that no object of the API stands for", async (t) => {
  const kind = new TestKind("waited");
  const run = await startSlowRun(cluster, kind);
  const { code, stdout, stderr } = await cluster.ksvm(["wait", kind.plural]);
  t.equal(code, 0);
  t.equal(stdout, `${kind.name}: done: storedVersions is v1 alone\n`);
  t.match(stderr, new RegExp(`^${kind.name}: waiting: storedVersions is v1alpha1,v1, and .* migrates it\\n`));
  t.same(await cluster.storedAs(kind), { v1: 100 }, "no object is left");
  t.equal((await run.ended).code, 0);
});

await t.test("wait ends with the time, and says what is left; negative control of done", async (t) => {
  const kind = new TestKind("stale");
  await cluster.createStale(kind, 1);
  t.match(await cluster.ksvm(["wait", kind.name, "--timeout", "5s"]), {
    code: 1,
    stdout: "",
    stderr: new RegExp(`error: Cannot see the end of ${kind.name} within 5s \\[WaitTimedOut\\]\n$`),
  });
  t.same(await cluster.storedAs(kind), { v1alpha1: 1 });
});

await t.test("wait ends at once where a migration fails, and says why", async (t) => {
  const [failing, other] = [new TestKind("failing"), new TestKind("other")];
  await cluster.createStale(failing, 1);
  await cluster.createStale(other, 1);
  const name = await createMigration({ group: "example.com", version: "v1", resource: failing.plural });
  await setCondition(name, { type: "Running" });
  const waiting = cluster.ksvm(["wait", other.name, failing.name]);
  await setCondition(name, { type: "Failed", reason: "FreezeLifted", message: "because" });
  const { code, stdout } = await waiting;
  t.equal(code, 1);
  t.equal(stdout, `${failing.name}: failed: migrations/${name} is Failed: FreezeLifted: because\n`);
  await cluster.api.delete(MIGRATIONS, { name });
});

await t.test("wait without names waits for what is under way, of built-in resources too", async (t) => {
  const name = await createMigration({ version: "v1", resource: "secrets" });
  await setCondition(name, { type: "Running" });
  const waiting = cluster.spawnKsvm(t, ["wait"]);
  await eventually(async () => waiting.stderr.includes("is Running"), "it waits");
  await setCondition(name, { type: "Succeeded", reason: "Migrated" });
  t.match(await waiting.ended, { code: 0, stdout: `secrets: done: migrations/${name} is Succeeded: Migrated\n` });
});

await t.test("wait believes no migration of a built-in resource that another program calls Succeeded", async (t) => {
  const name = await createMigration({ version: "v1", resource: "configmaps" });
  // As kube-storage-version-migrator does, which gives no reason.
  await setCondition(name, { type: "Succeeded" });
  for (const given of [name, "configmaps"]) {
    const { code, stdout } = await cluster.ksvm(["wait", given]);
    t.equal(code, 3);
    t.match(stdout, /: incomplete: migrations\/.* is Succeeded; .*then run ksvm migrate configmaps --standalone\n$/);
  }
});

await t.test("wait without names ends where a run has proven every object and pruned nothing", async (t) => {
  const kind = new TestKind("unpruned");
  await cluster.createStale(kind, 1);
  const name = await createMigration({ group: "example.com", version: "v1", resource: kind.plural });
  await setCondition(name, { type: "Running" });
  const waiting = cluster.spawnKsvm(t, ["wait"]);
  await eventually(async () => waiting.stderr.includes("is Running"), "it waits");
  const body = { status: { crd: specKeyOf((await cluster.crd(kind)).metadata) } };
  await cluster.api.patch(MIGRATIONS, { name }, { type: MERGE_PATCH, body }, { subresource: "status" });
  await setCondition(name, { type: "Succeeded", reason: "Migrated" });
  const { code, stdout } = await waiting.ended;
  t.equal(code, 0);
  t.match(stdout, /: done: .*storedVersions still lists v1alpha1: .*--manage-stored-versions=false/);
});

await t.test(
  "wait --controller ends once the Lease of a leader is renewed, and not for one that was left",
  async (t) => {
    const lease = {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: { name: CONTROLLER_LEASE, namespace: SYSTEM_NAMESPACE },
      spec: { holderIdentity: "one", leaseDurationSeconds: 2, renewTime: "2026-01-01T00:00:00.000000Z" },
    };
    const namespaces = { group: "", version: "v1", resource: "namespaces" };
    await cluster.api.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: SYSTEM_NAMESPACE } });
    await cluster.api.create(LEASES, lease);
    const wait = ["wait", "--controller", "--timeout"];
    t.match(await cluster.ksvm([...wait, "5s"]), {
      code: 1,
      stdout: "",
      stderr: /^error: Cannot see a controller that leads within 5s \[WaitTimedOut\]\n$/,
    });
    const kubeconfig = cluster.controlPlane.kubeconfigFor("blind");
    t.match(
      await cluster.ksvm([...wait, "5m", "--kubeconfig", kubeconfig]),
      { code: 1, stderr: /^error: .*leases\.coordination\.k8s\.io "ksvm-controller" is forbidden.* \[Forbidden\]\n$/ },
      "a user who may not see that does not wait for five minutes",
    );
    const renew = async (): Promise<void> => {
      const body = { spec: { renewTime: new Date().toISOString().replace("Z", "000Z") } };
      await cluster.api.patch(LEASES, lease.metadata, { type: MERGE_PATCH, body });
    };
    const waited = cluster.ksvm([...wait, "1m"]);
    const renewing = setInterval(() => void renew(), 500);
    t.teardown(() => clearInterval(renewing));
    t.match(await waited, { code: 0, stdout: "a controller leads\n" });
    t.match(await cluster.ksvm([...wait, "1m", "widgets.example.com"]), { code: 2, stderr: /--controller/ });
  },
);
