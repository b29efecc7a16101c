// `ksvm rbac`: each command works under exactly the roles that it prints, and reaches nothing else.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { storedVersionsOf } from "../crd.ts";
import { resourceNameOf, type StorageVersionMigration } from "../../src/api/migration.ts";
import { APPLY_PATCH, CRDS, MIGRATIONS } from "../api-client.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { startController } from "./controller.ts";
import { fileOf } from "./crd-file.ts";
import { TestKind } from "./crd-fixture.ts";
import { applyAll, NAMESPACE, overlayOf, startAsServiceAccount } from "./installation.ts";
import { render } from "./kubectl.ts";
import { V1 } from "./lost-objects.ts";
import { alone, parallel } from "./parallel.ts";
import { accountFor } from "./rbac-account.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const REFUSAL = /forbidden|may not (get|list|watch|create|patch|delete)|sampled|warning: (?!--unsafe-settle)/i;

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
  t.match(await cluster.migrate([other.name, "--kubeconfig", kubeconfig]), { code: 1, stderr: /\[Forbidden\]/ });
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
    const user = cluster.clientBy(kubeconfig);
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
    t.match(run.stdout, /needs-migration .* v1alpha1 +3$/m);
    t.match(run.stdout, new RegExp(`${fresh.name} +applicable `));
    const beyond = await cluster.ksvm(["check", "-f", fileOf(t, other.manifest(V1)), "--kubeconfig", kubeconfig]);
    t.equal(beyond.code, 1, "another CRD is out of its reach");

    t.match(await unchanged(), /may send dry runs of CRDs, and no writes/);
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

alone("the component only-these-resources limits the trigger to what the role allows", async (t) => {
  const [wanted, unwanted] = [new TestKind("wanted"), new TestKind("unwanted")];
  const component = join(cluster.controlPlane.dir, "only-these");
  mkdirSync(component);
  const printed = await cluster.ksvm(["rbac", wanted.name, "configmaps", "-o", "component"]);
  writeFileSync(join(component, "kustomization.yaml"), printed.stdout);
  const documents = await render(overlayOf(t, ["deploy/base", component]));
  await applyAll(api, documents);
  const flag = `--trigger-only-resources=${wanted.name},configmaps`;
  t.match(JSON.stringify(documents), `"${flag}"`, "the Deployment has the flag");

  await Promise.all([unwanted, wanted].map((kind) => cluster.createStale(kind, 3)));
  const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
  const controller = await startController(t, cluster, { kubeconfig, flags: ["--trigger=on", flag] });
  const isPruned = async (): Promise<boolean> => storedVersionsOf(await cluster.crd(wanted)).join() === "v1";
  await eventually(isPruned, "storedVersions is pruned");
  const migrations = await api.list<StorageVersionMigration>(MIGRATIONS);
  const others = migrations
    .map(({ spec }) => resourceNameOf(spec.resource))
    .filter((name) => name !== wanted.name && name !== "configmaps");
  t.same(others, []);
  t.same(await cluster.storedAs(unwanted), { v1alpha1: 3 });
  t.equal(await controller.stop(), 0, controller.log());
  t.notMatch(controller.log(), /forbidden/i, "RBAC refused nothing");
});
