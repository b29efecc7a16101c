import t, { type Test } from "tap";
import { storedVersionsOf } from "../crd.ts";
import { Interruption } from "../../src/cli/shared/interruption.ts";
import { LEASES } from "../api-client.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { balance } from "./balancer.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { alone, parallel } from "./parallel.ts";

// Two API servers that answer: which of them a run asks, and what it does where it cannot tell.

const cluster = await Cluster.start(t, "pair");
const { api, controlPlane } = cluster;
const [first = "", second = ""] = controlPlane.apiservers.map(({ url }) => url);
const BOTH = ["--apiserver-endpoints", `${first},${second}`];

/** An identity Lease, as of an API server that nobody sees. It goes with the test. */
async function addIdentityLease(t: Test, name: string): Promise<void> {
  const labels = { "apiserver.kubernetes.io/identity": "kube-apiserver" };
  const metadata = { name, namespace: "kube-system", labels };
  const renewTime = new Date().toISOString().replace("Z", "000Z");
  const spec = { holderIdentity: `${name}_1`, leaseDurationSeconds: 3_600, renewTime };
  await api.create(LEASES, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec });
  t.teardown(() => api.delete(LEASES, metadata));
}

/** Neither frozen, nor rewritten, nor pruned. */
async function assertUntouched(t: Test, kind: TestKind, objects: number): Promise<void> {
  t.same(await cluster.storedAs(kind), { v1alpha1: objects }, "nothing is rewritten");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
  await assertUnfrozen(t, cluster, kind);
}

async function assertMigrated(t: Test, kind: TestKind, objects: number): Promise<void> {
  t.same(await cluster.storedAs(kind), { v1: objects });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
}

parallel("every API server that is named is asked", async (t) => {
  const kind = new TestKind("both");
  await cluster.createStale(kind, 5);
  const run = await cluster.migrate([kind.name, ...BOTH]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, "every API server shows the storage version (2)");
  await assertMigrated(t, kind, 5);
});

/** A run that waits for an API server until it is interrupted. */
async function assertWaits(t: Test, kind: TestKind, flags: readonly string[], named: string): Promise<void> {
  const interrupt = new AbortController();
  let output = "";
  const ended = cluster.migrate([kind.name, ...flags], {
    signal: interrupt.signal,
    onStdout: (text) => (output += text),
  });
  const isOver = ended.then(({ code, stderr }) => {
    throw new Error(`the run ended with ${code}: ${output}${stderr}`);
  });
  await Promise.race([eventually(async () => output.includes(named), `the run waits, and names ${named}`), isOver]);
  isOver.catch(() => undefined);
  interrupt.abort(new Interruption("SIGINT"));
  t.equal((await ended).code, 130);
  await assertUntouched(t, kind, 5);
}

parallel("one that is named and never answers is waited for, and named", async (t) => {
  const kind = new TestKind("dead");
  await cluster.createStale(kind, 5);
  const dead = "https://127.0.0.1:1";
  await assertWaits(t, kind, ["--apiserver-endpoints", `${first},${dead}`], dead);
});

parallel("behind a load balancer new connections find all of them, and the output says so", async (t) => {
  const kind = new TestKind("balanced");
  await cluster.createStale(kind, 5);
  const balancer = await balance(t, controlPlane, [first, second]);
  const run = await cluster.migrate([kind.name, "--kubeconfig", balancer.kubeconfig]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, /\(2, sampled\)/);
  await assertMigrated(t, kind, 5);
});

alone("an identity Lease without an API server is waited for, and named", async (t) => {
  const kind = new TestKind("replaced");
  await cluster.createStale(kind, 5);
  await addIdentityLease(t, "apiserver-of-a-replaced-host");
  const balancer = await balance(t, controlPlane, [first, second]);
  await assertWaits(t, kind, ["--kubeconfig", balancer.kubeconfig], "apiserver-of-a-replaced-host");
});
