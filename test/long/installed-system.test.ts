import t, { type Test } from "tap";
import { storageVersionHashOf, storedVersionsOf } from "../crd.ts";
import {
  CONTROLLER_LEASE,
  isFinished,
  stateOf,
  type StorageState,
  type StorageVersionMigration,
} from "../../src/api/migration.ts";
import { type KubeObject, LEASES, MIGRATIONS, STORAGE_STATES, resourcesOf } from "../api-client.ts";
import type { Lease } from "../lease.ts";
import { assertUnfrozen } from "../integration/assert-no-traces.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { GROUP, TestKind } from "../integration/crd-fixture.ts";
import { applyBase, NAMESPACE } from "../integration/installation.ts";
import { ONLY_CUSTOM } from "../processes/replica.ts";
import { ambush } from "../chaos/ambush.ts";
import { doHarm } from "../chaos/harm.ts";
import { Load } from "../chaos/load.ts";
import { describeListBreach } from "../chaos/persisted-list.ts";
import { between, IS_LONG, type Random, randomFrom } from "../chaos/random.ts";
import { ReplicaSet } from "../chaos/replica-set.ts";
import { Road } from "../chaos/road.ts";
import { assertSound } from "../chaos/scenario.ts";
import { SoundnessChecker } from "../chaos/soundness-checker.ts";
import { type FlipOutcome, StorageFlipper } from "../chaos/storage-flipper.ts";
import { TEST_SEED } from "../seed.ts";

const seed = TEST_SEED;
const KINDS = IS_LONG ? 5 : 2;
const OBJECTS = 40;
const CHAOS_MS = IS_LONG ? 330_000 : 25_000;
/** After the disturbance: a leader's Lease, a dead watch, and what migrations wait between two tries. */
const SETTLED_MS = 240_000;
const VERSIONS = ["v1alpha1", "v1"] as const;

// A host name each, and so an identity Lease each. Without compaction the checkers see every revision.
const cluster = await Cluster.start(t, {
  apiservers: 2,
  overrides: [{ hostname: "ksvm-chaos-a" }, { hostname: "ksvm-chaos-b" }],
  compactionInterval: "0",
});
const { api, controlPlane } = cluster;
await applyBase(cluster);

const FLAGS = [
  ...ONLY_CUSTOM,
  "--concurrent-migrations=3",
  "--trigger-interval=10s",
  // A freeze of some seconds.
  "--max-qps=50",
  // Longer than a write that a busy machine holds up; the load of this test knows no slow webhook.
  "--unsafe-settle=4s",
];

/** The storageVersionHash of each version, once discovery shows the one of the storage version as it is computed. */
async function hashesOf(kind: TestKind): Promise<ReadonlyMap<string, string>> {
  const hashOf = (version: string): string => storageVersionHashOf(GROUP, version, kind.kind);
  const [storage] = VERSIONS;
  await eventually(async () => {
    const entries = await resourcesOf(api, { group: GROUP, version: storage });
    return entries.find(({ name }) => name === kind.plural)?.storageVersionHash === hashOf(storage);
  }, `discovery shows ${storage} of ${kind.name}`);
  return new Map(VERSIONS.map((version) => [version, hashOf(version)]));
}

/** A CRD that others write to while its storage version goes there and back. */
interface Victim {
  readonly kind: TestKind;
  readonly load: Load;
  readonly checker: SoundnessChecker;
  readonly pauseMs: (outcome: FlipOutcome) => number;
}

/** There and back in a moment, or after a time in which a migration may end; who is denied asks until the freeze is lifted. */
function pauseBy(random: Random): (outcome: FlipOutcome) => number {
  return (outcome) => {
    const isSoon = random() < (outcome === "accepted" ? 0.5 : 0.9);
    return isSoon ? between(random, 5, 300) : between(random, 3_000, IS_LONG ? 40_000 : 15_000);
  };
}

async function startVictim(t: Test, index: number): Promise<Victim> {
  const kind = new TestKind(`chaos${index}`);
  await cluster.createCrd(kind, { storage: "v1alpha1", statusSubresource: true });
  const hashes = await hashesOf(kind);
  const initial = kind.objects(OBJECTS, "v1alpha1");
  await cluster.createObjects(kind.resource("v1alpha1"), initial);
  const checker = await SoundnessChecker.start(t, () => controlPlane.stored, kind, { hashes, snapshotEveryMs: 500 });
  const existing = initial.map(({ metadata }) => metadata.name ?? "");
  const own = seed + 100 * index;
  const load = Load.start(t, controlPlane, kind, {
    seed: own,
    existing,
    workers: 2,
    pauseMs: 300,
    apiservers: [0, 1],
  });
  return { kind, load, checker, pauseMs: pauseBy(randomFrom(own + 50)) };
}

/** Counts migrations that succeeded. The trigger deletes those that prove nothing any more. */
function countFinished(t: Test): ReadonlySet<string> {
  const finished = new Set<string>();
  const timer = setInterval(() => {
    void api.list<StorageVersionMigration>(MIGRATIONS).then(
      (all) => all.filter((one) => stateOf(one) === "Succeeded").forEach(({ metadata }) => finished.add(metadata.uid)),
      () => undefined,
    );
  }, 500);
  t.teardown(() => clearInterval(timer));
  return finished;
}

/** As docs/trigger.md has users do whose migrations failed for a cause that is gone. */
async function deleteFailed(): Promise<number> {
  const failed = (await api.list<StorageVersionMigration>(MIGRATIONS)).filter((one) => stateOf(one) === "Failed");
  for (const { metadata } of failed) await api.delete(MIGRATIONS, metadata);
  return failed.length;
}

