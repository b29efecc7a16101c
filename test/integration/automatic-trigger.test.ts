import { pino } from "pino";
import t, { type Test } from "tap";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import { MIGRATION_API_VERSION, resourceNameOf, type StorageVersionMigration } from "../../src/api/migration.ts";
import {
  ATTEMPT_ANNOTATION,
  CRD_ANNOTATION,
  HASH_ANNOTATION,
  PRIORITY_ANNOTATION,
  STORED_VERSIONS_ANNOTATION,
  TRIGGER_ANNOTATION,
  FORCE_ANNOTATION,
} from "../../src/api/names.ts";
import { CRDS, MERGE_PATCH, MIGRATIONS, type Resource, STORAGE_STATES } from "../../src/kube/resources.ts";
import { systemClock } from "../../src/clock.ts";
import { retireStorageStates } from "../../src/trigger/retire.ts";
import { Cluster, eventually } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { installCrds } from "./install-crds.ts";
import { clockAhead, MigrationApi, sharedBy, startTrigger } from "./trigger-harness.ts";

// The migration controller does not run here: the tests play it by writing the conditions that it writes.

const APISERVICES: Resource = { group: "apiregistration.k8s.io", version: "v1", resource: "apiservices" };
const SERVICES: Resource = { group: "", version: "v1", resource: "services" };
const DEAD_GROUP = "dead.example.org";
const MINUTE_MS = 60_000;
/** Much sooner than the next look, on a slow machine too. */
const SOON_MS = MINUTE_MS;
/** Of an object of which one more is created with each try. */
const hidden = { generateName: "hidden-", namespace: "default" };

const cluster = await Cluster.start(t);
await installCrds(cluster);
const { api } = cluster;
const migration = new MigrationApi(cluster);

function hashOf(kind: TestKind, version: string): string {
  return storageVersionHashOf(GROUP, version, kind.kind);
}

/** An aggregated API whose server is gone, and a StorageState from when it was there. */
async function registerDeadApi(): Promise<void> {
  const service = { namespace: "default", name: "dead" };
  const spec = { ports: [{ port: 443 }] };
  await api.create(SERVICES, { apiVersion: "v1", kind: "Service", metadata: service, spec });
  await api.create(APISERVICES, {
    apiVersion: "apiregistration.k8s.io/v1",
    kind: "APIService",
    metadata: { name: `v1.${DEAD_GROUP}` },
    spec: { group: DEAD_GROUP, version: "v1", service, groupPriorityMinimum: 100, versionPriority: 10 },
  });
  const name = `ghosts.${DEAD_GROUP}`;
  const resource = { group: DEAD_GROUP, resource: "ghosts" };
  const state = { apiVersion: MIGRATION_API_VERSION, kind: "StorageState", metadata: { name }, spec: { resource } };
  await api.create(STORAGE_STATES, state);
  const status = {
    persistedStorageVersionHashes: ["boo"],
    currentStorageVersionHash: "boo",
    lastHeartbeatTime: "2020-01-01T00:00:00Z",
  };
  await api.patch(STORAGE_STATES, { name }, { type: MERGE_PATCH, body: { status } }, { subresource: "status" });
}

/** A CRD that the trigger knows and that is clean. */
async function createSettled(word: string): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await migration.setCondition(await migration.nextMigration(kind.name), "Succeeded");
  const hash = hashOf(kind, "v1alpha1");
  await migration.waitForHashes(kind.name, { persisted: [hash], current: hash });
  return kind;
}

/** What the migration controller does last with a CRD. */
async function prune(kind: TestKind, version: string): Promise<void> {
  const body = { status: { storedVersions: [version] } };
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body }, { subresource: "status" });
}

/** Whether no controller has looked at it: the API server fills in a status without conditions. */
function isNew({ status }: StorageVersionMigration): boolean {
  return status?.conditions === undefined;
}

