// The installed controller: what it does with a StorageVersionMigration, and what a user sees of that.
import t from "tap";
import { specKeyOf, storedVersionsOf } from "../crd.ts";
import { type StorageVersionMigration, stateOf } from "../../src/api/migration.ts";
import { hasFreezeAnnotation } from "./frozen.ts";
import { messageOf } from "../../src/errors.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { SLOWLY, startController } from "./controller.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { createMigration, eventReasons, installSystem, patchStatus, readMigration, untilState } from "./migrations.ts";
import { alone, parallel } from "./parallel.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";
import { assertKept, assertLostOncePruned, assertMigrated } from "./assert-migrated.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";
import { untilRewriting } from "./slow-run.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
await installSystem(cluster);
const CONFIG_MAPS = { group: "", version: "v1", resource: "configmaps" };

async function staleKind(word: string, count = 3): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createStale(kind, count);
  return kind;
}

function condition({ status }: StorageVersionMigration, type: string) {
  return status?.conditions?.find((one) => one.type === type);
}

alone("after a restart: what ran goes on first, what ended never runs again", async (t) => {
  const [older, ran, ended] = await Promise.all(["older", "ran", "ended"].map((word) => staleKind(word)));
  if (!older || !ran || !ended) throw new Error("three were created");
  const done = await createMigration(cluster, ended);
  await patchStatus(cluster, done, { conditions: [{ type: "Succeeded", status: "True" }] });
  const first = await createMigration(cluster, older);
  const second = await createMigration(cluster, ran);
  await patchStatus(cluster, second, { conditions: [{ type: "Running", status: "True" }] });
  const controller = await startController(t, cluster, { flags: ["--concurrent-migrations=1"] });
  const [ofOlder, ofRan] = [
    await untilState(cluster, first, ["Succeeded"]),
    await untilState(cluster, second, ["Succeeded"]),
  ];
  t.ok(Number(ofRan.metadata.resourceVersion) < Number(ofOlder.metadata.resourceVersion));
  for (const kind of [older, ran]) await assertMigrated(t, cluster, kind, 3);
  t.same(await cluster.storedAs(ended), { v1alpha1: 3 });
  await assertKept(t, cluster, ended);
  t.equal(await controller.stop(), 0);
});

alone("a migration whose webhook is down says so, gives up its place in the queue, and has a turn again", async (t) => {
  const controller = await startController(t, cluster, { flags: ["--concurrent-migrations=1", "--max-idle=2s"] });
  const webhook = await serveConversion(t);
  const stuck = new TestKind("stuck");
  const [quick] = await Promise.all([
    staleKind("quick"),
    cluster.createStale(stuck, 3, { conversion: conversionBy(webhook) }),
  ]);
  webhook.setDown(true);
  const waiting = await createMigration(cluster, stuck);
  await eventually(
    async () =>
      ((await readMigration(cluster, waiting)).status?.conditions ?? []).some(
        ({ reason }) => reason === "WaitingForWebhook",
      ),
    "it says what it waits for",
  );
  await untilState(cluster, await createMigration(cluster, quick), ["Succeeded"]);
  const shows = async (): Promise<boolean> =>
    /stuck.* WaitingForWebhook: .*conversion webhook/.test((await cluster.ksvm(["status"])).stdout);
  await eventually(shows, "status shows it, but while an attempt is under way");
  t.match(controller.log(), /"phase":"Waiting","msg":"An attempt to migrate ended with an error"/);
  t.notOk(["Succeeded", "Failed"].includes(stateOf(await readMigration(cluster, waiting))), "it is not over");
  await assertUnfrozen(t, cluster, stuck);
  t.same(storedVersionsOf(await cluster.crd(stuck)), ["v1alpha1", "v1"]);
  webhook.setDown(false);
  await untilState(cluster, waiting, ["Succeeded"]);
  await assertMigrated(t, cluster, stuck, 3);
  await controller.stop();
});