/** Whether nothing is left to do for a CRD, and its StorageState says so; or whether that is in vain. */
async function isSettled({ kind, checker }: Victim): Promise<boolean> {
  if (checker.hasBreach) return true;
  const crd = await cluster.crd(kind);
  const { status } = (await api.find<StorageState>(STORAGE_STATES, { name: kind.name })) ?? {};
  const { persistedStorageVersionHashes: persisted = [], currentStorageVersionHash: current } = status ?? {};
  const migrations = await api.list<StorageVersionMigration>(MIGRATIONS);
  const isIdle = migrations.filter(({ spec }) => spec.resource.resource === kind.plural).every(isFinished);
  const isPruned = storedVersionsOf(crd).length === 1;
  return isIdle && isPruned && persisted.length === 1 && persisted[0] === current;
}

await t.test(
  "two replicas behind a balancer that does harm: every StorageState is true, at every revision",
  async (t) => {
    const road = await Road.build(t, cluster, seed + 1);
    const finished = countFinished(t);
    const victims: Victim[] = [];
    for (let index = 0; index < KINDS; index++) victims.push(await startVictim(t, index));
    const set = await ReplicaSet.start(t, cluster, { kubeconfig: road.kubeconfig, replicas: 2, flags: FLAGS });
    await set.untilReady(60_000);

    // From the first look on, with nothing to disturb it: what is denied from here on was known before.
    for (const victim of victims) await eventually(() => isSettled(victim), "the first look is over", SETTLED_MS, 500);
    const kinds = victims.map(({ kind }) => kind);
    await cluster.setVersions({ name: kinds[0]?.name ?? "" }, { storage: "v1", statusSubresource: true });
    const caught = await ambush({ cluster, set, kinds, deadline: performance.now() + SETTLED_MS });
    t.ok(caught, "a leader was stopped in the moment in which a migration had succeeded");
    if (caught !== undefined) await set.kill(caught);
    // What the next leader makes of that migration is for the ambushed CRD to show: its storage version stays for now.
    const flippers = victims.slice(1).map(({ kind, pauseMs }) => StorageFlipper.start({ cluster, kind }, { pauseMs }));
    const harm = await doHarm({
      cluster,
      kinds,
      set,
      road,
      seed: seed + 10,
      forMs: CHAOS_MS,
    });
    const flips = { attempts: 0, denied: 0, accepted: 0, others: 0 };
    const others = await Promise.all(victims.map(({ load }) => load.stop()));
    road.restart();
    for (const flipper of flippers) {
      const { accepted, attempts, denied, others: rest } = await flipper.stop();
      flips.attempts += attempts;
      flips.accepted += accepted;
      flips.denied += denied;
      flips.others += rest.length;
    }
    for (const { kind } of victims) {
      // One that is frozen for v1alpha1 denies that until its migration has ended.
      const setToV1 = (): Promise<boolean> =>
        cluster.setVersions(kind, { storage: "v1", statusSubresource: true }).then(
          () => true,
          () => false,
        );
      await eventually(setToV1, `v1 is the storage version of ${kind.name}`, SETTLED_MS, 500);
    }
    const failed = await deleteFailed();
    await set.untilReady(SETTLED_MS);
    for (const victim of victims) {
      await eventually(() => isSettled(victim), `${victim.kind.name} is settled`, SETTLED_MS, 500).catch(
        async (error: unknown) => {
          t.comment((await set.leader())?.log().slice(-8_000));
          throw error;
        },
      );
    }

    const totals = { revisions: 0, compared: 0, completions: 0, prunes: 0, lags: 0, longestLagMs: 0 };
    for (const { kind, load, checker } of victims) {
      const stored = await controlPlane.stored.storedObjects(GROUP, kind.plural);
      t.same([...new Set(stored.map(({ apiVersion }) => apiVersion))], [`${GROUP}/v1`], `${kind.plural} are all in v1`);
      t.same(load.lossesIn(stored), [], "no write of others is lost");
      await assertUnfrozen(t, cluster, kind);
      const report = await checker.stop();
      assertSound(t, report);
      t.equal(report.gaps, 0, "no revision was missed");
      t.same(report.list.breaches.map(describeListBreach), [], "the StorageState is true at every revision");
      t.equal(report.list.isBehind, false, "and up to date in the end");
      totals.revisions += report.revisions;
      totals.compared += report.list.compared;
      totals.completions += report.list.completions;
      totals.prunes += report.prunes;
      totals.lags += report.list.lags;
      totals.longestLagMs = Math.max(totals.longestLagMs, Math.round(report.list.longestLagMs));
    }
    const states = await api.list<StorageState>(STORAGE_STATES);
    t.same(
      states.map(({ metadata }) => metadata.name).toSorted(),
      victims.map(({ kind }) => kind.name).toSorted(),
      "every StorageState was followed",
    );
    const leases = await api.list<Lease & KubeObject>(LEASES, { namespace: NAMESPACE });
    const living = set.replicas.map((replica) => replica.identity());
    t.same(
      leases.filter(({ spec }) =>
        set.deadIdentities.some((dead) => dead !== "" && spec?.holderIdentity?.startsWith(dead) === true),
      ),
      [],
      "no Lease is held by a dead replica",
    );
    const ofLeader = leases.find(({ metadata }) => metadata.name === CONTROLLER_LEASE);
    t.ok(living.includes(ofLeader?.spec?.holderIdentity ?? ""), "the leader lives");
    t.same(set.crashes, [], "no replica ended by itself");
    t.ok(totals.compared > 0 && flips.accepted > 0, "there was something to compare");
    console.error(
      `  ${t.name}: ${JSON.stringify({ ...totals, migrations: finished.size, failed, ...harm })}; ` +
        `flips: ${JSON.stringify(flips)}; answers: ${JSON.stringify(road.answers)}; others: ${JSON.stringify(others)}`,
    );
  },
);
