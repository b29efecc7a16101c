// Two replicas of the controller: one leads, and whatever becomes of it, the other one finishes its work, and never both lead.
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { storedVersionsOf } from "../crd.ts";
import { CONTROLLER_LEASE, type StorageVersionMigration, SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { freezeOwnerOf, hasFreezeAnnotation } from "../integration/frozen.ts";
import { type KubeObject, LEASES } from "../api-client.ts";
import { ChaosProxy } from "../chaos/chaos-proxy.ts";
import type { Disturbance } from "../chaos/disturbance.ts";
import { assertUnfrozen } from "../integration/assert-no-traces.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import {
  type Controller,
  spawnController,
  startController,
  untilLeading,
  WebhookService,
} from "../integration/controller.ts";
import { GROUP, TestKind } from "../integration/crd-fixture.ts";
import {
  createMigration,
  deleteMigration,
  installSystem,
  readMigration,
  untilState,
} from "../integration/migrations.ts";
import { untilRewriting } from "../integration/slow-run.ts";

const cluster = await Cluster.start(t, { apiservers: 2 });
const { api, controlPlane } = cluster;
await installSystem(cluster);
const [first, second] = controlPlane.apiservers;
if (first === undefined || second === undefined) throw new Error("two API servers were asked for");
const service = await WebhookService.start(t);

/** At 12 a second: so many that a leader is still at work when the other stages are done. */
const MANY = 200;
const FEW = 40;

const FLAGS = ["--concurrent-migrations=3", "--max-qps=12", `--apiserver-endpoints=${first.url},${second.url}`];

/** One that follows, and talks to the second API server. */
function startOther(t: Test): Promise<Controller> {
  const kubeconfig = controlPlane.kubeconfigFor("admin", 1);
  return startController(t, cluster, { flags: FLAGS, kubeconfig, service, until: "ready" });
}

async function holder(): Promise<string | undefined> {
  const ref = { namespace: SYSTEM_NAMESPACE, name: CONTROLLER_LEASE };
  return (await api.get<{ spec?: { holderIdentity?: string } }>(LEASES, ref)).spec?.holderIdentity;
}

async function frozenBy(kind: TestKind): Promise<string | undefined> {
  return freezeOwnerOf(await cluster.crd(kind))?.identity.split("/")[0];
}

interface Work {
  readonly kind: TestKind;
  readonly migration: StorageVersionMigration;
}

async function begin(kind: TestKind): Promise<Work> {
  return { kind, migration: await createMigration(cluster, kind) };
}

/** Has the leader do three things at once. The second API server, without which nothing is proven, is paused afterwards. */
async function reachStages(t: Test) {
  const kinds = {
    proving: new TestKind("proving"),
    rewriting: new TestKind("rewriting"),
    pruning: new TestKind("pruning"),
  };
  await Promise.all([
    cluster.createStale(kinds.pruning, FEW),
    cluster.createStale(kinds.proving, FEW),
    cluster.createStale(kinds.rewriting, MANY),
  ]);
  const rewriting = await begin(kinds.rewriting);
  const pruning = await begin(kinds.pruning);
  await Promise.all([untilRewriting(cluster, kinds.rewriting), untilRewriting(cluster, kinds.pruning)]);
  second?.pause();
  const proving = await begin(kinds.proving);
  await eventually(async () => (await cluster.storedAs(kinds.pruning))["v1"] === FEW, "every object is rewritten");
  await delay(1_000);
  t.same(storedVersionsOf(await cluster.crd(kinds.pruning)), ["v1alpha1", "v1"], "nothing is pruned without a proof");
  t.same(await cluster.storedAs(kinds.proving), { v1alpha1: FEW }, "nothing is rewritten without a proof");
  return { proving, rewriting, pruning };
}

/** How often each object was written, its creation included, and in which revision the last time, as etcd counts. */
async function writesOf({ kind }: Work) {
  const stored = await controlPlane.stored.storedObjects(GROUP, kind.plural);
  return { times: stored.map(({ version }) => version), revisions: stored.map(({ modRevision }) => modRevision) };
}

async function assertDone(t: Test, work: Work, count: number): Promise<void> {
  await untilState(cluster, work.migration, ["Succeeded"]);
  t.same(await cluster.storedAs(work.kind), { v1: count });
  t.same(new Set((await writesOf(work)).times), new Set([2]), "each object was written once after its creation");
  t.same(storedVersionsOf(await cluster.crd(work.kind)), ["v1"]);
  await assertUnfrozen(t, cluster, work.kind);
}

/** When a controller logged this, in milliseconds of the one clock that they have. */
function loggedAt(controller: Controller, message: string): number {
  const lines = controller
    .log()
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { time: number; msg: string });
  return lines.find(({ msg }) => msg.startsWith(message))?.time ?? Number.NaN;
}

