// What `ksvm status` shows of runs, freezes and migrations, and how `ksvm migrate` follows a controller.
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { Interruption } from "../../src/cli/shared/interruption.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { CRDS, LEASES, MERGE_PATCH, MIGRATIONS } from "../api-client.ts";
import type { ClusterStatus } from "../../src/inventory/status.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { type Controller, SLOWLY, startController } from "./controller.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";
import { grantUser } from "./grant-user.ts";
import { leaveFreeze } from "./left-behind.ts";
import { createMigration, deleteMigration, installSystem, migrationsOf, patchStatus } from "./migrations.ts";
import { alone, parallel } from "./parallel.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";
import { INTERRUPTED_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

const IN_TREE = { group: "storagemigration.k8s.io", version: "v1", resource: "storageversionmigrations" };
const cluster = await Cluster.start(t);
const { api } = cluster;

async function statusOf(...args: readonly string[]): Promise<ClusterStatus> {
  const { code, stderr, stdout } = await cluster.ksvm(["status", "-o", "json", ...args]);
  if (code !== 0) throw new Error(stderr);
  return JSON.parse(stdout) as ClusterStatus;
}

async function staleKind(word: string, count: number): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createStale(kind, count);
  return kind;
}

alone("status shows that nothing is installed", async (t) => {
  t.match(await cluster.ksvm(["status"]), {
    code: 0,
    stdout: "controller: none: there is no Lease ksvm-controller\n\nno migrations\n\nno CRD is frozen\n",
    stderr: "",
  });
  await installSystem(cluster);
});

parallel("status shows a run from a laptop, that it was interrupted, and that it was killed", async (t) => {
  const kind = await staleKind("laptop", SLOW_RUN_OBJECTS);
  const runOf = async () => (await statusOf()).runs.find(({ resource }) => resource === kind.name);
  t.equal(await runOf(), undefined, "negative control: no run yet");
  const ctrlC = new AbortController();
  const ended = cluster.migrate([...INTERRUPTED_FLAGS, kind.name], { signal: ctrlC.signal });
  await untilRewriting(cluster, kind, { ended });
  const lease = `kube-system/ksvm-migrate.${kind.name}`;
  t.match(await runOf(), { state: "alive", holder: /./, lease, renewed: /^20/ });
  t.match((await cluster.ksvm(["status", kind.name])).stdout, /Running, last sign of life \d+s ago /);
  const frozen = (await statusOf()).freezes.find(({ crd }) => crd === kind.name);
  t.match(frozen, { owner: /./, lease, since: /^20.*Z$/ });
  ctrlC.abort(new Interruption("SIGINT"));
  t.equal((await ended).code, 130);
  t.match(await runOf(), { state: "released", holder: undefined });

  const args = ["migrate", "--unsafe-settle", "50ms", ...INTERRUPTED_FLAGS, kind.name];
  const killed = cluster.spawnKsvm(t, args);
  await eventually(async () => (await runOf())?.state === "alive", "the next run took its Lease");
  await killed.kill();
  await eventually(async () => (await runOf())?.state === "silent", "the killed run gives no sign of life");
  t.match((await cluster.ksvm(["status", kind.name])).stdout, /no sign of life for \d+s/);
  t.equal((await cluster.migrate([kind.name])).code, 0);
  t.equal(await runOf(), undefined, "nothing is left of a run that ended");
  t.match(await cluster.ksvm(["status", kind.name]), {
    code: 1,
    stdout: "",
    stderr: /^error: .*\[ResourceNotFound\]\n$/,
  });
});

parallel("status shows migrations of ours and of Kubernetes' own migrator", async (t) => {
  const kind = new TestKind("both");
  const failed = await createMigration(cluster, kind);
  const message = "why";
  await patchStatus(cluster, failed, {
    conditions: [{ type: "Failed", status: "True", reason: "FreezeLifted", message }],
  });
  const running = await createMigration(cluster, kind);
  await patchStatus(cluster, running, {
    conditions: [{ type: "Running", status: "True" }],
    progress: "20/50",
    counts: { migrated: 19, skipped: 0, failed: 1, remaining: 30 },
  });
  await api.create(IN_TREE, {
    apiVersion: "storagemigration.k8s.io/v1",
    kind: "StorageVersionMigration",
    metadata: { name: kind.plural },
    spec: { resource: { group: "example.com", resource: kind.plural } },
  });
  t.match((await statusOf(kind.name)).migrations, [
    { name: running.metadata.name, controller: "ksvm", state: "Running", progress: "20/50", counts: { failed: 1 } },
    { name: kind.plural, controller: "in-tree", state: "Pending", resource: kind.name },
    { name: failed.metadata.name, controller: "ksvm", state: "Failed", message: "FreezeLifted: why" },
  ]);
  const shown = await cluster.ksvm(["status", running.metadata.name]);
  t.match(shown, { code: 0, stdout: /ksvm +Running +20\/50 +1 +\d+s/ });
  await Promise.all([failed, running].map((one) => deleteMigration(cluster, one)));
});