await t.test("the first look creates a StorageState and a migration for every resource, once", async (t) => {
  await registerDeadApi();
  const kind = new TestKind("first");
  await cluster.createCrd(kind, { storage: "v1" });
  const running = startTrigger(t, cluster);
  await running.settled();

  t.same(await migration.hashes("secrets"), {
    persisted: ["Unknown"],
    current: storageVersionHashOf("", "v1", "Secret"),
  });
  t.same(await migration.hashes(kind.name), { persisted: ["Unknown"], current: hashOf(kind, "v1") });
  const [ofKind, ...others] = await migration.migrations(kind.name);
  t.match(ofKind?.metadata.name ?? "", new RegExp(`^${kind.name}-`));
  t.same(ofKind?.spec.resource, { group: GROUP, version: "v1", resource: kind.plural });
  t.equal(ofKind?.metadata.annotations?.[HASH_ANNOTATION], hashOf(kind, "v1"));
  t.same(others, []);
  const migrations = await migration.migrations();
  const names = migrations.map(({ spec }) => resourceNameOf(spec.resource));
  t.equal(new Set(names).size, names.length, "one migration each");
  t.same(
    new Set(names),
    new Set((await migration.states()).map((s) => s.metadata.name).filter((n) => !n.startsWith("ghosts"))),
  );
  t.match(migrations.find(({ spec }) => spec.resource.resource === "secrets")?.metadata.name, /^secrets-/);

  const reasons = new Map(running.trigger.report().leftOut.map(({ name, reason }) => [name, reason]));
  t.match(reasons.get("events.events.k8s.io"), /its objects are those of "events"/);
  t.match(reasons.get("pods/log"), /subresource/);
  t.match(reasons.get("tokenreviews.authentication.k8s.io"), /cannot be listed/);
  t.match(running.trigger.report().unavailable, [{ group: DEAD_GROUP, version: "v1", reason: /service unavailable/ }]);
  t.ok(
    running.lines.some((line) => JSON.stringify(line).includes("events.events.k8s.io")),
    "what is left out is logged",
  );
  t.same(await migration.hashes(`ghosts.${DEAD_GROUP}`), { persisted: ["boo"], current: "boo" }, "not marked stale");

  await migration.completeAll();
  await migration.waitForHashes("secrets", {
    persisted: [storageVersionHashOf("", "v1", "Secret")],
    current: storageVersionHashOf("", "v1", "Secret"),
  });
  await eventually(
    async () =>
      (await migration.states()).every(({ status }) => status?.persistedStorageVersionHashes?.[0] !== "Unknown"),
    "every StorageState is refined to the current hash",
  );
  t.equal((await migration.migrations()).length, migrations.length, "and nothing is migrated twice");
});

await t.test("a change of a CRD's storage version creates a migration soon", async (t) => {
  startTrigger(t, cluster);
  const kind = await createSettled("changed");
  const before = await migration.migrations(kind.name);
  const [old, current] = [hashOf(kind, "v1alpha1"), hashOf(kind, "v1")];
  const startedAt = performance.now();
  await cluster.setVersions(kind, { storage: "v1" });
  const created = await migration.nextMigration(kind.name, before);
  const elapsedMs = performance.now() - startedAt;
  t.ok(elapsedMs < SOON_MS, `after ${Math.round(elapsedMs)} ms`);
  t.comment(`from the change to the migration: ${Math.round(elapsedMs)} ms`);
  t.same(await migration.hashes(kind.name), { persisted: [old, current], current });
  t.equal(created.metadata.annotations?.[STORED_VERSIONS_ANNOTATION], "v1alpha1,v1");

  await prune(kind, "v1");
  await migration.setCondition(created, "Succeeded");
  await migration.waitForHashes(kind.name, { persisted: [current], current });

  // A change there and back that nobody saw as such leaves its trace in storedVersions.
  const known = await migration.migrations(kind.name);
  await cluster.setVersions(kind, { storage: "v1alpha1" });
  await cluster.setVersions(kind, { storage: "v1" });
  await migration.nextMigration(kind.name, known);
  await eventually(async () => {
    const hashes = await migration.hashes(kind.name);
    return hashes?.current === current && hashes.persisted.includes(old) && hashes.persisted.includes(current);
  }, "both versions may be persisted");
});

