import t from "tap";
import { hasCondition, stateOf, type StorageVersionMigration } from "../../src/api/migration.ts";
import type { PartialObjectMetadata } from "../../src/api/meta.ts";
import { STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import { messageOf } from "../../src/errors.ts";
import { MERGE_PATCH, MIGRATIONS } from "../../src/kube/resources.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import {
  createMigration,
  deleteMigration,
  eventReasons,
  installSystem,
  patchStatus,
  readMigration,
  SLOW,
  startController,
  untilState,
} from "./controller-fixture.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { objectWebhook, type Verdict } from "./object-webhook.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";
import { assertKept, assertLostOncePruned, assertMigrated, runCases } from "./run-peer-cases.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";

// A StorageVersionMigration is one of migration.k8s.io here, which `ksvm controller` carries out.

const cluster = await Cluster.start(t);
const { api } = cluster;
await installSystem(cluster);

/** Some four seconds of a slow run. */
const SLOW_OBJECTS = 80;

async function staleKind(word: string, count = 3): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createStale(kind, count);
  return kind;
}

/** Kinds whose migrations the controller finds when it starts. */
const found = {
  gone: await staleKind("gone"),
  ended: [await staleKind("succeeded"), await staleKind("failed")],
  queued: await staleKind("queued", 60),
  forged: [await staleKind("low"), await staleKind("high")],
};
await deleteMigration(cluster, await createMigration(cluster, found.gone));
for (const [index, type] of (["Succeeded", "Failed"] as const).entries()) {
  const migration = await createMigration(cluster, found.ended[index] ?? found.gone);
  await patchStatus(cluster, migration, { conditions: [{ type, status: "True" }] });
}
const forged: StorageVersionMigration[] = [];
for (const [index, watermark] of ["0", "999999999"].entries()) {
  const migration = await createMigration(cluster, found.forged[index] ?? found.gone);
  await patchStatus(cluster, migration, { watermark });
  forged.push(migration);
}
const older = await createMigration(cluster, found.queued);
// Times in the API are cut to the second.
await new Promise((resolve) => setTimeout(resolve, 1_100));
const younger = await createMigration(cluster, found.queued);
startController(t, cluster, { ...SLOW, guard: "policy", maxConcurrent: 8 });

async function migrateBy(kind: TestKind, state: "Succeeded" | "Failed"): Promise<StorageVersionMigration> {
  return untilState(cluster, await createMigration(cluster, kind), [state]);
}

/** A slow migration of a CRD that has rewritten some of its objects. */
async function underWay(word: string) {
  const kind = await staleKind(word, SLOW_OBJECTS);
  const migration = await createMigration(cluster, kind);
  await eventually(async () => ((await cluster.storedAs(kind))["v1"] ?? 0) > 5, "it rewrites");
  return { kind, migration, ended: () => untilState(cluster, migration, ["Succeeded"]) };
}

function failureReasonOf({ status }: StorageVersionMigration): string | undefined {
  return status?.conditions?.find(({ type }) => type === "Failed")?.reason;
}

/** Denies the object w1 with a code that is the API server's as a rule. */
function denying(code: number, reason: string, isDenied: () => boolean) {
  return (name: string, isDryRun: boolean): Verdict => {
    const status = { code, reason, message: "of a webhook" };
    return name === "w1" && !isDryRun && isDenied() ? { allowed: false, status } : { allowed: true };
  };
}

