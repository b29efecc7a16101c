import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { CHECKPOINT_KEY_ANNOTATION } from "../../src/api/names.ts";
import { LEASES } from "../../src/kube/resources.ts";
import { leaseNameOf } from "../../src/lease/lease-acquire.ts";
import { DEFAULT_LEASE_NAMESPACE } from "../../src/lease/run-lease-ref.ts";
import type { Checkpoint } from "../../src/migrator/rewrite/checkpoint.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { checkpointOf, writeAsTheRun, writeCheckpoint } from "./forged-checkpoint.ts";
import { INTERRUPTED_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;

/** Runs until pages were done, and kills it. */
async function killed(t: Test, kind: TestKind): Promise<void> {
  const run = cluster.spawnKsvm(t, ["migrate", "--settle", "1s", ...INTERRUPTED_FLAGS, kind.name]);
  await untilRewriting(cluster, kind, run);
  run.signal("SIGKILL");
  await run.ended;
}

/** By which every object was written since the run began: each is left out. */
function leavingOutAll(checkpoint: Checkpoint): Checkpoint {
  const { continueToken: _token, progress: _progress, ...whole } = checkpoint;
  return { ...whole, watermark: "1" };
}

async function keyOn(kind: TestKind): Promise<string | undefined> {
  return (await cluster.crd(kind)).metadata.annotations?.[CHECKPOINT_KEY_ANNOTATION];
}

const left = new TestKind("left");

await t.test("a run resumes what it finds signed, after kill -9 and after Ctrl-C", async (t) => {
  await cluster.createStale(left, SLOW_RUN_OBJECTS);
  await killed(t, left);
  const key = await keyOn(left);
  t.ok(key, "the key is on the CRD");
  const second = cluster.spawnKsvm(t, ["migrate", "--settle", "1s", ...INTERRUPTED_FLAGS, left.name]);
  const before = (await cluster.storedAs(left))["v1"] ?? 0;
  await untilFurther(before);
  second.signal("SIGINT");
  const interrupted = await second.ended;
  t.equal(interrupted.code, 130, interrupted.stderr);
  t.match(interrupted.stdout, /resuming an earlier run/);
  t.ok(await keyOn(left), "it stays where something is left to resume,");
  t.not(await keyOn(left), key, "and each run has its own");
  const third = await cluster.migrate([left.name]);
  t.equal(third.code, 0, third.stderr);
  t.match(third.stdout, /resuming an earlier run/);
  t.same(await cluster.storedAs(left), { v1: SLOW_RUN_OBJECTS });
  t.equal(await keyOn(left), undefined, "it goes with the freeze where nothing is left");
  await assertNoTraces(t, cluster, left);

  async function untilFurther(than: number): Promise<void> {
    while (((await cluster.storedAs(left))["v1"] ?? 0) < than + 25)
      await new Promise((resolve) => setTimeout(resolve, 200));
  }
});

await t.test(
  "a run does not believe a checkpoint that another client wrote into the Lease of a run that was killed",
  async (t) => {
    const kind = new TestKind("killedforged");
    await cluster.createStale(kind, SLOW_RUN_OBJECTS);
    await killed(t, kind);
    await writeCheckpoint(cluster, kind, leavingOutAll(await checkpointOf(cluster, kind)));
    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 0, run.stderr);
    t.notMatch(run.stdout, /resuming/);
    t.match(
      run.stdout,
      /the checkpoint in the Lease is not used: nothing shows that the last run on this CRD wrote it/,
    );
    t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS }, "etcd has every object in the storage version");
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  },
);

await t.test("a run does not believe a checkpoint that another client wrote where no run had ever been", async (t) => {
  const [kind, seen, control] = [new TestKind("firstforged"), new TestKind("seen"), new TestKind("control")];
  for (const one of [kind, seen, control]) await cluster.createStale(one, 40);
  // All that is in a checkpoint can be read in the cluster. Here it is taken from that of another CRD.
  const run = cluster.spawnKsvm(t, ["migrate", "--settle", "1s", ...INTERRUPTED_FLAGS, seen.name]);
  await untilRewriting(cluster, seen, run);
  run.signal("SIGKILL");
  await run.ended;
  const forged = async (one: TestKind): Promise<Checkpoint> => {
    const { metadata } = await cluster.crd(one);
    const lease = { namespace: DEFAULT_LEASE_NAMESPACE, name: leaseNameOf(one.name) };
    await api.create(LEASES, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: lease });
    const like = leavingOutAll(await checkpointOf(cluster, seen));
    return { ...like, crdUid: metadata.uid, generation: metadata.generation ?? 0 };
  };
  await writeCheckpoint(cluster, kind, await forged(kind));
  const ended = await cluster.migrate([kind.name]);
  t.equal(ended.code, 0, ended.stderr);
  t.notMatch(ended.stdout, /resuming/);
  t.same(await cluster.storedAs(kind), { v1: 40 });
  await assertNoTraces(t, cluster, kind);

  await writeAsTheRun(cluster, control, await forged(control));
  const deceived = await cluster.migrate([control.name]);
  t.match(
    deceived.stdout,
    /resuming an earlier run at resourceVersion 1/,
    "negative control: with a key on the CRD it is",
  );
  t.same(await cluster.storedAs(control), { v1alpha1: 40 }, "believed, and leaves every object out");
  t.same(storedVersionsOf(await cluster.crd(control)), ["v1"]);
});