await t.test("a migration that ends for an older hash proves nothing about a newer one", async (t) => {
  const first = startTrigger(t, cluster);
  const kind = await createSettled("raced");
  const known = await migration.migrations(kind.name);
  await cluster.setVersions(kind, { storage: "v1" });
  const older = await migration.nextMigration(kind.name, known);
  await migration.setCondition(older, "Running");
  await first.settled();
  // Nobody looks on while the storage version changes once more and the migration ends.
  await first.stop();
  await cluster.setVersions(kind, { storage: "v1alpha1" });
  await migration.setCondition(older, "Succeeded");
  const second = startTrigger(t, cluster);
  await second.settled();
  const [old, newer] = [hashOf(kind, "v1alpha1"), hashOf(kind, "v1")];
  t.same(await migration.hashes(kind.name), { persisted: [old, newer], current: old });
  const left = await migration.migrations(kind.name);
  t.same(
    left.map(({ metadata }) => metadata.annotations?.[HASH_ANNOTATION]),
    [old],
    "the old one is gone, a new one waits",
  );
  const [now] = left;
  t.not(now?.metadata.uid, older.metadata.uid);
});

await t.test("a StorageState that is deleted is a new resource", async (t) => {
  const running = startTrigger(t, cluster);
  await running.settled();
  const before = await migration.migrations("configmaps");
  await api.delete(STORAGE_STATES, { name: "configmaps" });
  running.trigger.pollSoon();
  const created = await migration.nextMigration("configmaps", before);
  t.equal((await migration.hashes("configmaps"))?.persisted.join(), "Unknown");
  t.same(
    (await migration.migrations("configmaps")).map(({ metadata }) => metadata.uid),
    [created.metadata.uid],
  );
  await migration.setCondition(created, "Succeeded");
});

await t.test("a built-in resource is not called migrated because another program says so", async (t) => {
  const running = startTrigger(t, cluster);
  await running.settled();
  const known = await migration.migrations("limitranges");
  await api.delete(STORAGE_STATES, { name: "limitranges" });
  running.trigger.pollSoon();
  const created = await migration.nextMigration("limitranges", known);
  // As kube-storage-version-migrator does, which gives no reason.
  const body = { status: { conditions: [{ type: "Succeeded", status: "True" }] } };
  const { name } = created.metadata;
  await api.patch(MIGRATIONS, { name }, { type: MERGE_PATCH, body }, { subresource: "status" });
  const again = await migration.nextMigration("limitranges", [...known, created]);
  t.equal(again.metadata.annotations?.[ATTEMPT_ANNOTATION], "2");
  const current = storageVersionHashOf("", "v1", "LimitRange");
  t.same(await migration.hashes("limitranges"), { persisted: ["Unknown"], current });
  await migration.setCondition(again, "Succeeded");
  await migration.waitForHashes("limitranges", { persisted: [current], current });
});

await t.test("a new resource begins with the hashes of all versions that its CRD lists as stored", async (t) => {
  const kind = new TestKind("dirty");
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await cluster.setVersions(kind, { storage: "v1" });
  const [old, current] = [hashOf(kind, "v1alpha1"), hashOf(kind, "v1")];
  startTrigger(t, cluster);
  const created = await migration.nextMigration(kind.name);
  t.same(await migration.hashes(kind.name), { persisted: ["Unknown", old, current], current });
  await prune(kind, "v1");
  await migration.setCondition(created, "Succeeded", { reason: "NothingToDo" });
  const forced = await migration.nextMigration(kind.name, [created]);
  t.equal(forced.metadata.annotations?.[FORCE_ANNOTATION], "true", "another client pruned storedVersions");
  await migration.setCondition(forced, "Succeeded", { reason: "Migrated" });
  await migration.waitForHashes(kind.name, { persisted: [current], current });
});

