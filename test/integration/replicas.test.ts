import t from "tap";
import { type CustomResourceDefinition, storedVersionsOf } from "../../src/api/crd.ts";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { OWNER_ANNOTATION } from "../../src/api/names.ts";
import { freezeOwnerOf } from "../../src/api/owner.ts";
import { CRDS, LEASES } from "../../src/kube/resources.ts";
import { watchObject } from "../../src/kube/watch.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, readMigration, spawnReplica, untilState } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { untilRewriting } from "./slow-run.ts";
import { installWebhook } from "./webhook-guard.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
await installSystem(cluster);
const webhook = await installWebhook(cluster);
t.teardown(() => webhook.uninstall());

/** A hundred objects take some fifteen seconds. */
const SLOW = { maxQps: 7, pageSize: 10 };

async function holder(): Promise<string> {
  const ref = { namespace: SYSTEM_NAMESPACE, name: CONTROLLER_LEASE };
  const lease = await api.find<{ spec?: { holderIdentity?: string } }>(LEASES, ref);
  return lease?.spec?.holderIdentity ?? "";
}

async function frozenBy(kind: TestKind): Promise<string> {
  return freezeOwnerOf(await cluster.crd(kind))?.identity.split("/")[0] ?? "";
}

await t.test("SIGTERM hands the migration over at once, and the other replica resumes it", async (t) => {
  const kind = new TestKind("term");
  await cluster.createStale(kind, 60);
  const a = spawnReplica(t, cluster, "a", SLOW);
  await eventually(async () => (await holder()) === "a", "a leads");
  const b = spawnReplica(t, cluster, "b", SLOW);
  const created = await createMigration(cluster, kind);
  await untilRewriting(cluster, kind);
  a.child.kill("SIGTERM");
  t.equal(await a.ended, 0);
  await eventually(async () => (await frozenBy(kind)) === "b", "b goes on");
  await untilState(cluster, created, ["Succeeded"], 60_000);
  t.same(await cluster.storedAs(kind), { v1: 60 });
  await assertUnfrozen(t, cluster, kind);
  b.child.kill("SIGTERM");
  await b.ended;
});

await t.test("kill -9 of the leader: the other replica finishes within the lease time plus seconds", async (t) => {
  const kind = new TestKind("kill");
  await cluster.createStale(kind, 100);
  const a = spawnReplica(t, cluster, "a", SLOW);
  await eventually(async () => (await holder()) === "a", "a leads");
  const b = spawnReplica(t, cluster, "b");
  const created = await createMigration(cluster, kind);
  await untilRewriting(cluster, kind);
  a.child.kill("SIGKILL");
  await a.ended;
  const killedAt = performance.now();
  const ended = await untilState(cluster, created, ["Succeeded"], 60_000);
  const seconds = (performance.now() - killedAt) / 1_000;
  console.error(`  finished ${seconds.toFixed(1)} s after kill -9 of the leader`);
  t.ok(seconds < 40, "not much longer than the 15 s of the Lease");
  t.same(await cluster.storedAs(kind), { v1: 100 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.ok((ended.status?.counts?.migrated ?? 100) < 100, "no object was written twice");
  await assertUnfrozen(t, cluster, kind);
  b.child.kill("SIGTERM");
  await b.ended;
});

await t.test("Two writers: a leader that was paused longer than its Lease gets nothing through any more", async (t) => {
  const kind = new TestKind("pause");
  await cluster.createStale(kind, 120);
  const a = spawnReplica(t, cluster, "a", SLOW);
  await eventually(async () => (await holder()) === "a", "a leads");
  const b = spawnReplica(t, cluster, "b", SLOW);
  const created = await createMigration(cluster, kind);
  await untilRewriting(cluster, kind);
  a.child.kill("SIGSTOP");
  await eventually(async () => (await frozenBy(kind)) === "b", "b has taken over", 60_000);

  // Every version of the CRD from here on: who froze it, and what storedVersions says.
  const stop = new AbortController();
  const seen: { readonly owner: string; readonly stored: readonly string[] }[] = [];
  const { resourceVersion } = (await cluster.crd(kind)).metadata;
  const watch = { name: kind.name, resourceVersion, signal: stop.signal };
  const watching = (async () => {
    for await (const event of watchObject<CustomResourceDefinition>(api.transport, CRDS, watch)) {
      if ("object" in event) {
        const owner = freezeOwnerOf(event.object)?.identity.split("/")[0] ?? "";
        seen.push({ owner, stored: storedVersionsOf(event.object) });
      }
    }
  })();
  a.child.kill("SIGCONT");
  await eventually(async () => a.output().includes("lost"), "a sees that it leads no more");
  t.equal((await readMigration(cluster, created)).status?.completionTime, undefined, "b was still at work then");
  t.match((await readMigration(cluster, created)).metadata.annotations?.[OWNER_ANNOTATION], /"identity":"b"/);
  t.equal(await frozenBy(kind), "b");
  await untilState(cluster, created, ["Succeeded"], 60_000);
  await assertUnfrozen(t, cluster, kind);
  stop.abort();
  await watching;
  t.same(
    seen.filter(({ owner, stored }, index) => {
      const before = seen[index - 1];
      return before?.owner !== owner || before.stored.length !== stored.length;
    }),
    [
      { owner: "b", stored: ["v1"] },
      { owner: "", stored: ["v1"] },
    ],
    "b pruned and b lifted the freeze, each once, and nobody else wrote",
  );
  t.same(await cluster.storedAs(kind), { v1: 120 });
  t.match((await readMigration(cluster, created)).metadata.annotations?.[OWNER_ANNOTATION], /"identity":"b"/);
  t.equal(await holder(), "b");
  b.child.kill("SIGTERM");
  await b.ended;
  a.child.kill("SIGTERM");
  await a.ended;
});
