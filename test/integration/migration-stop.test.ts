// A migration that is stopped: suspended, deleted, left by a leader that died, held up by an outage, or deleted once it has ended.
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { storageVersionHashOf, storedVersionsOf } from "../crd.ts";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { CREATED_BY_LABEL, CREATED_BY_TRIGGER } from "../../src/api/names.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { freezeOwnerOf, hasFreezeAnnotation } from "./frozen.ts";
import { CRDS, MERGE_PATCH, MIGRATIONS } from "../api-client.ts";
import { ChaosProxy } from "../chaos/chaos-proxy.ts";
import type { Disturbance } from "../chaos/disturbance.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { type Controller, SLOWLY, spawnController, startController } from "./controller.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import {
  createMigration,
  deleteMigration,
  installSystem,
  migrationsOf,
  patchMigration,
  patchStatus,
  readMigration,
  untilHashes,
  untilState,
} from "./migrations.ts";
import { alone, parallel } from "./parallel.ts";
import { untilRewriting } from "./slow-run.ts";

const OBJECTS = 100;
const cluster = await Cluster.start(t);
const { api } = cluster;
await installSystem(cluster);
const suspended = new TestKind("suspended");

/** The controller of most tests. */
let main: Promise<Controller> | undefined;

function startMain(): Promise<Controller> {
  const trigger = ["--trigger=on", `--trigger-only-resources=${suspended.name}`];
  const flags = [...SLOWLY, ...trigger, "--concurrent-migrations=4", "--finished-migrations-limit=2"];
  return startController(t, cluster, { flags });
}

async function isThawed(kind: TestKind): Promise<boolean> {
  return !hasFreezeAnnotation(await cluster.crd(kind));
}

/** How often each object was written, its creation included, and in which revision the last time, as etcd counts. */
async function writesOf({ plural }: TestKind) {
  const stored = await cluster.controlPlane.stored.storedObjects(GROUP, plural);
  return { times: stored.map(({ version }) => version), revisions: stored.map(({ modRevision }) => modRevision) };
}

/** The freeze is lifted, nothing is written any more, and nothing is pruned. */
async function assertStopped(t: Test, kind: TestKind): Promise<void> {
  await eventually(() => isThawed(kind), "the freeze is lifted");
  const before = await writesOf(kind);
  await delay(2_000);
  t.same(await writesOf(kind), before, "nothing is written any more");
  t.ok(((await cluster.storedAs(kind))["v1alpha1"] ?? 0) > 0, "there is work left");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
  await assertUnfrozen(t, cluster, kind);
}

alone(
  "a freeze that a dead leader left is lifted by the next one, also without its migration; a user's stays",
  async (t) => {
    const [orphan, foreign] = [new TestKind("orphan"), new TestKind("foreign")];
    await Promise.all([cluster.createStale(orphan, OBJECTS), cluster.createStale(foreign, 1)]);
    const dies = await spawnController(t, cluster, { flags: SLOWLY });
    const created = await createMigration(cluster, orphan);
    await untilRewriting(cluster, orphan);
    dies.signal("SIGKILL");
    await dies.ended;
    await deleteMigration(cluster, created);
    t.equal(freezeOwnerOf(await cluster.crd(orphan))?.identity.split("/")[0], dies.identity());
    const body = { metadata: { annotations: { [MIGRATING]: "by-hand" } } };
    await api.patch(CRDS, foreign, { type: MERGE_PATCH, body });
    main = startMain();
    await main;
    await assertStopped(t, orphan);
    const waiting = await untilState(cluster, await createMigration(cluster, foreign), ["Waiting"]);
    t.match(waiting.status?.conditions?.[0], { type: "Waiting", reason: "ForeignFreeze", message: /kubectl annotate/ });
    t.notOk(await isThawed(foreign));
  },
);

parallel(
  "spec.suspend stops a run and its trigger, a restart leaves it so, and then it goes on where it was",
  async (t) => {
    const { name } = suspended;
    await cluster.createStale(suspended, OBJECTS);
    await untilRewriting(cluster, suspended);
    // The one for the first storage version was replaced.
    const migration = (await migrationsOf(cluster, name)).at(-1);
    if (migration === undefined) throw new Error("the trigger has created one");
    await patchMigration(cluster, migration, { spec: { suspend: true } });
    await assertStopped(t, suspended);
    const stopped = await untilState(cluster, migration, ["Suspended"]);
    t.match(stopped.status?.conditions?.[0], {
      type: "Suspended",
      reason: "SuspendedByUser",
      message: /spec\.suspend/,
    });
    t.match((await cluster.ksvm(["status", name])).stdout, /Suspended .*set spec\.suspend to false/);
    const plan = await cluster.ksvm(["init", "-y", "--dry-run"]);
    t.match(plan.stdout, new RegExp(`leave out "${name}": its migration is suspended`));

    t.equal(await (await main)?.stop(), 0);
    main = startMain();
    await main;
    const asked = await createMigration(cluster, suspended);
    await eventually(
      async () => /is suspended/.test((await readMigration(cluster, asked)).status?.conditions?.[0]?.message ?? ""),
      "another migration of the resource is held back, and says why",
    );
    await assertStopped(t, suspended);
    await patchMigration(cluster, migration, { spec: { suspend: false } });
    const { status } = await untilState(cluster, migration, ["Succeeded"]);
    t.ok((status?.counts?.migrated ?? OBJECTS) < OBJECTS, "it went on at the checkpoint");
    t.same(await cluster.storedAs(suspended), { v1: OBJECTS });
    t.same(new Set((await writesOf(suspended)).times), new Set([2]), "each object was written once after its creation");
    t.same(storedVersionsOf(await cluster.crd(suspended)), ["v1"]);
    await untilState(cluster, asked, ["Succeeded"]);
    const current = storageVersionHashOf(GROUP, "v1", suspended.kind);
    await untilHashes(cluster, name, { persisted: [current], current });
  },
);

