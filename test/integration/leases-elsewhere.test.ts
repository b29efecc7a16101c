import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { EtcdReader } from "../control-plane/etcd-reader.ts";
import { startControlPlane } from "../control-plane/control-plane.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { balanceRequests } from "./http-balancer.ts";
import { INTERRUPTED_FLAGS, SLOW_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

// Leases are in an etcd of their own, so that the Lease of a run does not show that the other one was restored.
const leases = await startControlPlane({ apiservers: 0 });
t.teardown(() => leases.stop());
const cluster = await Cluster.start(t, {
  extraArgs: [`--etcd-servers-overrides=coordination.k8s.io/leases#${leases.etcd.url}`],
});
const { controlPlane } = cluster;
const data = join(controlPlane.dir, "etcd-data");
const backup = join(controlPlane.dir, "backup");

/** A copy of what etcd has on disk at one moment, as a snapshot of the disk. */
function backUp(): void {
  controlPlane.etcd.pause();
  cpSync(data, backup, { recursive: true });
  controlPlane.etcd.resume();
}

/**
 * As administrators do it: with the API server down.
 * @param besides before the API server starts. @default nothing
 */
async function restore(besides?: () => Promise<void>): Promise<void> {
  const [apiserver] = controlPlane.apiservers;
  await apiserver?.kill();
  await controlPlane.etcd.kill();
  rmSync(data, { recursive: true });
  cpSync(backup, data, { recursive: true });
  await controlPlane.etcd.restart();
  await besides?.();
  await apiserver?.restart();
}

/** What `--bump-revision` is for: revisions go on beyond all that were given before. */
async function raiseRevisions(beyond: number): Promise<void> {
  const etcd = new EtcdReader(controlPlane.etcd.url);
  while ((await etcd.currentRevision()) <= beyond) {
    await etcd.writeKey("/raised", "");
  }
}

await t.test(
  "a run does not prune where etcd was restored after it had rewritten, and Leases are in another etcd",
  async (t) => {
    const kind = new TestKind("elsewhere");
    let hasBackup = false;
    let restored: Promise<void> | undefined;
    const areAllRewritten = async (): Promise<boolean> => (await cluster.storedAs(kind))["v1"] === SLOW_RUN_OBJECTS;
    // A run proves its freeze once more before the prune: then everything is rewritten.
    const kubeconfig = await balanceRequests(t, controlPlane, () => 0, {
      instead: async (method, path) => {
        const isProof = hasBackup && method === "PATCH" && path.includes("dryRun=All");
        if (isProof && restored === undefined && (await areAllRewritten())) {
          restored ??= restore();
        }
        await restored;
        return undefined;
      },
    });
    await cluster.createStale(kind, SLOW_RUN_OBJECTS);
    const ended = cluster.migrate([kind.name, ...SLOW_FLAGS, "--kubeconfig", kubeconfig]);
    await untilRewriting(cluster, kind, { ended });
    backUp();
    hasBackup = true;
    const { code, stdout, stderr } = await ended;
    t.not(restored, undefined, "negative control: etcd was restored");
    t.equal(code, 0, stderr);
    t.match(stdout, /as after etcd was restored from a backup/);
    t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS }, "what was undone is rewritten again");
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertUnfrozen(t, cluster, kind);
  },
);

await t.test(
  "a run does not prune where etcd was restored while it rewrote, with higher revisions, and Leases are in another etcd",
  async (t) => {
    const kind = new TestKind("raised");
    await cluster.createStale(kind, SLOW_RUN_OBJECTS);
    const ended = cluster.migrate([kind.name, ...INTERRUPTED_FLAGS]);
    await untilRewriting(cluster, kind, { ended });
    rmSync(backup, { recursive: true, force: true });
    backUp();
    const rewritten = async (): Promise<number> => (await cluster.storedAs(kind))["v1"] ?? 0;
    const inBackup = await rewritten();
    // Within these pages the run looks at the objects.
    await eventually(async () => (await rewritten()) > inBackup + 40, "further pages are rewritten", 60_000);
    const before = await new EtcdReader(controlPlane.etcd.url).currentRevision();
    await restore(async () => {
      t.ok((await rewritten()) < inBackup + 10, "negative control: etcd was restored");
      await raiseRevisions(before + 100);
    });
    const { code, stdout, stderr } = await ended;
    t.equal(code, 0, stderr);
    t.match(stdout, /as after etcd was restored from a backup: "[^"]+" is at resourceVersion/);
    t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS }, "what was undone is rewritten again");
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertUnfrozen(t, cluster, kind);
  },
);

await t.test(
  "a run does not go on where another one stood whose objects a restore took back, and Leases are in another etcd",
  async (t) => {
    const kind = new TestKind("left");
    await cluster.createStale(kind, SLOW_RUN_OBJECTS);
    const run = cluster.spawnKsvm(t, ["migrate", "--settle", "1s", ...INTERRUPTED_FLAGS, kind.name]);
    await untilRewriting(cluster, kind, run);
    rmSync(backup, { recursive: true, force: true });
    backUp();
    const rewritten = async (): Promise<number> => (await cluster.storedAs(kind))["v1"] ?? 0;
    const inBackup = await rewritten();
    await eventually(async () => (await rewritten()) > inBackup + 30, "further pages are rewritten", 60_000);
    run.signal("SIGINT");
    t.equal((await run.ended).code, 130);
    const done = await rewritten();
    await restore();
    t.ok((await rewritten()) < done, "negative control: etcd was restored");

    const again = await cluster.migrate([kind.name]);
    t.equal(again.code, 0, again.stderr);
    // That API servers restart voids the checkpoint by itself where they register their APIServices again: a plan of the simulation has them not do so.
    t.notMatch(again.stdout, /resuming an earlier run/);
    t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertUnfrozen(t, cluster, kind);
  },
);
