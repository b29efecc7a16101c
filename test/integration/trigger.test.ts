// The trigger: what it takes for a change of a storage version, and what it has the controller do about that.
import t from "tap";
import { storageVersionHashOf, storedVersionsOf } from "../crd.ts";
import {
  MIGRATION_API_VERSION,
  type StorageState,
  type StorageVersionMigration,
  stateOf,
} from "../../src/api/migration.ts";
import {
  ATTEMPT_ANNOTATION,
  FORCE_ANNOTATION,
  HASH_ANNOTATION,
  PRIORITY_ANNOTATION,
  TRIGGER_ANNOTATION,
} from "../../src/api/names.ts";
import { API_SERVICES, CRDS, MERGE_PATCH, MIGRATIONS, STORAGE_STATES } from "../api-client.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { type Controller, startController } from "./controller.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import {
  createMigration,
  deleteMigration,
  hashesOf,
  installSystem,
  migrationsOf,
  patchStatus,
  untilHashes,
  untilState,
} from "./migrations.ts";
import { alone, parallel } from "./parallel.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";
import { assertMigrated } from "./assert-migrated.ts";

const MINUTE_MS = 60_000;
const DEAD_GROUP = "dead.example.org";
const KINDS = {
  stale: new TestKind("stale"),
  off: new TestKind("off"),
  changed: new TestKind("changed"),
  poisoned: new TestKind("poisoned"),
  flipped: new TestKind("flipped"),
  lifted: new TestKind("lifted"),
  gone: new TestKind("gone"),
  clean: new TestKind("clean"),
};
const ROLES = "roles.rbac.authorization.k8s.io";
/** Each built-in resource is migrated once, too: those that these tests are about are enough. */
const BUILT_IN = ["secrets", "configmaps", "limitranges", "events", "deployments.apps", ROLES];
const ONLY = [...BUILT_IN, `ghosts.${DEAD_GROUP}`, ...Object.values(KINDS).map(({ name }) => name)];
const FLAGS = [
  "--trigger=on",
  "--trigger-interval=2s",
  "--concurrent-migrations=16",
  `--trigger-only-resources=${ONLY.join()}`,
];
const root = t;
const cluster = await Cluster.start(t);
const { api } = cluster;
await installSystem(cluster);
let controller: Controller;

function hashOf(kind: TestKind, version: string): string {
  return storageVersionHashOf(GROUP, version, kind.kind);
}

function stateFor(name: string): Promise<StorageState | undefined> {
  return api.find<StorageState>(STORAGE_STATES, { name });
}

function patchState(name: string, status: object): Promise<unknown> {
  return api.patch(STORAGE_STATES, { name }, { type: MERGE_PATCH, body: { status } }, { subresource: "status" });
}

async function uidsOf(name: string): Promise<readonly string[]> {
  return (await migrationsOf(cluster, name)).map(({ metadata }) => metadata.uid);
}

/** Waits until the trigger has read all of discovery so many times; each time it writes a heartbeat. */
async function untilPolled(name: string, times = 3): Promise<void> {
  const seen = new Set<string>();
  const isOver = async () => seen.add((await stateFor(name))?.status?.lastHeartbeatTime ?? "").size > times;
  await eventually(isOver, `the trigger reads discovery ${times} times`);
}

/** A CRD that the trigger knows and that is clean, with three objects in v1alpha1. */
async function createSettled(kind: TestKind): Promise<TestKind> {
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(3, "v1alpha1"));
  const hash = hashOf(kind, "v1alpha1");
  await untilHashes(cluster, kind.name, { persisted: [hash], current: hash });
  return kind;
}

async function assertCurrent(kind: TestKind, version = "v1"): Promise<void> {
  const hash = hashOf(kind, version);
  await untilHashes(cluster, kind.name, { persisted: [hash], current: hash });
}

/** Whether it says that every object is stored in the current version. */
function isCurrent({ status }: StorageState): boolean {
  const [persisted, ...others] = status?.persistedStorageVersionHashes ?? [];
  return persisted === status?.currentStorageVersionHash && others.length === 0;
}

/** An aggregated API whose server is gone, and a StorageState from when it was there. */
async function registerDeadApi(): Promise<void> {
  await api.create(API_SERVICES, {
    apiVersion: "apiregistration.k8s.io/v1",
    kind: "APIService",
    metadata: { name: `v1.${DEAD_GROUP}` },
    spec: {
      group: DEAD_GROUP,
      version: "v1",
      service: { namespace: "default", name: "dead" },
      insecureSkipTLSVerify: true,
      groupPriorityMinimum: 100,
      versionPriority: 10,
    },
  });
  const name = `ghosts.${DEAD_GROUP}`;
  const resource = { group: DEAD_GROUP, resource: "ghosts" };
  const state = { apiVersion: MIGRATION_API_VERSION, kind: "StorageState", metadata: { name }, spec: { resource } };
  await api.create(STORAGE_STATES, state);
  const lastHeartbeatTime = "2020-01-01T00:00:00Z";
  await patchState(name, {
    persistedStorageVersionHashes: ["boo"],
    currentStorageVersionHash: "boo",
    lastHeartbeatTime,
  });
}