alone("--manage-stored-versions=false only rewrites, and lifts what it froze before", async (t) => {
  const [kind, frozen] = await Promise.all([staleKind("rewritten"), staleKind("frozen", 100)]);
  const slow = await startController(t, cluster, { flags: SLOWLY });
  const interrupted = await createMigration(cluster, frozen);
  await eventually(async () => hasFreezeAnnotation(await cluster.crd(frozen)), "it is frozen");
  await slow.stop();
  await assertUnfrozen(t, cluster, frozen);
  const off = await startController(t, cluster, { flags: ["--manage-stored-versions=false"] });
  const created = await createMigration(cluster, kind);
  await untilState(cluster, created, ["Succeeded"]);
  t.same(await cluster.storedAs(kind), { v1: 3 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing was pruned");
  t.notOk((await eventReasons(cluster, created)).includes("Frozen"));
  await untilState(cluster, interrupted, ["Succeeded"]);
  await off.stop();
});

// From here on one controller works for all tests.
alone("the controller serves", async () => {
  await startController(t, cluster, { flags: [...SLOWLY, "--concurrent-migrations=8"] });
});

parallel("a StorageVersionMigration takes a CRD through its whole life", async (t) => {
  const kind = await staleKind("life", 40);
  const created = await createMigration(cluster, kind);
  const ended = await untilState(cluster, created, ["Succeeded"]);
  await assertMigrated(t, cluster, kind, 40);
  await assertUnfrozen(t, cluster, kind);
  t.match(ended.status, {
    progress: "40/40",
    counts: { migrated: 40, skipped: 0, failed: 0, remaining: 0 },
    startTime: /^\d{4}-.*Z$/,
    completionTime: /^\d{4}-.*Z$/,
    crd: specKeyOf((await cluster.crd(kind)).metadata),
    observedGeneration: ended.metadata.generation,
  });
  t.match(condition(ended, "Running"), { status: "False", lastUpdateTime: /Z$/ });
  t.equal(ended.spec.continueToken, undefined);
  const REASONS = "Converged,Frozen,Migrated,Pruned,Unfrozen";
  const areThere = async () => (await eventReasons(cluster, created)).toSorted().join() === REASONS;
  await eventually(areThere, "the Events are there");

  const again = await untilState(cluster, await createMigration(cluster, kind), ["Succeeded"]);
  t.equal(condition(again, "Succeeded")?.reason, "NothingToDo");
});

parallel("what has no CRD is rewritten without a freeze, what cannot be migrated fails and says why", async (t) => {
  const created = await createMigration(cluster, CONFIG_MAPS);
  const { status } = await untilState(cluster, created, ["Succeeded"]);
  t.ok((status?.counts?.skipped ?? 0) > 0);
  const reasons = await eventReasons(cluster, created);
  t.notOk(reasons.includes("Frozen") || reasons.includes("Pruned"));
  for (const [group, resource, reason] of [
    [GROUP, "nobodies", "ResourceNotFound"],
    ["authentication.k8s.io", "tokenreviews", "ResourceNotMigratable"],
  ] as const) {
    const failed = await untilState(cluster, await createMigration(cluster, { group, version: "v1", resource }), [
      "Failed",
    ]);
    t.equal(condition(failed, "Failed")?.reason, reason);
    t.equal(condition(failed, "Stalled")?.status, "True", "kstatus calls it failed");
  }
});

parallel("F19: a migration shows how far it is; a second one of the resource waits for it", async (t) => {
  const kind = await staleKind("shown", 100);
  const first = await createMigration(cluster, kind);
  await untilRewriting(cluster, kind);
  const second = await createMigration(cluster, kind);
  await api.create(kind.resource("v1"), kind.object("late", "v1"));
  const { startTime } = (await readMigration(cluster, first)).status ?? {};
  t.match(await cluster.setVersions(kind, { storage: "v1alpha1" }).then(() => "", messageOf), /StorageVersionFrozen/);
  const seen = new Set<number>();
  let token: string | undefined;
  await eventually(async () => {
    const { startTime: secondStart } = (await readMigration(cluster, second)).status ?? {};
    const { status, spec } = await readMigration(cluster, first);
    seen.add(status?.counts?.migrated ?? 0);
    token ??= spec.continueToken;
    if (status?.completionTime === undefined) t.notOk(secondStart, "the second one waits");
    return status?.completionTime !== undefined;
  }, "the migration has ended");
  t.ok(seen.size >= 3, `saw ${[...seen].join(", ")}`);
  t.ok(token, "spec.continueToken shows the page");
  const ended = await untilState(cluster, first, ["Succeeded"]);
  t.equal(ended.status?.startTime, startTime);
  t.equal(ended.status?.counts?.migrated, 100, "what was written since the list is left alone");
  await assertMigrated(t, cluster, kind, 101);
  t.equal(condition(await untilState(cluster, second, ["Succeeded"]), "Succeeded")?.reason, "NothingToDo");
});

parallel(
  "a CRD that changes in mid-run makes the migration begin again, and the old version can go then",
  async (t) => {
    const kind = await staleKind("changes", 80);
    const created = await createMigration(cluster, kind);
    await untilRewriting(cluster, kind);
    const specSchema = { type: "object", description: "changed", "x-kubernetes-preserve-unknown-fields": true };
    await cluster.setVersions(kind, { storage: "v1", specSchema });
    await untilState(cluster, created, ["Succeeded"]);
    await assertMigrated(t, cluster, kind, 80);
    t.equal((await cluster.setVersions(kind, { versions: ["v1"], storage: "v1" })).spec.versions.length, 1);
  },
);

parallel("an object that cannot be written fails the migration by name, and nothing is pruned", async (t) => {
  const kind = await staleKind("refused");
  const allow = await rejectUpdatesOf(cluster, kind, "w1");
  const { status } = await untilState(cluster, await createMigration(cluster, kind), ["Failed"]);
  t.match(
    status?.conditions?.find(({ type }) => type === "Failed"),
    { reason: "ObjectsNotMigrated" },
  );
  t.match(status, {
    counts: { migrated: 2, failed: 1 },
    failures: [{ namespace: "default", name: "w1", reason: /this one stays as it is/ }],
  });
  t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: 2 });
  await assertKept(t, cluster, kind);
  await assertUnfrozen(t, cluster, kind);
  await allow();
  await assertLostOncePruned(t, cluster, kind);
});