await t.test("a user's migration that has not begun is taken, and one that was frozen off is final", async (t) => {
  const running = startTrigger(t, cluster);
  const kind = await createSettled("lifted");
  const known = await migration.migrations(kind.name);
  await cluster.setVersions(kind, { storage: "v1" });
  const lifted = await migration.nextMigration(kind.name, known);
  await migration.setCondition(lifted, "Failed", { reason: "FreezeLifted" });
  await eventually(
    async () => running.trigger.report().waiting.some(({ name }) => name === kind.name),
    "the trigger says that it waits",
  );
  await running.stop();
  const later = startTrigger(t, cluster, { sharedClock: sharedBy(clockAhead(15 * MINUTE_MS)) });
  await later.settled();
  t.equal((await migration.migrations(kind.name)).filter(isNew).length, 0, "left alone");
  await later.stop();

  const again = startTrigger(t, cluster);
  await again.settled();
  const resource = { group: GROUP, version: "v1", resource: kind.plural };
  const metadata = { name: `asked-${kind.plural}` };
  await api.create(MIGRATIONS, {
    apiVersion: MIGRATION_API_VERSION,
    kind: "StorageVersionMigration",
    metadata,
    spec: { resource },
  });
  const hash = hashOf(kind, "v1");
  await eventually(
    async () =>
      (await migration.migrations(kind.name)).some(
        (one) => one.metadata.name === metadata.name && one.metadata.annotations?.[HASH_ANNOTATION] === hash,
      ),
    "the user's migration is taken for the one that is needed",
  );
  const asked = (await migration.migrations(kind.name)).find(({ metadata: { name } }) => name === metadata.name);
  await prune(kind, "v1");
  if (asked !== undefined) await migration.setCondition(asked, "Succeeded");
  await migration.waitForHashes(kind.name, { persisted: [hash], current: hash });
});

await t.test("CRDs and groups can be left out", async (t) => {
  const kind = new TestKind("optedout");
  await cluster.createCrd(kind, { storage: "v1", annotations: { [TRIGGER_ANNOTATION]: "off" } });
  const running = startTrigger(t, cluster, { excludedGroups: ["apps"] });
  await running.settled();
  t.equal(await migration.state(kind.name), undefined);
  t.same(await migration.migrations(kind.name), []);
  const reasons = new Map(running.trigger.report().leftOut.map(({ name, reason }) => [name, reason]));
  t.match(reasons.get(kind.name), /its CRD turns the trigger off/);
  t.match(reasons.get("deployments.apps"), /its group is excluded/);
});

await t.test("a CRD that is deleted takes its StorageState with it", async (t) => {
  const running = startTrigger(t, cluster);
  const kind = await createSettled("deleted");
  const forgetful = await createSettled("forgetful");
  await running.settled();
  await api.delete(CRDS, kind);
  await eventually(async () => (await migration.state(kind.name)) === undefined, "its StorageState is gone");
  await eventually(async () => (await migration.migrations(kind.name)).length === 0, "and its migrations");

  // Nobody looks on while one is deleted whose StorageState does not remember it.
  await running.stop();
  const body = { metadata: { annotations: { [CRD_ANNOTATION]: null } } };
  await api.patch(STORAGE_STATES, { name: forgetful.name }, { type: MERGE_PATCH, body });
  await api.delete(CRDS, forgetful);
  await eventually(async () => (await api.find(CRDS, forgetful)) === undefined, "the CRD is gone");
  const later = startTrigger(t, cluster);
  await eventually(async () => {
    // Discovery may show it for a moment.
    later.trigger.pollSoon();
    return (await migration.state(forgetful.name)) === undefined;
  }, "its StorageState is gone, too");
});