alone("the first look migrates every resource once, and afterwards every StorageState is current", async (t) => {
  await registerDeadApi();
  t.teardown(() => api.delete(API_SERVICES, { name: `v1.${DEAD_GROUP}` }));
  const { stale, off } = KINDS;
  await Promise.all([
    cluster.createStale(stale, 3),
    cluster.createCrd(off, { storage: "v1", annotations: { [TRIGGER_ANNOTATION]: "off" } }),
  ]);
  controller = await startController(root, cluster, { flags: FLAGS });
  const states = () => api.list<StorageState>(STORAGE_STATES);
  await eventually(async () => {
    const all = (await states()).filter(({ metadata }) => !metadata.name.startsWith("ghosts"));
    // All but the CRD that turns the trigger off.
    return all.length === BUILT_IN.length + 1 && all.every(isCurrent);
  }, "every StorageState is current");
  const current = storageVersionHashOf("", "v1", "Secret");
  t.same(await hashesOf(cluster, "secrets"), { persisted: [current], current });
  await assertMigrated(t, cluster, stale, 3);
  await untilPolled("secrets");
  const migrations = await api.list<StorageVersionMigration>(MIGRATIONS);
  const names = migrations.map(({ spec }) => `${spec.resource.resource}.${spec.resource.group}`);
  t.equal(new Set(names).size, names.length, "one migration each, and nothing twice");
  t.same(await migrationsOf(cluster, off.name), [], "its CRD turns the trigger off");
  t.equal(await stateFor(off.name), undefined);
  t.match(controller.log(), /events\.events\.k8s\.io/, "what is left out is logged");
  t.match(controller.log(), new RegExp(`API servers do not show every group|${DEAD_GROUP}`));
  t.same(await hashesOf(cluster, `ghosts.${DEAD_GROUP}`), { persisted: ["boo"], current: "boo" }, "not marked stale");
});

parallel(
  "a change of a CRD's storage version has it migrated; a TTL that deletes the migration changes nothing",
  async (t) => {
    const kind = await createSettled(KINDS.changed);
    await cluster.setVersions(kind, { storage: "v1" });
    await assertCurrent(kind);
    await assertMigrated(t, cluster, kind, 3);
    await assertUnfrozen(t, cluster, kind);
    const [created, ...others] = await migrationsOf(cluster, kind.name);
    t.same(others, [], "the one before it is gone");
    t.match(created?.metadata.annotations, { [HASH_ANNOTATION]: hashOf(kind, "v1") });
    const before = await uidsOf(kind.name);
    const ofUser = await createMigration(cluster, kind);
    await untilState(cluster, ofUser, ["Succeeded"]);
    await deleteMigration(cluster, ofUser);
    await untilPolled(kind.name);
    t.same(await uidsOf(kind.name), before);
    await assertCurrent(kind);

    await api.delete(CRDS, kind);
    await eventually(async () => (await stateFor(kind.name)) === undefined, "its StorageState goes with the CRD");
    await eventually(async () => (await migrationsOf(cluster, kind.name)).length === 0, "and so do its migrations");
  },
);

parallel("a StorageState that is deleted is that of a new resource: it is migrated again", async (t) => {
  const before = await uidsOf("configmaps");
  await api.delete(STORAGE_STATES, { name: "configmaps" });
  const current = storageVersionHashOf("", "v1", "ConfigMap");
  await untilHashes(cluster, "configmaps", { persisted: [current], current });
  const after = await uidsOf("configmaps");
  t.equal(after.length, 1);
  t.notSame(after, before);
});

parallel("F20: a poisoned object leaves one record of failure, and is not tried again at once", async (t) => {
  const kind = await createSettled(KINDS.poisoned);
  const allow = await rejectUpdatesOf(cluster, kind, "w1");
  await cluster.setVersions(kind, { storage: "v1" });
  const failed = async () => (await migrationsOf(cluster, kind.name)).filter((one) => stateOf(one) === "Failed");
  await eventually(async () => (await failed()).length === 1, "the migration fails");
  const [first] = await failed();
  if (first === undefined) throw new Error("it failed");
  await untilPolled(kind.name);
  t.same(await uidsOf(kind.name), [first.metadata.uid], "the record stays, and there is no other");
  t.equal(first.metadata.annotations?.[ATTEMPT_ANNOTATION], "1");

  await allow();
  const current = hashOf(kind, "v1");
  t.same(await hashesOf(cluster, kind.name), { persisted: [hashOf(kind, "v1alpha1"), current], current });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await untilState(cluster, await createMigration(cluster, kind), ["Succeeded"]);
  await assertCurrent(kind);
});