// pkg/controller/storageversionmigrator/*_test.go of https://github.com/kubernetes/kubernetes at v1.36.3
runCases("Kubernetes' own migrator", {
  "objects written since the list": async (t) => {
    const { kind, ended } = await underWay("since");
    await api.create(kind.resource("v1"), kind.object("late", "v1"));
    const versionOf = async (): Promise<string | undefined> =>
      (await api.get<PartialObjectMetadata>(kind.resource("v1"), { name: "late", namespace: "default" })).metadata
        .resourceVersion;
    const before = await versionOf();
    const { status } = await ended();
    t.ok(Number(before) > Number(status?.watermark), "it was written since the list");
    t.equal(await versionOf(), before);
    t.equal(status?.counts?.migrated, SLOW_OBJECTS);
    await assertMigrated(t, cluster, kind, SLOW_OBJECTS + 1);
  },
  "the migration is gone": async (t) => {
    await migrateBy(await staleKind("next"), "Succeeded");
    t.same(await cluster.storedAs(found.gone), { v1alpha1: 3 });
    await assertKept(t, cluster, found.gone);
  },
  "the migration has ended": async (t) => {
    await migrateBy(await staleKind("other"), "Succeeded");
    for (const kind of found.ended) {
      t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
      await assertKept(t, cluster, kind);
    }
  },
  "the resource does not exist": async (t) => {
    const nothing = { group: GROUP, version: "v1", resource: "nobodies" };
    const failed = await untilState(cluster, await createMigration(cluster, nothing), ["Failed"]);
    t.equal(failureReasonOf(failed), "ResourceNotFound");
    t.match(await cluster.migrate([`nobodies.${GROUP}`]), {
      code: 1,
      stderr: /nobodies\.example\.com.*ResourceNotFound/,
    });
  },
  "an object cannot be written": async (t) => {
    const kind = await staleKind("fatal");
    const allow = await rejectUpdatesOf(cluster, kind, "w1");
    const { status } = await migrateBy(kind, "Failed");
    t.match(status?.failures, [{ name: "w1", reason: /this one stays as it is/ }]);
    t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: 2 });
    await assertKept(t, cluster, kind);
    await allow();
    await assertLostOncePruned(t, cluster, kind);
  },
  "a write is answered with a conflict": async (t) => {
    const kind = await staleKind("conflict", 2);
    await objectWebhook(t, cluster, kind, { decide: denying(409, "Conflict", () => true) });
    const { status } = await migrateBy(kind, "Failed");
    t.match(status?.failures, [{ name: "w1", reason: /^admission webhook/ }]);
    t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: 1 });
    await assertKept(t, cluster, kind);
    await assertLostOncePruned(t, cluster, kind);
  },
  "a write may be tried again": async (t) => {
    const kind = await staleKind("throttled");
    let denials = 0;
    await objectWebhook(t, cluster, kind, { decide: denying(429, "TooManyRequests", () => denials++ === 0) });
    const { status } = await migrateBy(kind, "Succeeded");
    t.ok(denials >= 2, "it was tried again");
    t.equal(status?.counts?.migrated, 3);
    await assertMigrated(t, cluster, kind, 3);
  },
  "there is no CRD": async (t) => {
    const migration = await createMigration(cluster, { group: "", version: "v1", resource: "services" });
    await untilState(cluster, migration, ["Succeeded"]);
    const reasons = await eventReasons(cluster, migration);
    t.notOk(reasons.includes("Frozen") || reasons.includes("Pruned"), "no freeze and no prune");
  },
  "a migration begins and runs": async (t) => {
    const { kind, migration, ended } = await underWay("begins");
    const { startTime } = (await readMigration(cluster, migration)).status ?? {};
    const crd = await cluster.crd(kind);
    t.ok(hasFreezeAnnotation(crd));
    t.notOk((crd.status?.conditions ?? []).some(({ type }) => type === STORAGE_MIGRATING_CONDITION));
    const change = await cluster.setVersions(kind, { storage: "v1alpha1" }).then(() => "", messageOf);
    t.match(change, /StorageVersionFrozen/);
    await api.patch(MIGRATIONS, migration.metadata, {
      type: MERGE_PATCH,
      body: { metadata: { labels: { touched: "yes" } } },
    });
    const { status } = await ended();
    t.equal(status?.startTime, startTime);
    const frozen = (await eventReasons(cluster, migration)).filter((reason) => reason === "Frozen");
    t.equal(frozen.length, 1, "it began once");
    await assertMigrated(t, cluster, kind, SLOW_OBJECTS);
  },
  "a migration succeeds": async (t) => {
    const kind = await staleKind("success");
    const ended = await migrateBy(kind, "Succeeded");
    t.match(ended.status?.watermark, /^\d+$/);
    t.match(
      ended.status?.conditions?.find(({ type }) => type === "Running"),
      { status: "False" },
    );
    await assertMigrated(t, cluster, kind, 3);
    await assertUnfrozen(t, cluster, kind);
  },
  "the CRD changes in mid-run": async (t) => {
    const { kind, ended } = await underWay("changes");
    const before = (await cluster.crd(kind)).metadata.generation;
    const specSchema = { type: "object", description: "changed", "x-kubernetes-preserve-unknown-fields": true };
    await cluster.setVersions(kind, { storage: "v1", specSchema });
    t.not((await cluster.crd(kind)).metadata.generation, before);
    await ended();
    await assertMigrated(t, cluster, kind, SLOW_OBJECTS);
    t.equal((await cluster.setVersions(kind, { versions: ["v1"], storage: "v1" })).spec.versions.length, 1);
  },
  "the older migration goes first": async (t) => {
    const waiting: StorageVersionMigration[] = [];
    const isOver = async (): Promise<boolean> => {
      const [first, second] = [await readMigration(cluster, older), await readMigration(cluster, younger)];
      if (!hasCondition(first, "Succeeded")) waiting.push(second);
      return hasCondition(first, "Succeeded");
    };
    await eventually(isOver, "the older one succeeded");
    for (const one of waiting.slice(0, -1)) {
      t.match(one.status?.watermark, undefined);
      t.equal(stateOf(one), "Pending");
    }
    const second = await untilState(cluster, younger, ["Succeeded"]);
    t.match(
      second.status?.conditions?.find(({ type }) => type === "Succeeded"),
      { reason: "NothingToDo" },
    );
    await assertMigrated(t, cluster, found.queued, 60);
  },
  "verbs of a resource": async (t) => {
    const of = (group: string, resource: string) => createMigration(cluster, { group, version: "v1", resource });
    await untilState(cluster, await of("", "configmaps"), ["Succeeded"]);
    for (const migration of [await of("", "componentstatuses"), await of("authentication.k8s.io", "tokenreviews")]) {
      const { status } = await untilState(cluster, migration, ["Failed"]);
      t.match(
        status?.conditions?.find(({ type }) => type === "Failed"),
        { reason: "ResourceNotMigratable" },
      );
    }
  },
  "the list fails": async (t) => {
    const webhook = await serveConversion(t);
    const kind = new TestKind("unlisted");
    await cluster.createStale(kind, 3, { conversion: conversionBy(webhook) });
    webhook.setDown(true);
    const migration = await createMigration(cluster, kind);
    const isTold = async (): Promise<boolean> => {
      const { status } = await readMigration(cluster, migration);
      return (status?.conditions ?? []).some(({ reason }) => reason === "WaitingForWebhook");
    };
    await eventually(isTold, "it says what it waits for");
    t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
    webhook.setDown(false);
    await untilState(cluster, migration, ["Succeeded"], 120_000);
    await assertMigrated(t, cluster, kind, 3);
  },
  "the status is filled in by someone else": async (t) => {
    for (const [index, kind] of found.forged.entries()) {
      const migration = forged[index];
      const { status } = migration === undefined ? {} : await untilState(cluster, migration, ["Succeeded"]);
      t.equal(status?.counts?.migrated, 3);
      await assertMigrated(t, cluster, kind, 3);
    }
  },
});
