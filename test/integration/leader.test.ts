// Two replicas of the controller: one leads. While it stands still, the other one finishes its work; and never both lead.
import t, { type Test } from "tap";
import { storedVersionsOf } from "../crd.ts";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { freezeOwnerOf } from "./frozen.ts";
import { type KubeObject, LEASES } from "../api-client.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { spawnController, startController, untilLeading, WebhookService } from "./controller.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { createMigration, installSystem, readMigration, untilState } from "./migrations.ts";
import { untilRewriting } from "./slow-run.ts";

const cluster = await Cluster.start(t);
const { api, controlPlane } = cluster;
await installSystem(cluster);
const service = await WebhookService.start(t);

/** At 8 a second: the other one is in the midst of the many when the paused leader goes on, and done with the few. */
const [MANY, FEW] = [200, 60];
const FLAGS = ["--concurrent-migrations=2", "--max-qps=8"];

async function holder(): Promise<string | undefined> {
  const ref = { namespace: SYSTEM_NAMESPACE, name: CONTROLLER_LEASE };
  return (await api.get<{ spec?: { holderIdentity?: string } }>(LEASES, ref)).spec?.holderIdentity;
}

async function frozenBy(kind: TestKind): Promise<string | undefined> {
  return freezeOwnerOf(await cluster.crd(kind))?.identity.split("/")[0];
}

/** Both begin at the same time. */
async function begin(counts: readonly [TestKind, number][]) {
  await Promise.all(counts.map(([kind, count]) => cluster.createStale(kind, count)));
  const begun = counts.map(async ([kind, count]) => ({ kind, count, migration: await createMigration(cluster, kind) }));
  return Promise.all(begun);
}

type Work = Awaited<ReturnType<typeof begin>>[number];

async function assertDone(t: Test, { kind, count, migration }: Work): Promise<void> {
  await untilState(cluster, migration, ["Succeeded"]);
  t.same(await cluster.storedAs(kind), { v1: count });
  const stored = await controlPlane.stored.storedObjects(GROUP, kind.plural);
  const times = new Set(stored.map(({ version }) => version));
  t.same(times, new Set([2]), "each object was written once after its creation");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertUnfrozen(t, cluster, kind);
}

/** Everything that a leader writes about a migration, as it is now. */
async function footprint({ kind, migration }: Work) {
  const leases = await api.list<KubeObject>(LEASES, { namespace: SYSTEM_NAMESPACE });
  const stored = await controlPlane.stored.storedObjects(GROUP, kind.plural);
  return {
    crd: (await cluster.crd(kind)).metadata.resourceVersion,
    migration: (await readMigration(cluster, migration)).metadata.resourceVersion,
    leases: leases.filter(({ metadata: { name } }) => name?.endsWith(kind.name) === true),
    objects: stored.map(({ modRevision }) => modRevision),
  };
}

const root = t;

await t.test("a leader that is paused for longer than its Lease gets nothing through any more", async (t) => {
  const leader = await spawnController(root, cluster, { flags: FLAGS, service });
  const other = await startController(root, cluster, { flags: FLAGS, service, until: "ready" });
  t.notOk(other.isLeading(), "only one leads");
  const [many, few] = (await begin([
    [new TestKind("many"), MANY],
    [new TestKind("few"), FEW],
  ])) as [Work, Work];
  await Promise.all([many, few].map(({ kind }) => untilRewriting(cluster, kind)));
  leader.signal("SIGSTOP");
  t.ok(((await cluster.storedAs(few.kind))["v1alpha1"] ?? 0) > 0, "both are in the middle");
  await untilLeading(other);
  await assertDone(t, few);
  await eventually(async () => (await frozenBy(many.kind)) === other.identity(), "the other one goes on");
  const done = await footprint(few);

  leader.signal("SIGCONT");
  await eventually(async () => !leader.isLeading(), "it sees that it leads no more");
  const { status } = await readMigration(cluster, many.migration);
  t.equal(status?.completionTime, undefined, "the other one was at work by then");
  t.equal(await frozenBy(many.kind), other.identity());
  await assertDone(t, many);
  t.same(await footprint(few), done, "nothing was written to what was done in between");
  t.equal(await holder(), other.identity());

  t.equal(await other.stop(), 0, "SIGTERM hands over at once");
  await untilLeading(leader);
  t.equal(await leader.stop(), 0);
});
