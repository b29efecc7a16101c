// `ksvm rbac`: each command works under exactly the roles that it prints, and reaches nothing else.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { resourceNameOf, type StorageVersionMigration } from "../../src/api/migration.ts";
import { APPLY_PATCH, CRDS, MIGRATIONS } from "../../src/kube/resources.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { loadKubeConfig } from "../../src/kube/connect/config.ts";
import { storedWith } from "../control-plane/encryption.ts";
import { unlessAtLeast } from "../control-plane/features.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { startController } from "./controller.ts";
import { fileOf } from "./crd-file.ts";
import { TestKind } from "./crd-fixture.ts";
import { EncryptedObjects } from "./encrypted-objects.ts";
import { withFewResources } from "./few-resources.ts";
import { applyAll, NAMESPACE, overlayOf, startAsServiceAccount } from "./installation.ts";
import { render } from "./kubectl.ts";
import { V1 } from "./lost-objects.ts";
import { alone, parallel } from "./parallel.ts";
import { PatientTransport } from "./patient-transport.ts";
import { accountFor } from "./rbac-account.ts";

const KEYS = ["key0"];
const cluster = await Cluster.start(t, {
  apiservers: 2,
  overrides: [withFewResources(KEYS), withFewResources(KEYS, { index: 1 })],
});
const { api } = cluster;
const REFUSAL = /forbidden|may not|sampled|warning/i;

