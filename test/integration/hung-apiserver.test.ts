import type { Lease } from "../../src/api/lease.ts";
import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { loadKubeConfig } from "../../src/kube/connect/config.ts";
import { LEASES, MERGE_PATCH } from "../../src/kube/resources.ts";
import { Transport } from "../../src/kube/transport.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { balance } from "./balancer.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, readMigration, startController, untilState } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { balanceRequests } from "./http-balancer.ts";

// Host names of their own, and so an identity Lease each.
const cluster = await Cluster.start(t, {
  apiservers: 2,
  overrides: [{ hostname: "control-plane-1" }, { hostname: "control-plane-2" }],
});
const { api, controlPlane } = cluster;
const [first, second] = controlPlane.apiservers;
if (first === undefined || second === undefined) {
  throw new Error("two API servers were asked for");
}
const BOTH = [first.url, second.url];
t.teardown(() => second.resume());

async function identityLeases(): Promise<readonly Lease[]> {
  const labelSelector = "apiserver.kubernetes.io/identity=kube-apiserver";
  return api.list<Lease>(LEASES, { namespace: "kube-system", labelSelector });
}
await eventually(async () => (await identityLeases()).length === 2, "each API server has an identity Lease");
const lease = (await identityLeases()).find(
  ({ metadata }) => metadata.labels?.["kubernetes.io/hostname"] === "control-plane-2",
);
if (lease === undefined) {
  throw new Error("the Lease of the second API server was waited for");
}
const identity = lease.metadata.name;

/** Runs ksvm through a load balancer that takes the second API server out while it hangs. */
async function startWhileHung(t: Test, word: string, flags: readonly string[] = []) {
  const kind = new TestKind(word);
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(5, "v1alpha1"));
  second?.pause();
  t.teardown(() => second?.resume());
  await cluster.setVersions(kind, { storage: "v1" });
  const balancer = await balance(t, controlPlane, BOTH.slice(0, 1));
  let output = "";
  const ended = cluster.migrate([kind.name, "--kubeconfig", balancer.kubeconfig, ...flags], {
    onStdout: (text) => {
      output += text;
    },
  });
  return { kind, balancer, ended, output: () => output };
}

await t.test("a hung API server with a live identity Lease is waited for, without a freeze, and named", async (t) => {
  const { kind, balancer, ended, output } = await startWhileHung(t, "hung");
  t.teardown(() => balancer.use(BOTH));
  await eventually(async () => output().includes("ApiServerMissing"), "the run waits");
  t.match(output(), `${identity} of host control-plane-2`);
  t.match(output(), "1 of them answer", "the other one was told apart");
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
  t.same(await cluster.storedAs(kind), { v1alpha1: 5 }, "nothing is rewritten");
  await assertUnfrozen(t, cluster, kind);
  second.resume();
  balancer.use(BOTH);
  const run = await ended;
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, /\(sampled\)/);
  t.same(await cluster.storedAs(kind), { v1: 5 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});

await t.test("--ignore-apiserver goes on without the API server of an identity Lease", async (t) => {
  const { kind, ended } = await startWhileHung(t, "ignored", ["--ignore-apiserver", identity]);
  const run = await ended;
  t.equal(run.code, 0, run.stderr);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});

await t.test(
  "--ignore-apiserver of an API server that lives: it is waited for, however short the run is",
  async (t) => {
    const kind = new TestKind("alive");
    await cluster.createStale(kind, 1);
    const balancer = await balance(t, controlPlane, BOTH.slice(0, 1));
    const flags = ["--kubeconfig", balancer.kubeconfig, "--ignore-apiserver", identity];
    let output = "";
    const ended = cluster.migrate([kind.name, ...flags], { onStdout: (text) => (output += text) });
    await eventually(async () => output.includes("ApiServerMissing"), "the run waits");
    t.match(output, `${identity}: it was to be ignored, and has renewed its identity Lease since`);
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
    balancer.use(BOTH);
    const run = await ended;
    t.equal(run.code, 0, run.stderr);
  },
);

await t.test("HTTP load balancer: a connection that several API servers answer on is none of them", async (t) => {
  let turn = 0;
  const looks = new Map<number, number>();
  // The first two looks of each connection are answered by one API server, as by chance; all else by each in turn.
  const kubeconfig = await balanceRequests(t, controlPlane, (path, connection) => {
    const look = path === "/metrics" ? (looks.get(connection) ?? 0) + 1 : 0;
    looks.set(connection, look);
    return look === 1 || look === 2 ? connection % 2 : turn++ % 2;
  });
  const kind = new TestKind("http");
  await cluster.createStale(kind, 5);
  const run = await cluster.migrate([kind.name, "--kubeconfig", kubeconfig]);
  t.equal(run.code, 1, run.stdout);
  t.match(run.stderr, /several answer on one connection, as behind an HTTP load balancer.*\[ApiServerMissing\]/);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
  await assertUnfrozen(t, cluster, kind);
  const named = await cluster.migrate([kind.name, "--apiserver-endpoints", BOTH.join(",")]);
  t.equal(named.code, 0, named.stderr);
});

await t.test("a replaced control plane host is waited for until its identity Lease has expired", async (t) => {
  const name = "apiserver-of-a-replaced-host";
  const metadata = { name, namespace: "kube-system", labels: { "apiserver.kubernetes.io/identity": "kube-apiserver" } };
  // In an hour's Lease all but a few seconds have passed.
  const renewTime = new Date(Date.now() - 3_592_000).toISOString().replace("Z", "000Z");
  const spec = { holderIdentity: name, leaseDurationSeconds: 3_600, renewTime };
  await api.create(LEASES, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec });
  t.teardown(() => api.delete(LEASES, metadata).catch(() => undefined));
  const kind = new TestKind("replaced");
  await cluster.createStale(kind, 5);
  const balancer = await balance(t, controlPlane, BOTH);
  const run = await cluster.migrate([kind.name, "--kubeconfig", balancer.kubeconfig]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, /ApiServerMissing.*not renewed of late: apiserver-of-a-replaced-host for 35\d\d s/);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});

