import t from "tap";
import { APPLY_PATCH, CRDS } from "../../src/kube/resources.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { loadKubeConfig } from "../../src/kube/connect/config.ts";
import { Cluster, eventually } from "./cluster.ts";
import { fileOf } from "./crd-file.ts";
import { TestKind } from "./crd-fixture.ts";
import { NAMESPACE } from "./installation.ts";
import { PatientTransport } from "./patient-transport.ts";
import { accountFor } from "./rbac-account.ts";

const V1 = { versions: ["v1"], storage: "v1" } as const;

const cluster = await Cluster.start(t);

await t.test("ksvm check works under exactly the role that ksvm rbac --for check prints", async (t) => {
  const [stale, fresh, other] = [new TestKind("stale"), new TestKind("fresh"), new TestKind("other")];
  await cluster.createStale(stale, 3);
  await cluster.createStale(other, 3);
  const kubeconfig = await accountFor(cluster, "checker", [stale.name, fresh.name, "--for", "check"]);
  const before = await cluster.crd(stale);

  const run = await cluster.ksvm([
    "check",
    "-f",
    fileOf(t, stale.manifest(V1), fresh.manifest(V1)),
    "--kubeconfig",
    kubeconfig,
  ]);
  t.equal(run.code, 4, run.stderr);
  t.match(run.stdout, /needs-migration .* v1alpha1 +3 /);
  t.match(run.stdout, /managedFields of 3 of 3 objects/, "it may list the objects");
  t.match(run.stdout, new RegExp(`${fresh.name} +applicable `));
  t.strictSame(await cluster.crd(stale), before);

  const denied = await cluster.ksvm(["check", "-f", fileOf(t, other.manifest(V1)), "--kubeconfig", kubeconfig]);
  t.equal(denied.code, 1, "another CRD is out of its reach");
  t.match(denied.stdout + denied.stderr, /forbidden|may not/i);
});

await t.test("the user of ksvm rbac --for check may send dry runs of CRDs, and changes none", async (t) => {
  const [kind, fresh] = [new TestKind("kept"), new TestKind("never")];
  await cluster.createCrd(kind, { storage: "v1" });
  const kubeconfig = await accountFor(cluster, "dry", [kind.name, fresh.name, "--for", "check"]);
  const api = new ApiClient(new PatientTransport(loadKubeConfig({ kubeconfig })));
  t.teardown(() => api.transport.close());
  const apply = (one: TestKind, dryRun: boolean) =>
    api.patch(CRDS, one, { type: APPLY_PATCH, body: one.manifest(V1) }, { fieldManager: "ci", force: true, dryRun });
  const saidTo = (one: TestKind): Promise<string> => apply(one, false).then(() => "", String);

  // A policy comes into force a moment after it is there: what it denies must be nothing that succeeds before.
  const unchanged = () =>
    api.patch(
      CRDS,
      kind,
      { type: APPLY_PATCH, body: { ...kind.manifest({ storage: "v1" }) } },
      { fieldManager: "ci", force: true },
    );
  await eventually(
    () =>
      unchanged().then(
        () => false,
        () => true,
      ),
    "the policy is in force",
  );
  const before = await cluster.crd(kind);
  t.match(await saidTo(kind), /this user may send dry runs of CRDs, and no writes/);
  t.match(await saidTo(fresh), /this user may send dry runs of CRDs, and no writes/);
  t.match(await api.delete(CRDS, kind).then(() => "", String), /403/);
  t.same(await cluster.crd(kind), before);
  t.equal(await cluster.api.find(CRDS, fresh), undefined);
  await apply(kind, true);
  await apply(fresh, true);

  const bound = `--service-account=${NAMESPACE}/a`;
  const printed = await cluster.ksvm(["rbac", kind.name, "--for=check"]);
  t.notMatch(printed.stdout, /Policy/, "without a user it prints the role alone");
  t.match((await cluster.ksvm(["rbac", kind.name, "--for=check", bound])).stdout, /ValidatingAdmissionPolicyBinding/);
  for (const wrong of [["--all"], [kind.name, "-o", "component"]]) {
    t.match(await cluster.ksvm(["rbac", "--for=check", ...wrong]), { code: 2, stdout: "" });
  }
});

await t.test("the role for runs is enough for plan, check -f and migrate -f of a CRD that is there", async (t) => {
  const kind = new TestKind("file");
  await cluster.createStale(kind, 3);
  const kubeconfig = await accountFor(cluster, "runs", [kind.name]);
  const path = fileOf(t, kind.manifest(V1));
  const asUser = async (...args: readonly string[]) => cluster.ksvm([...args, "--kubeconfig", kubeconfig]);
  t.match(await asUser("plan", kind.name), { code: 0, stdout: / v1alpha1,v1 +3 +migrate / });
  t.equal((await asUser("check", "-f", path)).code, 4);
  const run = await cluster.migrate(["-f", path, "--apply", "--kubeconfig", kubeconfig]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await cluster.storedAs(kind), { v1: 3 });
  t.equal((await cluster.crd(kind)).spec.versions.length, 1);
});
