import t from "tap";
import { IN_TREE_APISERVER } from "../../bench/in-tree.ts";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { CRDS, LEASES, MERGE_PATCH, MIGRATIONS } from "../../src/kube/resources.ts";
import type { ClusterStatus } from "../../src/plan/cluster-status.ts";
import type { RunLine } from "../../src/plan/run-lines.ts";
import { systemClock } from "../../src/clock.ts";
import { LeaderElector } from "../../src/lease/leader-election.ts";
import { isAtLeast } from "../control-plane/features.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";
import { grantUser } from "./grant-user.ts";
import { leaveFreeze, leaveStorageMigrating } from "./left-behind.ts";
import { IN_TREE } from "./lost-objects.ts";
import { alone, parallel } from "./parallel.ts";
import { INTERRUPTED_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

const HAS_IN_TREE = isAtLeast(35);
const cluster = await Cluster.start(t, { ...(HAS_IN_TREE ? IN_TREE_APISERVER : {}), users: [{ name: "viewer" }] });
const { api } = cluster;
await api.create(
  { group: "", version: "v1", resource: "namespaces" },
  { apiVersion: "v1", kind: "Namespace", metadata: { name: SYSTEM_NAMESPACE } },
);

async function statusOf(...args: readonly string[]): Promise<ClusterStatus> {
  const { code, stderr, stdout } = await cluster.ksvm(["status", "-o", "json", ...args]);
  if (code !== 0) throw new Error(stderr);
  return JSON.parse(stdout) as ClusterStatus;
}

async function runOf(kind: TestKind): Promise<RunLine | undefined> {
  return (await statusOf()).runs.find(({ resource }) => resource === kind.name);
}

parallel("status shows a run from a laptop, that it ended, and that it was killed", async (t) => {
  const kind = new TestKind("laptop");
  await cluster.createStale(kind, SLOW_RUN_OBJECTS);
  t.equal(await runOf(kind), undefined, "negative control: no run yet");
  const run = cluster.spawnKsvm(t, ["migrate", "--settle", "1s", ...INTERRUPTED_FLAGS, kind.name]);
  await untilRewriting(cluster, kind, run);
  const alive = await runOf(kind);
  t.match(alive, { state: "alive", holder: /./, lease: `kube-system/ksvm-migrate.${kind.name}`, renewed: /^20/ });
  t.equal(alive?.objects, SLOW_RUN_OBJECTS);
  const written = (await cluster.storedAs(kind))["v1"] ?? 0;
  t.ok((alive?.checkpoint ?? 0) > 0 && (alive?.checkpoint ?? 0) <= written, "no more than what etcd has in v1");
  t.match((await cluster.ksvm(["status", kind.name])).stdout, /Running, last sign of life \d+s ago +\d+\/100 /);

  run.signal("SIGINT");
  t.equal((await run.ended).code, 130);
  const interrupted = await runOf(kind);
  t.match(interrupted, { state: "released" });
  t.notOk(interrupted?.holder);

  const killed = cluster.spawnKsvm(t, ["migrate", "--settle", "1s", ...INTERRUPTED_FLAGS, kind.name]);
  await eventually(async () => (await runOf(kind))?.state === "alive", "the next run took its Lease");
  killed.signal("SIGKILL");
  await killed.ended;
  await eventually(async () => (await runOf(kind))?.state === "silent", "the killed run gives no sign of life");
  t.match((await cluster.ksvm(["status", kind.name])).stdout, /no sign of life for \d+s +\d+\/100 /);

  const again = cluster.spawnKsvm(t, ["migrate", "--settle", "10m", kind.name]);
  await eventually(async () => (await runOf(kind))?.state === "alive", "the next run took its Lease over");
  again.signal("SIGINT");
  t.equal((await again.ended).code, 130);
  t.match(
    await runOf(kind),
    { holder: /./ },
    "it does not know what the killed run saw, so its Lease stays for the next one",
  );

  const last = await cluster.migrate([kind.name]);
  t.equal(last.code, 0, last.stderr);
  t.equal(await runOf(kind), undefined, "nothing is left of a run that ended");
});

parallel("status says whether a controller leads, whatever clock its machine has", async (t) => {
  t.same((await statusOf()).controller, { state: "none" });
  const elector = new LeaderElector({
    client: api,
    clock: systemClock,
    namespace: SYSTEM_NAMESPACE,
    name: CONTROLLER_LEASE,
    identity: "pod-1",
  });
  const stop = new AbortController();
  const leading = elector.run(stop.signal, (signal) => systemClock.sleep(3_600_000, signal).catch(() => undefined));
  await eventually(async () => (await statusOf()).controller.state === "alive", "the controller leads");
  t.match((await statusOf()).controller, { holder: "pod-1", lease: `${SYSTEM_NAMESPACE}/${CONTROLLER_LEASE}` });
  stop.abort(new Error("scaled down"));
  await leading;
  t.match((await statusOf()).controller, { state: "released" });
  // A replica whose clock is ahead by an hour, and which is killed after this write.
  const renewTime = new Date(Date.now() + 3_600_000).toISOString().replace("Z", "000Z");
  const spec = { holderIdentity: "pod-2", leaseDurationSeconds: 15, renewTime };
  const ref = { namespace: SYSTEM_NAMESPACE, name: CONTROLLER_LEASE };
  await api.patch(LEASES, ref, { type: MERGE_PATCH, body: { spec } });
  t.match((await statusOf()).controller, { state: "alive", holder: "pod-2" });
  await eventually(async () => (await statusOf()).controller.state === "silent", "it gives no sign of life");
  const { stdout } = await cluster.ksvm(["status"]);
  t.match(stdout, /^controller: no sign of life for \d+s from pod-2, which led last/);
});

parallel("the condition of Kubernetes' own migrator counts as a freeze", async (t) => {
  const kind = new TestKind("intree");
  await cluster.createCrd(kind, { storage: "v1" });
  const freezes = async () => (await statusOf()).freezes.filter(({ crd }) => crd === kind.name);
  t.same(await freezes(), []);
  await leaveStorageMigrating(cluster, kind);
  const condition = "StorageMigrating";
  t.match(await freezes(), [{ condition, owner: /./, since: /^20/, isStuck: true }]);
  t.match((await cluster.ksvm(["status", kind.name])).stdout, /no migration explains it, see ksvm unfreeze/);
  if (HAS_IN_TREE) {
    const resource = { group: "example.com", resource: kind.plural };
    const about = { apiVersion: "storagemigration.k8s.io/v1beta1", kind: "StorageVersionMigration" };
    await api.create(IN_TREE, { ...about, metadata: { name: kind.plural }, spec: { resource } });
    const [line] = await freezes();
    t.match(line, { condition, migration: kind.plural });
    t.notOk(line?.isStuck);
    await api.delete(IN_TREE, { name: kind.plural });
  }
  t.equal((await cluster.ksvm(["unfreeze", "-y", kind.name])).code, 0);
  t.same(await freezes(), []);
});

parallel("a user who may not read Leases gets the rest, and what is not known", async (t) => {
  const seen = [CRDS, MIGRATIONS].map(({ group, resource }) => ({
    apiGroups: [group],
    resources: [resource],
    verbs: ["list"],
  }));
  await grantUser(api, "viewer", seen);
  const kind = new TestKind("viewed");
  await cluster.createCrd(kind, { storage: "v1" });
  await leaveFreeze(cluster, kind);
  const kubeconfig = cluster.controlPlane.kubeconfigFor("viewer");
  const look = () => cluster.ksvm(["status", "--kubeconfig", kubeconfig]);
  await eventually(async () => (await look()).code === 0, "the role is in force");
  const { stdout } = await look();
  t.match(stdout, /^controller: unknown: this user may not list Leases in namespace kube-storage-migration\n/);
  t.match(stdout, /\nnot known: runs without a migration object: this user may not list Leases in kube-system, /);
  t.match(stdout, new RegExp(`\n${kind.name} +host_dead `));
  t.equal(stdout.includes("not known: migrations of Kubernetes' own migrator"), HAS_IN_TREE);
});

/** The commands of ksvm that a text advises. */
function commandsIn(text: string): readonly string[][] {
  return [...text.matchAll(/"ksvm ([^"\\]+)\\?"/g)].map(([, words = ""]) => words.split(" "));
}

for (const [mark, leave] of [
  ["annotation", leaveFreeze],
  ["condition", (on: Cluster, kind: TestKind) => leaveFreeze(on, kind).then(() => leaveStorageMigrating(on, kind))],
] as const) {
  alone(`what a denial by the ${mark} advises helps`, async (t) => {
    const kind = new TestKind("denied");
    await cluster.createCrd(kind, { storage: "v1" });
    await leave(cluster, kind);
    if (mark === "condition") {
      const annotations = { "ksvm.sigs.k8s.io/migrating": null };
      await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { metadata: { annotations } } });
    }
    const flip = { type: MERGE_PATCH, body: { spec: { versions: versionsOf({ storage: "v1alpha1" }) } } };
    let denial = "";
    const isDenied = () =>
      api.patch(CRDS, kind, flip, { dryRun: true }).then(
        () => false,
        (error: Error) => (denial = error.message).includes("StorageVersionFrozen"),
      );
    await eventually(isDenied, "a storage change is denied");
    const commands = commandsIn(denial);
    t.same(commands, [
      ["status", kind.name],
      ["unfreeze", kind.name],
    ]);
    for (const command of commands) {
      const end = await cluster.ksvm([...command, ...(command[0] === "unfreeze" ? ["-y"] : [])]);
      t.equal(end.code, 0, `${command.join(" ")}: ${end.stderr}`);
      t.match(end.stdout, kind.name);
    }
    await eventually(async () => !(await isDenied()), "the storage version can be changed");
  });
}