await t.test(
  "a failure is kept, counted and tried again later; after 11 and 15 minutes without a look built-in resources are migrated again, and no clean CRD",
  async (t) => {
    const first = startTrigger(t, cluster);
    const clean = await createSettled("clean");
    const kind = await createSettled("poisoned");
    const known = await migration.migrations(kind.name);
    await cluster.setVersions(kind, { storage: "v1" });
    const failed = await migration.nextMigration(kind.name, known);
    await migration.setCondition(failed, "Failed", { reason: "ObjectsRejected" });
    await eventually(
      async () =>
        first.trigger.report().waiting.some(({ name, reason }) => name === kind.name && /attempt 1/.test(reason)),
      "the retry waits",
    );
    await first.settled();
    await first.stop();

    const soon = startTrigger(t, cluster, { sharedClock: sharedBy(clockAhead(2 * MINUTE_MS)) });
    const retried = await migration.nextMigration(kind.name, [...known, failed]);
    t.equal(retried.metadata.annotations?.[ATTEMPT_ANNOTATION], "2");
    t.ok(
      (await migration.migrations(kind.name)).some(({ metadata }) => metadata.uid === failed.metadata.uid),
      "the record stays",
    );
    await migration.setCondition(retried, "Failed", { reason: "ObjectsRejected", at: Date.now() + 2 * MINUTE_MS });
    await eventually(async () => {
      const attempts = (await migration.migrations(kind.name)).map(
        ({ metadata }) => metadata.annotations?.[ATTEMPT_ANNOTATION],
      );
      return attempts.join() === "2";
    }, "one record of failure is left, with the count of attempts");
    await soon.settled();
    await soon.stop();

    const before = await migration.migrations(clean.name);
    const secrets = storageVersionHashOf("", "v1", "Secret");
    const fresh = { persisted: [secrets], current: secrets };
    let minutes = 2;
    for (const [without, hashes] of [
      [9, fresh],
      [11, { persisted: ["Unknown", secrets], current: secrets }],
      [15, { persisted: ["Unknown", secrets], current: secrets }],
    ] as const) {
      for (const { metadata } of await migration.migrations("secrets")) {
        await api.delete(MIGRATIONS, metadata);
      }
      const body = { status: { persistedStorageVersionHashes: [secrets], currentStorageVersionHash: secrets } };
      await api.patch(STORAGE_STATES, { name: "secrets" }, { type: MERGE_PATCH, body }, { subresource: "status" });
      minutes += without;
      const late = startTrigger(t, cluster, { sharedClock: sharedBy(clockAhead(minutes * MINUTE_MS)) });
      await late.settled();
      t.same(
        (await migration.migrations(clean.name)).map(({ metadata }) => metadata.uid),
        before.map(({ metadata }) => metadata.uid),
        `${without} minutes: no migration for a CRD that shows that nothing was missed`,
      );
      t.same(await migration.hashes("secrets"), hashes, `${without} minutes`);
      const ofSecrets = (await migration.migrations("secrets")).filter(isNew);
      t.same(
        ofSecrets.map(({ metadata }) => metadata.annotations?.[PRIORITY_ANNOTATION]),
        hashes === fresh ? [] : ["low"],
        "built-in resources queue last",
      );
      const heartbeat = Date.parse((await migration.state(clean.name))?.status?.lastHeartbeatTime ?? "");
      t.ok(heartbeat > Date.now() + (minutes - 2) * MINUTE_MS, "the heartbeat goes on");
      await late.stop();
    }
  },
);

interface MigratedUnseen {
  readonly kind: TestKind;
  /** All migrations of it so far. */
  readonly known: readonly StorageVersionMigration[];
  readonly hashes: { readonly old: string; readonly current: string };
}

/** A CRD whose migration to v1 ended while no trigger ran; its storage version is v1alpha1 again, where objects are created. */
async function migratedUnseen(
  t: Test,
  name: string,
  condition: { readonly reason?: string } = {},
): Promise<MigratedUnseen> {
  const first = startTrigger(t, cluster);
  const kind = await createSettled(name);
  const before = await migration.migrations(kind.name);
  await cluster.setVersions(kind, { storage: "v1" });
  const created = await migration.nextMigration(kind.name, before);
  await first.settled();
  await first.stop();
  await prune(kind, "v1");
  await migration.setCondition(created, "Succeeded", condition);
  await cluster.setVersions(kind, { storage: "v1alpha1" });
  return { kind, known: [...before, created], hashes: { old: hashOf(kind, "v1alpha1"), current: hashOf(kind, "v1") } };
}

await t.test(
  "a storage version that went there and back before the end was noticed is not called current",
  async (t) => {
    const { kind, known, hashes } = await migratedUnseen(t, "flipped");
    // The API server may still write v1 for a while (kubernetes#130235).
    await eventually(async () => {
      await api.create(kind.resource("v1alpha1"), { ...kind.object("", "v1alpha1"), metadata: hidden });
      return (await cluster.storedAs(kind))["v1alpha1"] !== undefined;
    }, "an object is stored as v1alpha1");
    await cluster.setVersions(kind, { storage: "v1" });
    const second = startTrigger(t, cluster);
    await second.settled();
    const { old, current } = hashes;
    t.same(await migration.hashes(kind.name), { persisted: [old, current], current });
    t.ok((await cluster.storedAs(kind))["v1alpha1"], "it would have been a lie");
    const left = await migration.migrations(kind.name);
    t.equal(left.length, 1);
    t.notOk(
      known.some(({ metadata }) => metadata.uid === left[0]?.metadata.uid),
      "another migration was created",
    );
    await second.stop();
  },
);

