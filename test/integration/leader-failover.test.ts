import t, { type Test } from "tap";
import { type CustomResourceDefinition, storedVersionsOf } from "../../src/api/crd.ts";
import { CONTROLLER_LEASE, type StorageVersionMigration, SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { freezeOwnerOf, hasFreezeAnnotation } from "../../src/api/owner.ts";
import type { KubeObject } from "../../src/kube/client.ts";
import { CRDS, LEASES } from "../../src/kube/resources.ts";
import { watchObject } from "../../src/kube/watch.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, deleteMigration, installSystem, readMigration, untilState } from "./controller-fixture.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { freePort, type Replica, spawnController, untilReady } from "./replica.ts";
import { untilRewriting } from "./slow-run.ts";
import { WebhookService } from "./webhook-service.ts";

const cluster = await Cluster.start(t, { apiservers: 2 });
const { api, controlPlane } = cluster;
await installSystem(cluster);
const [first, second] = controlPlane.apiservers;
if (first === undefined || second === undefined) {
  throw new Error("two API servers were asked for");
}
const service = await WebhookService.start(t);

const FLAGS = Object.entries({
  trigger: "off",
  "concurrent-migrations": "3",
  "max-qps": "12",
  "page-size": "10",
  "apiserver-endpoints": `${first.url},${second.url}`,
  "proof-timeout": "60s",
  "convergence-timeout": "60s",
}).map(([flag, value]) => `--${flag}=${value}`);
/** At 12 a second: so many that a leader is still at work when the other stages are done. */
const MANY = 300;
const FEW = 60;
/** The Lease of the leader lasts for 15 s; the rest is for a busy machine. */
const TAKE_OVER_MS = 40_000;

/** A replica that talks to one of the API servers. */
async function spawn(t: Test, apiserver: 0 | 1): Promise<Replica> {
  const kubeconfig = controlPlane.kubeconfigFor("admin", apiserver);
  const listenPort = await freePort();
  const replica = await spawnController(t, { kubeconfig }, { webhookPort: service.port, listenPort, flags: FLAGS });
  service.add(replica, listenPort);
  await untilReady(replica);
  return replica;
}

/** One that leads, on the first API server, and one that waits, on the second. */
async function spawnBoth(t: Test): Promise<{ readonly leader: Replica; readonly other: Replica }> {
  const leader = await spawn(t, 0);
  await untilLeading(leader);
  return { leader, other: await spawn(t, 1) };
}

async function untilLeading(replica: Replica, timeoutMs = TAKE_OVER_MS): Promise<void> {
  await eventually(() => Promise.resolve(replica.isLeading()), `the replica leads:\n${replica.log()}`, timeoutMs);
}

async function stop(...replicas: readonly Replica[]): Promise<void> {
  for (const replica of replicas) {
    replica.kill("SIGTERM");
    t.equal(await replica.ended, 0, "SIGTERM ends it well");
  }
}

async function frozenBy(kind: TestKind): Promise<string> {
  return freezeOwnerOf(await cluster.crd(kind))?.identity.split("/")[0] ?? "";
}

async function holder(): Promise<string | undefined> {
  const ref = { namespace: SYSTEM_NAMESPACE, name: CONTROLLER_LEASE };
  return (await api.get<{ spec?: { holderIdentity?: string } }>(LEASES, ref)).spec?.holderIdentity;
}

interface Work {
  readonly kind: TestKind;
  readonly migration: StorageVersionMigration;
}

async function begin(kind: TestKind): Promise<Work> {
  return { kind, migration: await createMigration(cluster, kind) };
}

/** Migrations of the leader, each at a stage of its own. */
interface Stages {
  /** Frozen; the proof of that waits for the second API server, which is paused. */
  readonly proving: Work;
  readonly rewriting: Work;
  /** Every object is rewritten; the proof before the prune waits for the second API server. */
  readonly pruning: Work;
}

/** Has the leader do three things at once. The second API server is paused afterwards. */
async function reachStages(): Promise<Stages> {
  const [provingKind, rewritingKind, pruningKind] = [
    new TestKind("proving"),
    new TestKind("rewriting"),
    new TestKind("pruning"),
  ];
  await cluster.createStale(pruningKind, FEW);
  await cluster.createStale(provingKind, FEW);
  await cluster.createStale(rewritingKind, MANY);
  const rewriting = await begin(rewritingKind);
  const pruning = await begin(pruningKind);
  await Promise.all([untilRewriting(cluster, rewritingKind), untilRewriting(cluster, pruningKind)]);
  second?.pause();
  const proving = await begin(provingKind);
  await eventually(() => cluster.crd(provingKind).then(hasFreezeAnnotation), "the last one is frozen");
  await eventually(
    async () => (await cluster.storedAs(pruningKind))["v1"] === FEW,
    "every object is rewritten",
    40_000,
  );
  t.same(storedVersionsOf(await cluster.crd(pruningKind)), ["v1alpha1", "v1"], "nothing is pruned without a proof");
  t.same(await cluster.storedAs(provingKind), { v1alpha1: FEW }, "nothing is rewritten without a proof");
  return { proving, rewriting, pruning };
}

async function assertDone(t: Test, { kind, migration }: Work, count: number): Promise<void> {
  await untilState(cluster, migration, ["Succeeded"], 120_000);
  t.same(await cluster.storedAs(kind), { v1: count });
  t.same(await writesOf({ kind }), new Map([[2, count]]), "each object was written once, besides its creation");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertUnfrozen(t, cluster, kind);
}

/** How many objects were written how often since they were created, their creation included, as etcd counts. */
async function writesOf({ kind }: Pick<Work, "kind">): Promise<ReadonlyMap<number, number>> {
  const writes = new Map<number, number>();
  for (const { version } of await controlPlane.stored.storedObjects(GROUP, kind.plural)) {
    writes.set(version, (writes.get(version) ?? 0) + 1);
  }
  return writes;
}

/** In which revision of etcd each object was written last. */
async function revisionsOf({ kind }: Work): Promise<readonly number[]> {
  const stored = await controlPlane.stored.storedObjects(GROUP, kind.plural);
  return stored.map(({ modRevision }) => modRevision);
}

await t.test("SIGTERM hands the migration over at once, and the other replica resumes it", async (t) => {
  const { leader, other } = await spawnBoth(t);
  const kind = new TestKind("term");
  await cluster.createStale(kind, 60);
  const work = await begin(kind);
  await untilRewriting(cluster, kind);
  leader.kill("SIGTERM");
  t.equal(await leader.ended, 0, leader.log().slice(-2_000));
  await untilLeading(other);
  await assertDone(t, work, 60);
  const { counts } = (await readMigration(cluster, work.migration)).status ?? {};
  t.ok((counts?.migrated ?? 60) < 60, "the other replica did what was left, not everything");
  await stop(other);
});

await t.test("kill -9 of the leader at three stages: the other replica finishes all of them", async (t) => {
  const { leader, other } = await spawnBoth(t);
  const { proving, rewriting, pruning } = await reachStages();
  const before = await revisionsOf(pruning);
  leader.kill("SIGKILL");
  await leader.ended;
  const killedAt = performance.now();
  second.resume();
  const since = (): string => `${((performance.now() - killedAt) / 1_000).toFixed(1)} s`;
  await untilLeading(other);
  const times = [`the other one led after ${since()}`];
  await assertDone(t, pruning, FEW);
  await assertDone(t, proving, FEW);
  const finishedMs = performance.now() - killedAt;
  times.push(`finished what was about to be pruned and what was being proven after ${since()}`);
  await assertDone(t, rewriting, MANY);
  console.error(`  ${t.name}: ${times.join(", ")}, and what was being rewritten after ${since()}`);
  t.ok(finishedMs < 180_000, "the lease time and some seconds, on a slow machine too");
  t.same(await revisionsOf(pruning), before, "what was rewritten is not written again");
  const { counts } = (await readMigration(cluster, rewriting.migration)).status ?? {};
  t.ok((counts?.migrated ?? MANY) < MANY, "the other replica did what was left, not everything");
  await stop(other);
});

/** Everything that a leader writes about a migration, as it is now. */
async function footprint(work: Work) {
  const leases = await api.list<KubeObject>(LEASES, { namespace: "kube-system" });
  const { metadata, status } = await cluster.crd(work.kind);
  const migration = await readMigration(cluster, work.migration);
  return {
    crd: { resourceVersion: metadata.resourceVersion, managedFields: metadata.managedFields, status },
    migration: { resourceVersion: migration.metadata.resourceVersion, status: migration.status },
    leases: leases.filter(({ metadata: { name } }) => name?.endsWith(work.kind.name) === true),
    objects: await revisionsOf(work),
  };
}

interface Sight {
  readonly owner: string;
  readonly stored: readonly string[];
}

/** Sees who has frozen a CRD, and its storedVersions, at every change from now on. */
async function watchFreeze(kind: TestKind): Promise<() => Promise<readonly Sight[]>> {
  const abort = new AbortController();
  const seen: Sight[] = [];
  const { resourceVersion } = (await cluster.crd(kind)).metadata;
  const options = { name: kind.name, resourceVersion, signal: abort.signal };
  const watching = (async () => {
    for await (const event of watchObject<CustomResourceDefinition>(api.transport, CRDS, options)) {
      if ("object" in event) {
        const owner = freezeOwnerOf(event.object)?.identity.split("/")[0] ?? "";
        seen.push({ owner, stored: storedVersionsOf(event.object) });
      }
    }
  })();
  return async () => {
    abort.abort();
    await watching;
    return seen.filter(({ owner, stored }, index) => {
      const before = seen[index - 1];
      return before?.owner !== owner || before.stored.length !== stored.length;
    });
  };
}

await t.test("Two writers: a leader paused longer than its Lease gets nothing through any more", async (t) => {
  const { leader, other } = await spawnBoth(t);
  const { proving, rewriting, pruning } = await reachStages();
  leader.kill("SIGSTOP");
  second.resume();
  await untilLeading(other);
  await assertDone(t, pruning, FEW);
  await assertDone(t, proving, FEW);
  await eventually(async () => (await frozenBy(rewriting.kind)) === other.identity(), "the other one goes on");
  const [pruned, proven] = [await footprint(pruning), await footprint(proving)];
  const seenUntilNow = await watchFreeze(rewriting.kind);

  leader.kill("SIGCONT");
  await eventually(
    () => Promise.resolve(!leader.isLeading()),
    `it sees that it leads no more:\n${leader.log()}`,
    TAKE_OVER_MS,
  );
  const status = (await readMigration(cluster, rewriting.migration)).status;
  t.equal(status?.completionTime, undefined, "the other one was still at work then");
  t.equal(await frozenBy(rewriting.kind), other.identity());
  await assertDone(t, rewriting, MANY);
  t.same(
    await seenUntilNow(),
    [
      { owner: other.identity(), stored: ["v1"] },
      { owner: "", stored: ["v1"] },
    ],
    "the other one pruned and lifted the freeze, each once, and nobody else wrote",
  );
  t.same(await footprint(pruning), pruned, "nothing was written to what was done in between");
  t.same(await footprint(proving), proven);
  t.equal(await holder(), other.identity());

  t.equal((await leader.health("/readyz")).status, 200, "it serves the webhook on");
  await stop(other);
  await untilLeading(leader);
  await stop(leader);
});

await t.test("deleting migrations at these stages leaves no annotation", async (t) => {
  const { leader, other } = await spawnBoth(t);
  const { proving, rewriting, pruning } = await reachStages();
  const all = [proving, rewriting, pruning];
  await Promise.all(all.map(({ migration }) => deleteMigration(cluster, migration)));
  const deletedAt = performance.now();
  for (const { kind } of all) {
    const isThawed = (): Promise<boolean> => cluster.crd(kind).then((crd) => !hasFreezeAnnotation(crd));
    await eventually(isThawed, `the freeze of ${kind.name} is lifted:\n${leader.log().slice(-4_000)}`, 40_000);
  }
  t.comment(`unfrozen ${Math.round(performance.now() - deletedAt)} ms after the deletion`);
  const left = await revisionsOf(rewriting);
  second.resume();
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  t.same(await revisionsOf(rewriting), left, "nothing is written any more");
  t.ok(((await cluster.storedAs(rewriting.kind))["v1alpha1"] ?? 0) > 0, "there was work left");
  for (const { kind } of all) {
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
    await assertUnfrozen(t, cluster, kind);
  }
  await stop(other, leader);
});