async function assertMigrated(t: Test, kind: TestKind, args: readonly string[]): Promise<void> {
  const run = await cluster.migrate([kind.name, ...args]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.notMatch(run.stdout + run.stderr, REFUSAL, "nothing was refused");
  t.same(await cluster.storedAs(kind), { v1: 3 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
}

parallel("migrate works on a CRD under its roles, also with the Lease in another namespace", async (t) => {
  const [kind, elsewhere, other] = [new TestKind("mine"), new TestKind("elsewhere"), new TestKind("other")];
  await Promise.all([kind, elsewhere, other].map((one) => cluster.createStale(one, 3)));
  const kubeconfig = await accountFor(cluster, "one-crd", [kind.name]);
  await assertMigrated(t, kind, ["--kubeconfig", kubeconfig]);
  t.match(await cluster.migrate([other.name, "--kubeconfig", kubeconfig]), { code: 1, stderr: /may not/ });
  t.same(await cluster.storedAs(other), { v1alpha1: 3 }, "another CRD is out of reach");

  const lease = ["--lease-namespace", NAMESPACE];
  const there = await accountFor(cluster, "elsewhere", [elsewhere.name, ...lease]);
  await assertMigrated(t, elsewhere, ["--kubeconfig", there, ...lease]);
});

parallel("migrate rewrites built-in resources under their roles", async (t) => {
  const names = ["configmaps", "deployments.apps", "roles.rbac.authorization.k8s.io"];
  const kubeconfig = await accountFor(cluster, "built-in", names);
  const run = await cluster.migrate([...names, "--kubeconfig", kubeconfig]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.notMatch(run.stdout + run.stderr, REFUSAL, "nothing was refused");
  const refused = await cluster.migrate(["secrets", "--kubeconfig", kubeconfig]);
  t.match(refused, { code: 1, stderr: /may not list secrets, patch secrets/ });
});

parallel("the roles for runs are enough for plan, check -f and migrate -f of a CRD that is there", async (t) => {
  const kind = new TestKind("file");
  await cluster.createStale(kind, 3);
  const account = ["--kubeconfig", await accountFor(cluster, "runs", [kind.name])];
  const path = fileOf(t, kind.manifest(V1));
  t.match(await cluster.ksvm(["plan", kind.name, ...account]), { code: 0, stdout: / v1alpha1,v1 +3 +migrate / });
  t.equal((await cluster.ksvm(["check", "-f", path, ...account])).code, 4);
  const run = await cluster.migrate(["-f", path, "--apply", ...account]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await cluster.storedAs(kind), { v1: 3 });
  t.equal((await cluster.crd(kind)).spec.versions.length, 1);
});

parallel(
  "check works under the roles of --for check, whose user may send dry runs of CRDs and no writes",
  async (t) => {
    const [kind, fresh, other] = [new TestKind("kept"), new TestKind("never"), new TestKind("beyond")];
    await Promise.all([kind, other].map((one) => cluster.createStale(one, 3)));
    const kubeconfig = await accountFor(cluster, "checker", [kind.name, fresh.name, "--for", "check"]);
    const user = new ApiClient(new PatientTransport(loadKubeConfig({ kubeconfig })));
    t.teardown(() => user.transport.close());
    const apply = (one: TestKind, manifest: object, dryRun = false): Promise<string> =>
      user
        .patch(CRDS, one, { type: APPLY_PATCH, body: manifest }, { fieldManager: "ci", force: true, dryRun })
        .then(() => "", String);
    // A policy comes into force a moment after it is there: what it denies must be nothing that succeeds before.
    const unchanged = (): Promise<string> => apply(kind, kind.manifest({ storage: "v1" }));
    await eventually(async () => (await unchanged()) !== "", "the policy is in force");
    const before = await cluster.crd(kind);

    const path = fileOf(t, kind.manifest(V1), fresh.manifest(V1));
    const run = await cluster.ksvm(["check", "-f", path, "--kubeconfig", kubeconfig]);
    t.equal(run.code, 4, run.stderr);
    t.match(run.stdout, /needs-migration .* v1alpha1 +3 /);
    t.match(run.stdout, new RegExp(`${fresh.name} +applicable `));
    const beyond = await cluster.ksvm(["check", "-f", fileOf(t, other.manifest(V1)), "--kubeconfig", kubeconfig]);
    t.equal(beyond.code, 1, "another CRD is out of its reach");

    t.match(await apply(kind, kind.manifest(V1)), /may send dry runs of CRDs, and no writes/);
    t.match(await apply(fresh, fresh.manifest(V1)), /may send dry runs of CRDs, and no writes/);
    t.match(await user.delete(CRDS, kind).then(() => "", String), /403/);
    t.equal(await apply(fresh, fresh.manifest(V1), true), "", "a dry run passes");
    t.same(await cluster.crd(kind), before);
    t.equal(await api.find(CRDS, fresh), undefined);
  },
);

parallel("rbac says what goes together", async (t) => {
  const name = "widgets.example.com";
  const bound = `--service-account=${NAMESPACE}/a`;
  t.notMatch((await cluster.ksvm(["rbac", name, "--for=check"])).stdout, /Policy/, "without a user the role alone");
  t.match((await cluster.ksvm(["rbac", name, "--for=check", bound])).stdout, /ValidatingAdmissionPolicyBinding/);
  for (const args of [
    [],
    ["--all", "secrets"],
    ["--all", "-o", "component"],
    ["--for=check", "--all"],
    ["--for=check", name, "-o", "component"],
  ]) {
    t.match(await cluster.ksvm(["rbac", ...args]), { code: 2, stdout: "" }, args.join(" "));
  }
});

parallel("the component only-these-resources limits the trigger to what the role allows", async (t) => {
  // The other one does not serve all that is installed.
  const installed = await Cluster.start(t);
  const [wanted, unwanted] = [new TestKind("wanted"), new TestKind("unwanted")];
  const component = join(installed.controlPlane.dir, "only-these");
  mkdirSync(component);
  const printed = await installed.ksvm(["rbac", wanted.name, "configmaps", "-o", "component"]);
  writeFileSync(join(component, "kustomization.yaml"), printed.stdout);
  const documents = await render(overlayOf(t, ["deploy/base", component]));
  await applyAll(installed.api, documents);
  const flag = `--trigger-only-resources=${wanted.name},configmaps`;
  t.match(JSON.stringify(documents), `"${flag}"`, "the Deployment has the flag");

  await Promise.all([unwanted, wanted].map((kind) => installed.createStale(kind, 3)));
  const kubeconfig = await startAsServiceAccount(installed, "storage-migrator");
  const controller = await startController(t, installed, { kubeconfig, flags: ["--trigger=on", flag] });
  const isPruned = async (): Promise<boolean> => storedVersionsOf(await installed.crd(wanted)).join() === "v1";
  await eventually(isPruned, "storedVersions is pruned");
  const migrations = await installed.api.list<StorageVersionMigration>(MIGRATIONS);
  const others = migrations
    .map(({ spec }) => resourceNameOf(spec.resource))
    .filter((name) => name !== wanted.name && name !== "configmaps");
  t.same(others, []);
  t.same(await installed.storedAs(unwanted), { v1alpha1: 3 });
  t.equal(await controller.stop(), 0, controller.log());
  t.notMatch(controller.log(), /forbidden/i, "RBAC refused nothing");
});

alone(
  "reencrypt works under the roles of the resources, and --all under those of rbac --all",
  async (t) => {
    const objects = await EncryptedObjects.create(cluster, 3);
    const rotated = ["key1", ...KEYS];
    await cluster.controlPlane.restartApiserver(0, withFewResources(rotated));
    await cluster.controlPlane.restartApiserver(1, withFewResources(rotated, { index: 1 }));
    const reencrypt = async (kubeconfig: string, ...args: readonly string[]): Promise<string> => {
      const run = await cluster.ksvm(["reencrypt", ...args, "--settle", "10ms", "--kubeconfig", kubeconfig]);
      t.equal(run.code, 0, run.stdout + run.stderr);
      t.notMatch(run.stdout + run.stderr, REFUSAL, "nothing was refused");
      return run.stdout;
    };
    const some = await accountFor(cluster, "some-resources", ["configmaps"]);
    t.match(await reencrypt(some, "configmaps"), /re-encrypted/);
    const every = await accountFor(cluster, "every-resource", ["--all"]);
    t.match(await reencrypt(every, "--all"), /re-encrypted (\d+) of \1 resources/);
    t.same((await objects.keysOfEach()).get("secrets"), { [storedWith("key1")]: 3 });

    const elsewhere = ["reencrypt", "secrets", "--lease-namespace", NAMESPACE, "--kubeconfig", every];
    t.match(await cluster.ksvm(elsewhere), { code: 1, stderr: /may not create leases/ }, "negative control");
  },
  unlessAtLeast(34, "API servers show which encryption configuration they use"),
);