parallel("deleting a migration while it rewrites stops the writes, and the next one goes on", async (t) => {
  const kind = new TestKind("writing");
  await cluster.createStale(kind, OBJECTS);
  const created = await createMigration(cluster, kind);
  await untilRewriting(cluster, kind);
  await deleteMigration(cluster, created);
  await assertStopped(t, kind);
  await untilState(cluster, await createMigration(cluster, kind), ["Succeeded"]);
  t.same(await cluster.storedAs(kind), { v1: OBJECTS });
});

const LONG_AGO = "2026-01-01T00:00:00Z";

/** A migration of a resource that nothing else is about, which has ended. */
async function ended(
  resource: string,
  condition: object,
  { at = LONG_AGO, ttl = 60 }: { readonly at?: string | null; readonly ttl?: number | null } = {},
): Promise<StorageVersionMigration> {
  const created = await createMigration(cluster, { group: "", version: "v1", resource });
  await patchStatus(cluster, created, { conditions: [{ status: "True", ...condition }], completionTime: at });
  await patchMigration(cluster, created, { spec: { ttlSecondsAfterFinished: ttl } });
  return created;
}

async function untilGone({ metadata }: StorageVersionMigration): Promise<void> {
  await eventually(async () => (await api.find(MIGRATIONS, metadata)) === undefined, `${metadata.name} is deleted`);
}

parallel(
  "a finished migration is deleted once its TTL is over, or when its resource has newer ones, and no other",
  async (t) => {
    const done = { type: "Succeeded" };
    const hour = (hours: number) => ended("others", done, { at: `2026-01-01T0${hours}:00:00Z`, ttl: null });
    const counted = await ended("counted", { type: "Failed", reason: "ObjectsNotMigrated" }, { at: null });
    await patchMigration(cluster, counted, { metadata: { labels: { [CREATED_BY_LABEL]: CREATED_BY_TRIGGER } } });
    await patchStatus(cluster, counted, { completionTime: LONG_AGO });
    const kept = {
      "without a TTL": await ended("forever", done, { ttl: null }),
      "not yet": await ended("later", done, { at: new Date(Date.now() + 3_600_000).toISOString() }),
      "by it the trigger knows that it may not freeze the CRD again": await ended("lifted", {
        type: "Failed",
        reason: "FreezeLifted",
      }),
      "the trigger counts its attempts by it": counted,
      "without a time of its end": await ended("timeless", done, { at: null }),
    };
    const [second, first, third] = [await hour(2), await hour(1), await hour(3)];
    await untilGone(await ended("done", done));
    await untilGone(await ended("failed", { type: "Failed", reason: "ResourceNotFound" }));
    await untilGone(first);
    const fourth = await hour(4);
    await untilGone(second);
    const all = { ...kept, "a new one": third, "the newest one": fourth };
    for (const [why, { metadata }] of Object.entries(all)) t.ok(await api.find(MIGRATIONS, metadata), why);
  },
);

alone("503 for longer than a leader keeps its Lease is waited for, and nobody has to act", async (t) => {
  await (await main)?.stop();
  let isOverloaded = false;
  const disturb = (): Disturbance => (isOverloaded ? { kind: "answer", status: 503 } : { kind: "none" });
  const { kubeconfig } = await ChaosProxy.start(t, cluster.controlPlane, { disturb });
  const controller = await startController(t, cluster, { flags: SLOWLY, kubeconfig });
  const kind = new TestKind("overloaded");
  await cluster.createStale(kind, OBJECTS);
  const created = await createMigration(cluster, kind);
  await untilRewriting(cluster, kind);
  isOverloaded = true;
  await eventually(async () => !controller.isLeading(), "it does not lead any more");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
  t.ok(((await cluster.storedAs(kind))["v1alpha1"] ?? 0) > 0, "there is work left");
  isOverloaded = false;
  await untilState(cluster, created, ["Succeeded"]);
  t.same(await cluster.storedAs(kind), { v1: OBJECTS });
  t.same(new Set((await writesOf(kind)).times), new Set([2]), "each object was written once after its creation");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertUnfrozen(t, cluster, kind);
});