parallel("status -w shows changes until it is interrupted", async (t) => {
  const created = await createMigration(cluster, new TestKind("watched"));
  const { name } = created.metadata;
  await patchStatus(cluster, created, { conditions: [{ type: "Running", status: "True" }] });
  const interruption = new AbortController();
  let shown = "";
  const watching = cluster.ksvm(["status", "-w", name], {
    signal: interruption.signal,
    onStdout: (text) => (shown += text),
  });
  await eventually(async () => shown.includes("Running"), "the table is shown");
  await patchStatus(cluster, created, { progress: "5/10" });
  await eventually(async () => shown.includes(`${name}: Running 5/10\n`), "the progress is shown");
  await deleteMigration(cluster, created);
  await eventually(async () => shown.includes(`${name}: deleted\n`), "the deletion is shown");
  interruption.abort(new Error("Ctrl-C"));
  t.match(await watching, { code: 130, stderr: "" });
});

parallel(
  "status shows freezes of others; a user who may not read Leases gets the rest, and what is not known",
  async (t) => {
    const [foreign, left] = [new TestKind("foreign"), new TestKind("left")];
    await Promise.all([foreign, left].map((kind) => cluster.createCrd(kind, { storage: "v1" })));
    const annotations = { [MIGRATING]: "" };
    await api.patch(CRDS, foreign, { type: MERGE_PATCH, body: { metadata: { annotations } } });
    await leaveFreeze(cluster, left);
    const { freezes } = await statusOf();
    t.same(
      freezes.find(({ crd }) => crd === foreign.name),
      { crd: foreign.name },
    );
    const seen = [CRDS, MIGRATIONS].map(({ group, resource }) => ({
      apiGroups: [group],
      resources: [resource],
      verbs: ["list"],
    }));
    await grantUser(api, "viewer", seen);
    const kubeconfig = cluster.controlPlane.kubeconfigFor("viewer");
    let stdout = "";
    await eventually(async () => {
      const end = await cluster.ksvm(["status", "--kubeconfig", kubeconfig]);
      stdout = end.stdout;
      return end.code === 0;
    }, "the role is in force");
    t.match(stdout, /^controller: unknown: this user may not list Leases in namespace kube-storage-migration\n/);
    t.match(stdout, /\nnot known: runs: this user may not list Leases in namespace kube-system/);
    t.match(stdout, /not known: migrations of Kubernetes' own migrator/);
    t.match(stdout, new RegExp(`\n${left.name} +host_dead `));
  },
);

/** The commands of ksvm that a text advises. */
function commandsIn(text: string): readonly string[][] {
  return [...text.matchAll(/"ksvm ([^"\\]+)\\?"/g)].map(([, words = ""]) => words.split(" "));
}

parallel("what a denial advises helps", async (t) => {
  const kind = new TestKind("denied");
  await cluster.createCrd(kind, { storage: "v1" });
  await leaveFreeze(cluster, kind);
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

alone("ksvm migrate works from here where no controller runs, though the CRDs are installed", async (t) => {
  const kind = await staleKind("early", 3);
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stderr);
  t.same(await migrationsOf(cluster, kind.name), []);
});

let controller: Controller;

alone("status says whether a controller leads", async (t) => {
  const first = await startController(t, cluster);
  t.match((await statusOf()).controller, { state: "alive", holder: first.identity() });
  await first.stop();
  t.match((await statusOf()).controller, { state: "released" });
  // A replica that is killed after this write, and one whose clock is ahead by an hour.
  const renewAt = (time: number) => {
    const renewTime = new Date(time).toISOString().replace("Z", "000Z");
    const spec = { holderIdentity: "pod-2", leaseDurationSeconds: 3, renewTime };
    const ref = { namespace: SYSTEM_NAMESPACE, name: CONTROLLER_LEASE };
    return api.patch(LEASES, ref, { type: MERGE_PATCH, body: { spec } });
  };
  await renewAt(Date.now() + 3_600_000);
  t.match((await statusOf()).controller, { state: "unknown", holder: "pod-2" });
  await renewAt(Date.now() - 60_000);
  t.match((await statusOf()).controller, { state: "silent", holder: "pod-2" });
  t.match((await cluster.ksvm(["status"])).stdout, /^controller: no sign of life for \d+s from pod-2, which led last/);
});

// From here on a controller works for all tests.
alone("a controller leads", async () => {
  controller = await startController(t, cluster, { flags: [...SLOWLY, "--concurrent-migrations=8"] });
});

/** The value of a sample of /metrics, such as `ksvm_leader`. */
async function sample(name: string): Promise<number> {
  const { text } = await controller.health("/metrics");
  const line = text.split("\n").find((one) => one.startsWith(`${name} `)) ?? "";
  return Number(line.slice(name.length + 1) || Number.NaN);
}

parallel("ksvm migrate has the controller migrate, and shows its progress; so do /metrics and status", async (t) => {
  const kind = await staleKind("follow", 100);
  const following = cluster.ksvm(["migrate", kind.name, "-o", "json"]);
  await untilRewriting(cluster, kind);
  t.ok((await sample(`ksvm_objects_total{resource="${kind.name}",outcome="migrated"}`)) > 0);
  t.ok((await sample(`ksvm_objects_remaining{resource="${kind.name}"}`)) > 0);
  t.ok((await sample(`ksvm_freeze_start_timestamp_seconds{resource="${kind.name}"}`)) > 0);
  const shown = async () => (await statusOf(kind.name)).migrations[0];
  await eventually(async () => (await shown())?.counts !== undefined, "status shows counts");
  t.match(await shown(), { controller: "ksvm", state: "Running", progress: /^\d+\/100$/ });
  const { code, stdout, stderr } = await following;
  t.equal(code, 0, stderr);
  const lines = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { type: string; message?: string });
  t.match(lines[0], { type: "note", message: /created migrations\/follow.*-/ });
  t.ok(lines.some(({ type }) => type === "progress"));
  t.match(lines.at(-1), { type: "result", outcome: "migrated", counts: { migrated: 100 } });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.ok(Number.isNaN(await sample(`ksvm_objects_remaining{resource="${kind.name}"}`)), "it goes when the run ends");
  t.match(await cluster.ksvm(["migrate", kind.name]), { code: 0, stdout: /nothing to do/ });
  t.match(await cluster.ksvm(["migrate", "--force", kind.name]), { code: 0, stdout: /100 already up to date/ });
});

parallel(
  "Ctrl-C ends the following, and the migration goes on; --standalone does without the controller",
  async (t) => {
    const [kind, own] = await Promise.all([staleKind("ctrlc", 60), staleKind("own", 1)]);
    const ctrlC = new AbortController();
    const run = cluster.ksvm(["migrate", kind.name], { signal: ctrlC.signal });
    await untilRewriting(cluster, kind);
    ctrlC.abort(new Interruption("SIGINT"));
    t.match(await run, { code: 130, stderr: /migrations\/ctrlc.* continues in the cluster.*\[Interrupted\]/ });
    const isDone = async (): Promise<boolean> => storedVersionsOf(await cluster.crd(kind)).length === 1;
    await eventually(isDone, "the migration ended");
    t.equal((await cluster.migrate([own.name, "--standalone"])).code, 0);
    t.same(await migrationsOf(cluster, own.name), []);
  },
);

parallel(
  "ksvm migrate ends with 3 where an object was rejected, with 1 where all of it failed, and says why",
  async (t) => {
    const [kind, lifted] = await Promise.all([staleKind("reject", 10), staleKind("lifted", 100)]);
    await rejectUpdatesOf(cluster, kind, "w3");
    const { code, stdout, stderr } = await cluster.ksvm(["migrate", kind.name]);
    t.equal(code, 3, stderr);
    t.match(stdout, /9 rewritten, 1 failed; nothing was pruned/);
    t.match(stderr, /default\/w3: .*this one stays as it is/);
    const failures = [{ namespace: "default", name: "w3", reason: /this one stays as it is/ }];
    t.match((await statusOf(kind.name)).migrations[0], {
      state: "Failed",
      counts: { migrated: 9, failed: 1 },
      failures,
    });
    t.equal(await sample(`ksvm_objects_total{resource="${kind.name}",outcome="failed"}`), 1);
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    await assertUnfrozen(t, cluster, kind);

    const run = cluster.ksvm(["migrate", lifted.name]);
    await untilRewriting(cluster, lifted);
    t.equal((await cluster.ksvm(["unfreeze", lifted.name, "--yes"])).code, 0);
    t.match(await run, { code: 1, stderr: /\[FreezeLifted\]/ });
    t.match((await statusOf(lifted.name)).migrations[0], { state: "Failed", message: /^FreezeLifted: / });
    t.match(await cluster.ksvm(["migrate", "nobodies.example.com"]), { code: 1, stderr: /\[ResourceNotFound\]/ });
  },
);
