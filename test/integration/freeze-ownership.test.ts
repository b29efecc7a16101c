import { pino } from "pino";
import t from "tap";
import { SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION, WEBHOOK_NAME } from "../../src/api/names.ts";
import { type FreezeOwner, formatOwner, hasFreezeAnnotation, ownerAnnotationOf } from "../../src/api/owner.ts";
import { systemClock } from "../../src/clock.ts";
import { sweepOrphans } from "../../src/controller/orphan-sweep.ts";
import { ToldReasons } from "../../src/controller/told-reasons.ts";
import { ApiClient, type KubeObject, type NewObject } from "../../src/kube/client.ts";
import { loadKubeConfig } from "../../src/kube/connect/config.ts";
import {
  CRDS,
  LEASES,
  MERGE_PATCH,
  POLICIES,
  POLICY_BINDINGS,
  WEBHOOK_CONFIGURATIONS,
} from "../../src/kube/resources.ts";
import { Transport } from "../../src/kube/transport.ts";
import { freeze } from "../../src/freeze/freeze.ts";
import { installGuard, policyGuardOf } from "../../src/freeze/guard-install.ts";
import { holderOf, type Lease } from "../../src/api/lease.ts";
import { leaseNameOf } from "../../src/lease/lease-acquire.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { freezePolicyOf } from "../../src/freeze/freeze-policy.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { applyBase, startAsServiceAccount } from "./installation.ts";
import { parallel } from "./parallel.ts";
import { SLOW_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

const cluster = await Cluster.start(t, { users: [{ name: "helper" }] });
const { api } = cluster;
await applyBase(cluster);
// Nothing serves the webhook here: runs use policies.
await api.delete(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
const { signal } = new AbortController();
const retrier = new Retrier({ clock: systemClock, random: Math.random });
// What stands for dead runs here has no Lease.
const context = { client: api, renew: () => Promise.resolve(), retrier, signal };

function clientOf(kubeconfig: string): ApiClient {
  const transport = new Transport(loadKubeConfig({ kubeconfig }));
  t.teardown(() => transport.close());
  return new ApiClient(transport);
}
/** With exactly the rights that deploy/ gives. */
const shipped = clientOf(await startAsServiceAccount(cluster, "storage-migrator"));

/** One sweep, as the controller does it. @returns what it logged about these CRDs */
async function sweep(client: ApiClient, ...kinds: readonly TestKind[]) {
  const lines: { readonly crd?: string; readonly msg: string }[] = [];
  const logger = pino({ level: "debug" }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const names = kinds.map(({ name }) => name);
  await sweepOrphans({
    client,
    clock: systemClock,
    retrier,
    logger,
    identity: "test/sweep",
    namespace: SYSTEM_NAMESPACE,
    signal,
    // Tests run side by side.
    isBusy: (crdName) => !names.includes(crdName),
    isDead: () => false,
    assertLeading: () => undefined,
    told: new ToldReasons(),
  });
  return lines.map(({ msg }) => msg);
}

function deadOwner(kind: TestKind, namespace = SYSTEM_NAMESPACE, name = leaseNameOf(kind.name)): FreezeOwner {
  return { lease: `${namespace}/${name}`, identity: `dead-${kind.plural}`, since: "2026-01-01T00:00:00.000Z" };
}

/** What a run that was killed leaves behind: a freeze with its policy. */
async function leaveFreeze(kind: TestKind, owner: FreezeOwner): Promise<void> {
  await cluster.createCrd(kind, { storage: "v1" });
  await installGuard(context, { crdName: kind.name, guard: policyGuardOf(kind.name) }, owner);
  await freeze(context, kind.name, owner);
}

async function createLease(namespace: string, name: string, spec: Lease["spec"]): Promise<Lease> {
  const lease = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: { namespace, name }, spec };
  return api.create<Lease>(LEASES, lease);
}

/** As `kubectl annotate` does it. */
async function annotate(kind: TestKind, value: string | null): Promise<void> {
  const patch = { type: MERGE_PATCH, body: { metadata: { annotations: { [MIGRATING_ANNOTATION]: value } } } };
  await api.patch(CRDS, kind, patch, { fieldManager: "kubectl-annotate" });
}

async function isFrozen(kind: TestKind): Promise<boolean> {
  return hasFreezeAnnotation(await cluster.crd(kind));
}

parallel("a freeze that a user adds after that of a dead run is not swept, and no run takes it over", async (t) => {
  const kind = new TestKind("manual");
  await cluster.createStale(kind, 1);
  await freeze(context, kind.name, deadOwner(kind, "kube-system"));
  await annotate(kind, null);
  t.ok(ownerAnnotationOf(await cluster.crd(kind)), "the owner of the dead run is still noted");
  await annotate(kind, "true");
  await sweep(shipped, kind);
  t.ok(await isFrozen(kind), "the sweep leaves it");
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 1);
  t.match(run.stderr, /frozen by something other than ksvm.*\[ForeignFreeze\]/);
  t.ok(await isFrozen(kind), "a run leaves it");
  t.same(await cluster.storedAs(kind), { v1alpha1: 1 });
});

parallel("a policy of another run is not overwritten", async (t) => {
  for (const [word, annotations] of [
    ["theirs", { [OWNER_ANNOTATION]: formatOwner({ ...deadOwner(new TestKind("x")), lease: "team/lease" }) }],
    ["users", {}],
  ] as const) {
    const kind = new TestKind(word);
    await cluster.createStale(kind, 1);
    const { name } = policyGuardOf(kind.name);
    const { spec } = freezePolicyOf("others.example.com").policy;
    const policy = { apiVersion: "admissionregistration.k8s.io/v1", kind: "ValidatingAdmissionPolicy" };
    const created = await api.create<KubeObject>(POLICIES, { ...policy, metadata: { name, annotations }, spec });
    const run = await cluster.migrate([kind.name, "--guard", "policy"]);
    t.equal(run.code, 1);
    t.match(run.stderr, /validatingadmissionpolicies "ksvm-freeze\..*belongs to .*ksvm unfreeze.*\[ForeignFreeze\]/);
    t.same(await api.get(POLICIES, { name }), created, "it stays as it is");
    t.notOk(await isFrozen(kind));
    const unfreeze = await cluster.ksvm(["unfreeze", kind.name, "--yes"]);
    t.match(unfreeze.stdout, /^removed ValidatingAdmissionPolicy/m);
    t.equal(await api.find(POLICIES, { name }), undefined, "unfreeze removes what it says, whichever run owns it");
    t.equal((await cluster.migrate([kind.name, "--guard", "policy"])).code, 0);
  }
});

parallel("the sweep does not touch a Lease that a user has named in the annotation", async (t) => {
  const kind = new TestKind("forged");
  const victim = await createLease(SYSTEM_NAMESPACE, `victim-${kind.plural}`, {
    holderIdentity: "another-run",
    leaseDurationSeconds: 1,
    renewTime: "2020-01-01T00:00:00.000000Z",
  });
  await leaveFreeze(kind, deadOwner(kind, SYSTEM_NAMESPACE, `victim-${kind.plural}`));
  t.same(await sweep(shipped, kind), ["Left a freeze in place"]);
  t.same(await api.get(LEASES, { namespace: SYSTEM_NAMESPACE, name: `victim-${kind.plural}` }), victim);
  t.ok(await isFrozen(kind));
});

parallel("one orphan never blocks another, whatever its Lease says", async (t) => {
  // The one that takes long is listed first.
  const [slow, quick, odd] = [new TestKind("aslow"), new TestKind("quick"), new TestKind("odd")];
  await leaveFreeze(slow, deadOwner(slow));
  await createLease(SYSTEM_NAMESPACE, leaseNameOf(slow.name), {
    holderIdentity: "nobody-alive",
    leaseDurationSeconds: 2_000_000_000,
  });
  await leaveFreeze(quick, deadOwner(quick));
  await leaveFreeze(odd, deadOwner(odd, "elsewhere"));
  const sweeping = sweep(shipped, slow, odd, quick);
  while (await isFrozen(quick)) await systemClock.sleep(200);
  t.ok(await isFrozen(slow), "the others were not waited for");
  await sweeping;
  t.notOk(await isFrozen(slow), "a Lease that claims to last for years is watched for a minute");
  t.ok(await isFrozen(odd), "a run in a namespace that is not ours is left alone");
  const left = await api.get<Lease>(LEASES, { namespace: SYSTEM_NAMESPACE, name: leaseNameOf(slow.name) });
  t.match(holderOf(left), /^test\/sweep\//, "the next run has to wait for what the dead one left under way");
  const none = await api.find<Lease>(LEASES, { namespace: SYSTEM_NAMESPACE, name: leaseNameOf(quick.name) });
  t.equal(none, undefined, "one that was made for the sweep is gone");
});

parallel("the rights of deploy/ are enough to sweep what a killed command-line run left", async (t) => {
  for (const isLeaseThere of [true, false]) {
    const kind = new TestKind(isLeaseThere ? "expired" : "deleted");
    await cluster.createStale(kind, SLOW_RUN_OBJECTS);
    const run = cluster.spawnKsvm(t, ["migrate", "--settle", "1s", ...SLOW_FLAGS, kind.name]);
    await untilRewriting(cluster, kind);
    t.match(await sweep(shipped, kind), [], "a run that lives is left alone");
    t.ok(await isFrozen(kind));
    run.signal("SIGKILL");
    await run.ended;
    const lease = { namespace: "kube-system", name: leaseNameOf(kind.name) };
    if (!isLeaseThere) await api.delete(LEASES, lease);
    t.same(await sweep(shipped, kind), ["Lifted the freeze that a dead run left behind"]);
    t.notOk(await isFrozen(kind));
    t.equal(await api.find(POLICIES, policyGuardOf(kind.name)), undefined);
    t.equal(await api.find(POLICY_BINDINGS, policyGuardOf(kind.name)), undefined);
    // Its checkpoint, for the next run.
    await api.delete(LEASES, lease);
    await assertNoTraces(t, cluster, kind);
  }
});

parallel("the policy of a dead run is swept where its freeze is lifted already", async (t) => {
  for (const namespace of [SYSTEM_NAMESPACE, "kube-system"]) {
    const kind = new TestKind("halfway");
    await cluster.createCrd(kind, { storage: "v1" });
    await installGuard(context, { crdName: kind.name, guard: policyGuardOf(kind.name) }, deadOwner(kind, namespace));
    t.same(await sweep(shipped, kind), ["Removed the policy that a dead run left behind"]);
    t.equal(await api.find(POLICIES, policyGuardOf(kind.name)), undefined);
    t.equal(await api.find(POLICY_BINDINGS, policyGuardOf(kind.name)), undefined);
    t.same(await sweep(shipped, kind), []);
  }
  const kind = new TestKind("alive");
  await cluster.createCrd(kind, { storage: "v1" });
  const owner = deadOwner(kind);
  const spec = { holderIdentity: owner.identity, leaseDurationSeconds: 15, renewTime: "2026-01-01T00:00:00.000000Z" };
  const lease = await createLease(SYSTEM_NAMESPACE, leaseNameOf(kind.name), spec);
  const renewing = setInterval(() => {
    const body = { spec: { renewTime: new Date().toISOString().replace("Z", "000Z") } };
    void api.patch(LEASES, lease.metadata, { type: MERGE_PATCH, body }).catch(() => undefined);
  }, 1_000);
  t.teardown(() => clearInterval(renewing));
  await installGuard(context, { crdName: kind.name, guard: policyGuardOf(kind.name) }, owner);
  t.same(await sweep(shipped, kind), ["Left a policy in place"], "that of a run that lives stays");
  t.ok(await api.find(POLICIES, policyGuardOf(kind.name)));
});

parallel("the binding of a dead run is taken away where a user has deleted its policy", async (t) => {
  const clear: Readonly<Record<string, (kind: TestKind) => Promise<unknown>>> = {
    sweep: async (kind) => t.same(await sweep(shipped, kind), ["Removed the policy that a dead run left behind"]),
    migrate: async (kind) => {
      const run = await cluster.migrate([kind.name]);
      t.match({ code: run.code, stdout: run.stdout }, { code: 0, stdout: /nothing to do/i });
    },
    unfreeze: async (kind) => t.match((await cluster.ksvm(["unfreeze", kind.name, "--yes"])).stdout, /^removed Vali/m),
  };
  for (const [way, take] of Object.entries(clear)) {
    const kind = new TestKind(`binding${way}`);
    await cluster.createCrd(kind, { storage: "v1" });
    const guard = policyGuardOf(kind.name);
    await installGuard(context, { crdName: kind.name, guard }, deadOwner(kind, "kube-system"));
    await api.delete(POLICIES, guard);
    t.ok(await api.find(POLICY_BINDINGS, guard), "it is left alone");
    await take(kind);
    t.equal(await api.find(POLICY_BINDINGS, guard), undefined, way);
  }
});

function helperRole(kind: string, more: object): NewObject {
  return { apiVersion: "rbac.authorization.k8s.io/v1", kind, metadata: { name: "helper" }, ...more };
}

parallel("the log never says that a freeze was left after it was lifted", async (t) => {
  const rules = [
    { apiGroups: ["apiextensions.k8s.io"], resources: ["customresourcedefinitions"], verbs: ["get", "list", "patch"] },
    { apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get", "list"] },
    {
      apiGroups: ["admissionregistration.k8s.io"],
      resources: ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
      verbs: ["get"],
    },
  ];
  const rbac = { group: "rbac.authorization.k8s.io", version: "v1" };
  await api.create({ ...rbac, resource: "clusterroles" }, helperRole("ClusterRole", { rules }));
  await api.create(
    { ...rbac, resource: "clusterrolebindings" },
    helperRole("ClusterRoleBinding", {
      roleRef: { apiGroup: rbac.group, kind: "ClusterRole", name: "helper" },
      subjects: [{ kind: "User", name: "helper" }],
    }),
  );
  const kind = new TestKind("denied");
  await leaveFreeze(kind, deadOwner(kind, "kube-system"));
  t.same(await sweep(clientOf(cluster.controlPlane.kubeconfigFor("helper")), kind), [
    "Lifted the freeze that a dead run left behind",
    "Cannot remove the policy that a dead run left behind",
  ]);
  t.notOk(await isFrozen(kind));
});