await t.test(
  "a leader that is cut off leads no more before the other one does; SIGTERM hands over at once",
  async (t) => {
    let isCutOff = false;
    const disturb = (): Disturbance => (isCutOff ? { kind: "reset" } : { kind: "none" });
    const { kubeconfig } = await ChaosProxy.start(t, controlPlane, { disturb });
    const leader = await startController(t, cluster, { flags: FLAGS, service, kubeconfig });
    const other = await startOther(t);
    t.notOk(other.isLeading());
    const [cutOff, handedOver] = [new TestKind("cutoff"), new TestKind("term")];
    await Promise.all([cutOff, handedOver].map((kind) => cluster.createStale(kind, 60)));
    const first = await begin(cutOff);
    await untilRewriting(cluster, cutOff);
    isCutOff = true;
    await untilLeading(other);
    const [stopped, started] = [loggedAt(leader, "Stopped leading"), loggedAt(other, "Started leading")];
    t.ok(stopped < started, `one stopped at ${stopped}, the other one started at ${started}`);
    await assertDone(t, first, 60);
    isCutOff = false;

    const second = await begin(handedOver);
    await untilRewriting(cluster, handedOver);
    const { spec } = await api.get<{ spec: object }>(LEASES, { namespace: SYSTEM_NAMESPACE, name: CONTROLLER_LEASE });
    const time = /^\d{4}-.*\.\d{6}Z$/;
    const asOfClientGo = { leaseDurationSeconds: 15, acquireTime: time, renewTime: time, leaseTransitions: Number };
    t.match(spec, { holderIdentity: other.identity(), ...asOfClientGo });
    t.equal(await other.stop(), 0, other.log().slice(-2_000));
    await untilLeading(leader);
    await assertDone(t, second, 60);
    for (const { migration } of [first, second]) {
      const { counts } = (await readMigration(cluster, migration)).status ?? {};
      t.ok((counts?.migrated ?? 60) < 60, "the one that took over did what was left, not everything");
    }
  },
);

await t.test(
  "deleting migrations at any stage lifts their freezes, and nothing is written or pruned afterwards",
  async (t) => {
    const leader = await startController(t, cluster, { flags: FLAGS, service });
    const { proving, rewriting, pruning } = await reachStages(t);
    const all = [proving, rewriting, pruning];
    await Promise.all(all.map(({ migration }) => deleteMigration(cluster, migration)));
    for (const { kind } of all) {
      const isThawed = async (): Promise<boolean> => !hasFreezeAnnotation(await cluster.crd(kind));
      await eventually(isThawed, `the freeze of ${kind.name} is lifted`);
    }
    const left = await writesOf(rewriting);
    second.resume();
    await delay(3_000);
    t.same(await writesOf(rewriting), left, "nothing is written any more");
    t.ok(((await cluster.storedAs(rewriting.kind))["v1alpha1"] ?? 0) > 0, "there was work left");
    for (const { kind } of all) {
      t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
      await assertUnfrozen(t, cluster, kind);
    }
    await leader.stop();
  },
);

/** Everything that a leader writes about a migration, as it is now. */
async function footprint(work: Work) {
  const leases = await api.list<KubeObject>(LEASES, { namespace: "kube-system" });
  const { metadata, status } = await cluster.crd(work.kind);
  return {
    crd: { resourceVersion: metadata.resourceVersion, status },
    migration: (await readMigration(cluster, work.migration)).metadata.resourceVersion,
    leases: leases.filter(({ metadata: { name } }) => name?.endsWith(work.kind.name) === true),
    objects: (await writesOf(work)).revisions,
  };
}

await t.test("a leader that is paused for longer than its Lease gets nothing through any more", async (t) => {
  const leader = await spawnController(t, cluster, { flags: FLAGS, service });
  const other = await startOther(t);
  const { proving, rewriting, pruning } = await reachStages(t);
  const before = (await writesOf(pruning)).revisions;
  leader.signal("SIGSTOP");
  second.resume();
  await untilLeading(other);
  await assertDone(t, pruning, FEW);
  await assertDone(t, proving, FEW);
  t.same((await writesOf(pruning)).revisions, before, "what was rewritten is not written again");
  await eventually(async () => (await frozenBy(rewriting.kind)) === other.identity(), "the other one goes on");
  const [pruned, proven] = [await footprint(pruning), await footprint(proving)];

  leader.signal("SIGCONT");
  await eventually(async () => !leader.isLeading(), "it sees that it leads no more");
  t.equal(
    (await readMigration(cluster, rewriting.migration)).status?.completionTime,
    undefined,
    "it was not over by then",
  );
  t.equal(await frozenBy(rewriting.kind), other.identity());
  await assertDone(t, rewriting, MANY);
  t.same(await footprint(pruning), pruned, "nothing was written to what was done in between");
  t.same(await footprint(proving), proven);
  t.equal(await holder(), other.identity());
  await other.stop();
  await untilLeading(leader);
  t.equal(await leader.stop(), 0);
});