await t.test(
  "a storage version that went there and back, and another client that pruned, before the end was noticed: not current",
  async (t) => {
    const { kind, known, hashes } = await migratedUnseen(t, "hidden", { reason: "Migrated" });
    await eventually(async () => {
      await api.create(kind.resource("v1alpha1"), { ...kind.object("", "v1alpha1"), metadata: hidden });
      return (await cluster.storedAs(kind))["v1alpha1"] !== undefined;
    }, "an object is stored as v1alpha1");
    await cluster.setVersions(kind, { storage: "v1" });
    // Nothing of it shows any more, but for the generation of the CRD.
    await prune(kind, "v1");
    const second = startTrigger(t, cluster);
    await second.settled();
    const { old, current } = hashes;
    t.same(await migration.hashes(kind.name), { persisted: [old, current, "Unknown"], current });
    const forced = await migration.nextMigration(kind.name, known);
    t.equal(forced.metadata.annotations?.[FORCE_ANNOTATION], "true");
    await migration.setCondition(forced, "Succeeded", { reason: "Migrated" });
    await migration.waitForHashes(kind.name, { persisted: [current], current });
    await second.stop();
  },
);

await t.test(
  "a migration that found nothing to do, since another client pruned, proves nothing; the next one is forced",
  async (t) => {
    const running = startTrigger(t, cluster);
    const kind = await createSettled("pruned");
    const known = await migration.migrations(kind.name);
    await cluster.setVersions(kind, { storage: "v1" });
    const created = await migration.nextMigration(kind.name, known);
    await prune(kind, "v1");
    await running.settled();
    await migration.setCondition(created, "Succeeded", { reason: "NothingToDo" });
    const forced = await migration.nextMigration(kind.name, [...known, created]);
    t.equal(forced.metadata.annotations?.[FORCE_ANNOTATION], "true");
    const [old, current] = [hashOf(kind, "v1alpha1"), hashOf(kind, "v1")];
    t.same(await migration.hashes(kind.name), { persisted: [old, current], current });
    await migration.setCondition(forced, "Succeeded", { reason: "Migrated" });
    await migration.waitForHashes(kind.name, { persisted: [current], current });
    await running.stop();
  },
);

await t.test("heartbeats are the API server's time, however wrong the clock of the replica is", async (t) => {
  const running = startTrigger(t, cluster, { clock: clockAhead(20 * MINUTE_MS) });
  const kind = new TestKind("wrongclock");
  await cluster.createCrd(kind, { storage: "v1" });
  await migration.nextMigration(kind.name);
  await running.settled();
  const heartbeat = Date.parse((await migration.state(kind.name))?.status?.lastHeartbeatTime ?? "");
  t.ok(Math.abs(heartbeat - Date.now()) < 2 * MINUTE_MS, `a heartbeat of ${new Date(heartbeat).toISOString()}`);
  await running.stop();
});

await t.test(
  "a resource that is switched off, by its CRD, its group or the trigger, leaves no StorageState to believe",
  async (t) => {
    const running = startTrigger(t, cluster);
    const [kind, other] = [await createSettled("switched"), await createSettled("kept")];
    const annotations = { [TRIGGER_ANNOTATION]: "off" };
    await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { metadata: { annotations } } });
    await eventually(async () => (await migration.state(kind.name)) === undefined, "the one of the CRD is deleted");
    t.ok(await migration.state("deployments.apps"));
    await running.stop();

    const without = startTrigger(t, cluster, { excludedGroups: ["apps"] });
    await eventually(async () => (await migration.state("deployments.apps")) === undefined, "those of the group are");
    t.ok(await migration.state(other.name), "and no others");
    await without.stop();

    const signal = AbortSignal.timeout(60_000);
    await retireStorageStates({ client: api, clock: systemClock, logger: pino({ level: "silent" }), signal });
    const left = await migration.states();
    t.same(
      left.map(({ metadata }) => metadata.name).filter((name) => !name.endsWith(DEAD_GROUP)),
      [],
      "without a trigger there are none",
    );
  },
);
