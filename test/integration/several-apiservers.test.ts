import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { LEASES } from "../../src/kube/resources.ts";
import { unlessAtLeast } from "../control-plane/features.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { balance } from "./balancer.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { alone, parallel } from "./parallel.ts";
import { SLOW_RUN_OBJECTS, startSlowRun } from "./slow-run.ts";

// In the middle of an upgrade: the second one is older. For custom resources that makes no difference.
const CANNOT_EMULATE = unlessAtLeast(36, "it emulates 1.33");
const cluster = await Cluster.start(t, {
  apiservers: 2,
  overrides: [{}, CANNOT_EMULATE === false ? { emulatedVersion: "1.33" } : {}],
});
const { api, controlPlane } = cluster;
const [first, second] = controlPlane.apiservers;
if (first === undefined || second === undefined) {
  throw new Error("two API servers were asked for");
}
const BOTH = ["--apiserver-endpoints", `${first.url},${second.url}`];

/** API servers on one machine share their identity Lease, so a second one has to be put there. */
async function addIdentityLease(t: Test, name: string): Promise<void> {
  const metadata = {
    name,
    namespace: "kube-system",
    labels: { "apiserver.kubernetes.io/identity": "kube-apiserver" },
  };
  const spec = {
    holderIdentity: name,
    leaseDurationSeconds: 3_600,
    renewTime: new Date().toISOString().replace("Z", "000Z"),
  };
  await api.create(LEASES, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec });
  t.teardown(() => api.delete(LEASES, metadata));
}

parallel("migrate asks every API server that is named", async (t) => {
  const kind = new TestKind("both");
  await cluster.createStale(kind, 5);
  const run = await cluster.migrate([kind.name, ...BOTH]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, `proved the freeze on ${first.url}, ${second.url}`);
  t.match(run.stdout, `every API server shows the storage version (${first.url}, ${second.url})`);
  t.same(await cluster.storedAs(kind), { v1: 5 });
  await assertNoTraces(t, cluster, kind);
});

parallel("F22: migrate fails with the name of an API server that never answers", async (t) => {
  const kind = new TestKind("dead");
  await cluster.createStale(kind, 5);
  const run = await cluster.migrate([
    kind.name,
    "--apiserver-endpoints",
    `${first.url},https://127.0.0.1:1`,
    "--proof-timeout",
    "2s",
  ]);
  t.equal(run.code, 1);
  t.match(run.stderr, /on https:\/\/127\.0\.0\.1:1: .*\[FreezeNotProven\]/);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});

parallel(
  "F22: a built-in resource is not migrated while API servers of different versions disagree",
  async (t) => {
    const resource = "volumeattributesclasses.storage.k8s.io";
    const run = await cluster.migrate([resource, ...BOTH, "--convergence-timeout", "2s"]);
    t.equal(run.code, 1);
    t.match(run.stderr, new RegExp(`${second.url} disagrees: .*\\[NotConverged\\]`));
    t.notMatch(run.stdout, /rewritten|already up to date|100%/, "no object was touched");
    const alone = await cluster.migrate([resource, "--apiserver-endpoints", first.url]);
    t.equal(alone.code, 0, "negative control: nothing else stands in the way", { stderr: alone.stderr });
  },
  CANNOT_EMULATE,
);

alone(
  "sampled: a built-in resource is not migrated while two API servers behind one address disagree",
  async (t) => {
    const resource = "volumeattributesclasses.storage.k8s.io";
    await addIdentityLease(t, "apiserver-disagrees");
    const reasons: string[] = [];
    // One of them does not serve the resource: where it is the one that is asked for the name, the run does not begin.
    for (const urls of [
      [first.url, second.url],
      [second.url, first.url],
      [first.url, first.url, second.url],
      [first.url, first.url, first.url, second.url],
    ]) {
      const { kubeconfig } = await balance(t, controlPlane, urls);
      const run = await cluster.migrate([resource, "--kubeconfig", kubeconfig, "--convergence-timeout", "2s"]);
      t.equal(run.code, 1);
      t.match(run.stderr, /\[(?:NotConverged|ResourceNotFound)\]/);
      t.notMatch(run.stdout, /rewritten|already up to date|100%/, "no object was touched");
      reasons.push(run.stderr);
    }
    t.match(reasons.join(""), /\[NotConverged\]/);
    const balancer = await balance(t, controlPlane, [first.url]);
    const flags = ["--kubeconfig", balancer.kubeconfig, "--convergence-timeout", "2s"];
    const sole = await cluster.migrate([resource, ...flags, "--ignore-apiserver", "apiserver-disagrees"]);
    t.equal(sole.code, 0, "negative control: nothing else stands in the way", { stderr: sole.stderr });
  },
  CANNOT_EMULATE,
);

alone("F22: migrate waits for an API server that does not answer, and goes on when it does", async (t) => {
  const kind = new TestKind("paused");
  await cluster.createStale(kind, 5);
  second.pause();
  let output = "";
  const ended = cluster.migrate([kind.name, ...BOTH, "--proof-timeout", "60s"], {
    onStdout: (text) => {
      output += text;
    },
  });
  await eventually(async () => /waiting for .*no answer/.test(output), "the run waits");
  t.match(output, `waiting for ${second.url}`);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  t.same(await cluster.storedAs(kind), { v1alpha1: 5 }, "nothing is rewritten until then");
  second.resume();
  const { code, stderr, stdout } = await ended;
  t.equal(code, 0, stderr);
  t.match(stdout, /for in-flight writes in the old version/, "the silence makes it settle again");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});

alone("One by one not reachable: migrate samples the API servers, says so, and refuses where it may not", async (t) => {
  const kind = new TestKind("balanced");
  await cluster.createStale(kind, 5);
  await addIdentityLease(t, "apiserver-second");
  const balancer = await balance(t, controlPlane, [first.url, second.url]);
  const before = balancer.turns();
  const run = await cluster.migrate([kind.name, "--kubeconfig", balancer.kubeconfig]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, /\(sampled\)/);
  t.ok(balancer.turns() - before >= 40, "twenty new connections before the rewrite and twenty before the prune");
  t.same(await cluster.storedAs(kind), { v1: 5 });
  await assertNoTraces(t, cluster, kind);

  const strict = new TestKind("strict");
  await cluster.createStale(strict, 5);
  const refused = await cluster.migrate([strict.name, "--kubeconfig", balancer.kubeconfig, "--convergence", "strict"]);
  t.equal(refused.code, 1);
  t.match(refused.stderr, /--convergence=strict.*--apiserver-endpoints \[NotConverged\]/);
  t.same(await cluster.storedAs(strict), { v1alpha1: 5 });
  await assertUnfrozen(t, cluster, strict);
});

alone(
  "an API server that joins in mid-run makes the run begin again, and nothing seen before is believed",
  async (t) => {
    const kind = new TestKind("joined");
    const balancer = await balance(t, controlPlane, [first.url, second.url]);
    const run = await startSlowRun(cluster, kind, { flags: ["--kubeconfig", balancer.kubeconfig] });
    await addIdentityLease(t, "apiserver-late");
    const { code, stderr, stdout } = await run.ended;
    t.equal(code, 0, stderr);
    t.match(stdout, /starting again: .*the set of API servers changed/);
    t.notMatch(stdout, /resuming an earlier run/, "its watermark is void");
    t.match(stdout, `${SLOW_RUN_OBJECTS} already up to date`, "every object was looked at again");
    t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  },
);