await t.test(
  "an API server whose clock is two hours behind is waited for as long as it renews its Lease",
  async (t) => {
    const name = "apiserver-with-a-slow-clock";
    const metadata = {
      name,
      namespace: "kube-system",
      labels: { "apiserver.kubernetes.io/identity": "kube-apiserver" },
    };
    const specNow = () => {
      const renewTime = new Date(Date.now() - 7_200_000).toISOString().replace("Z", "000Z");
      return { holderIdentity: name, leaseDurationSeconds: 3_600, renewTime };
    };
    await api.create(LEASES, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec: specNow() });
    t.teardown(() => api.delete(LEASES, metadata).catch(() => undefined));
    // It stands for an API server: the clock of a real one is that of this machine.
    const renewals = setInterval(() => {
      api.patch(LEASES, metadata, { type: MERGE_PATCH, body: { spec: specNow() } }).catch(() => undefined);
    }, 10_000);
    t.teardown(() => clearInterval(renewals));
    const kind = new TestKind("slowclock");
    await cluster.createStale(kind, 5);
    const balancer = await balance(t, controlPlane, BOTH);
    let output = "";
    const ended = cluster.migrate([kind.name, "--kubeconfig", balancer.kubeconfig], {
      onStdout: (text) => (output += text),
    });
    await eventually(async () => output.includes("ApiServerMissing"), "the run waits");
    t.match(output, /apiserver-with-a-slow-clock.*seems to have expired; looking for \d+ s whether it is renewed/);
    t.match(output, "3 identity Leases live");
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
    clearInterval(renewals);
    await api.delete(LEASES, metadata);
    const run = await ended;
    t.equal(run.code, 0, run.stderr);
    t.same(await cluster.storedAs(kind), { v1: 5 });
  },
);

await t.test("a migration waits for a hung API server with reason ApiServerMissing, and goes on", async (t) => {
  await installSystem(cluster);
  const balancer = await balance(t, controlPlane, BOTH.slice(0, 1));
  const kind = new TestKind("controlled");
  await cluster.createStale(kind, 5);
  second.pause();
  t.teardown(() => second.resume());
  const transport = new Transport(loadKubeConfig({ kubeconfig: balancer.kubeconfig }));
  t.teardown(() => transport.close());
  startController(t, cluster, { guard: "policy", client: new ApiClient(transport) });
  const created = await createMigration(cluster, kind);
  const waiting = await untilState(cluster, created, ["Waiting"], 120_000);
  const condition = waiting.status?.conditions?.find(({ type }) => type === "Waiting");
  t.match(condition, { status: "True", reason: "ApiServerMissing", message: identity });
  await assertUnfrozen(t, cluster, kind);
  const next = new TestKind("next");
  await cluster.createCrd(next, { storage: "v1" });
  const other = await createMigration(cluster, next);
  await untilState(cluster, other, ["Succeeded"]);
  t.match((await readMigration(cluster, created)).status, { conditions: [{ type: "Waiting", status: "True" }] });
  second.resume();
  balancer.use(BOTH);
  await untilState(cluster, created, ["Succeeded"], 150_000);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});