alone("what happened while no controller ran is made up for", async (t) => {
  const { flipped, lifted, gone, clean } = KINDS;
  await Promise.all([flipped, lifted, gone, clean].map(createSettled));
  await Promise.all([flipped, lifted].map((kind) => cluster.setVersions(kind, { storage: "v1" })));
  await Promise.all([flipped, lifted].map((kind) => assertCurrent(kind)));
  t.equal(await controller.stop(), 0);

  // A storage version that went back and there, and a client that pruned: nothing of it shows but the generation of the CRD.
  const hidden = { generateName: "hidden-", namespace: "default" };
  await cluster.setVersions(flipped, { storage: "v1alpha1" });
  await eventually(async () => {
    await api.create(flipped.resource("v1alpha1"), { ...flipped.object("", "v1alpha1"), metadata: hidden });
    return (await cluster.storedAs(flipped))["v1alpha1"] !== undefined;
  }, "an object is stored as v1alpha1");
  await cluster.setVersions(flipped, { storage: "v1" });
  const pruned = { status: { storedVersions: ["v1"] } };
  await api.patch(CRDS, flipped, { type: MERGE_PATCH, body: pruned }, { subresource: "status" });

  // A migration whose freeze a user lifted is final for this storage version.
  await cluster.setVersions(lifted, { storage: "v1alpha1" });
  const final = await createMigration(cluster, lifted);
  const now = new Date().toISOString().replace(/\.\d+/, "");
  const failure = { type: "Failed", status: "True", reason: "FreezeLifted", message: "m", lastUpdateTime: now };
  await patchStatus(cluster, final, { conditions: [failure], completionTime: now });

  await api.delete(CRDS, gone);
  await eventually(async () => (await api.find(CRDS, gone)) === undefined, "the CRD is gone");

  // Another program calls a migration succeeded, and gives no reason.
  for (const name of ["limitranges", "secrets", ROLES]) {
    for (const one of await migrationsOf(cluster, name)) await deleteMigration(cluster, one);
  }
  await patchState("limitranges", { persistedStorageVersionHashes: ["Unknown"] });
  const theirs = await createMigration(cluster, { group: "", version: "v1", resource: "limitranges" });
  await patchStatus(cluster, theirs, { conditions: [{ type: "Succeeded", status: "True" }] });

  const ago = (minutes: number) => new Date(Date.now() - minutes * MINUTE_MS).toISOString().replace(/\.\d+/, "");
  await patchState("secrets", { lastHeartbeatTime: ago(11) });
  await patchState(ROLES, { lastHeartbeatTime: ago(5) });
  await patchState(clean.name, { lastHeartbeatTime: ago(11) });
  const ofClean = await uidsOf(clean.name);

  controller = await startController(root, cluster, { flags: [...FLAGS, "--trigger-exclude-groups=apps"] });
  await eventually(
    async () => (await cluster.storedAs(flipped))["v1alpha1"] === undefined,
    "the hidden object is found",
  );
  await assertCurrent(flipped);
  const [forced] = await migrationsOf(cluster, flipped.name);
  t.equal(forced?.metadata.annotations?.[FORCE_ANNOTATION], "true");

  const secrets = storageVersionHashOf("", "v1", "Secret");
  const ofSecrets = async () => (await migrationsOf(cluster, "secrets")).at(-1);
  await eventually(async () => (await ofSecrets()) !== undefined, "eleven minutes without a look are too long");
  t.equal((await ofSecrets())?.metadata.annotations?.[PRIORITY_ANNOTATION], "low");
  await untilHashes(cluster, "secrets", { persisted: [secrets], current: secrets });
  const limits = storageVersionHashOf("", "v1", "LimitRange");
  await untilHashes(cluster, "limitranges", { persisted: [limits], current: limits });
  t.ok(
    (await uidsOf("limitranges")).some((uid) => uid !== theirs.metadata.uid),
    "it was migrated again",
  );

  await eventually(async () => (await stateFor(gone.name)) === undefined, "the StorageState of the CRD goes");
  await eventually(async () => (await stateFor("deployments.apps")) === undefined, "so do those of a group left out");
  await untilPolled(lifted.name);
  t.same(await migrationsOf(cluster, ROLES), [], "five minutes are not");
  t.same(await uidsOf(clean.name), ofClean, "a clean CRD shows that nothing was missed");
  t.ok((await uidsOf(lifted.name)).includes(final.metadata.uid));
  const open = (await migrationsOf(cluster, lifted.name)).filter(
    (one) => !["Succeeded", "Failed"].includes(stateOf(one)),
  );
  t.same(open, [], "the user's word is final");
  await untilState(cluster, await createMigration(cluster, lifted), ["Succeeded"]);
  await assertCurrent(lifted, "v1alpha1");
});

alone("without a trigger there are no StorageStates to believe", async () => {
  await controller.stop();
  await startController(root, cluster);
  const isEmpty = async () =>
    (await api.list<StorageState>(STORAGE_STATES)).every(({ metadata }) => metadata.name.endsWith(DEAD_GROUP));
  await eventually(isEmpty, "they are gone");
});
