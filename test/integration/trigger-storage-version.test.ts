import t, { type Test } from "tap";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import { STORAGE_VERSION_ANNOTATION } from "../../src/api/names.ts";
import { LEASES, MERGE_PATCH, STORAGE_STATES, STORAGE_VERSIONS } from "../../src/kube/resources.ts";
import type { StorageVersion } from "../../src/apiservers/storage-version-facts.ts";
import { Cluster, eventually } from "./cluster.ts";
import { installCrds } from "./install-crds.ts";
import { MigrationApi, startTrigger } from "./trigger-harness.ts";

// The StorageVersions are the API server's own. What a second API server would report is written into them: none that
// can be had here encodes deployments otherwise. The migration controller is played, too.

const NAME = "deployments.apps";
const STORAGE_VERSION = { name: "apps.deployments" };
const CURRENT = storageVersionHashOf("apps", "v1", "Deployment");
const OTHER = storageVersionHashOf("apps", "v1beta2", "Deployment");

const cluster = await Cluster.start(t, {
  featureGates: { StorageVersionAPI: true, APIServerIdentity: true },
  runtimeConfig: { "internal.apiserver.k8s.io/v1alpha1": true },
});
await installCrds(cluster);
const { api } = cluster;
const migration = new MigrationApi(cluster);
const original = await api.get<StorageVersion>(STORAGE_VERSIONS, STORAGE_VERSION);

async function report(status: object): Promise<void> {
  const patch = { type: MERGE_PATCH, body: { status } };
  await api.patch(STORAGE_VERSIONS, STORAGE_VERSION, patch, { subresource: "status" });
}

/** Another API server's entry beside the real one's. */
function withEntry(apiServerID: string, encodingVersion: string): object {
  const entry = { apiServerID, encodingVersion, decodableVersions: ["apps/v1", "apps/v1beta2"] };
  const isEqual = encodingVersion === "apps/v1";
  return {
    storageVersions: [...(original.status?.storageVersions ?? []), entry],
    commonEncodingVersion: isEqual ? "apps/v1" : null,
    conditions: [
      {
        type: "AllEncodingVersionsEqual",
        status: isEqual ? "True" : "False",
        reason: "Test",
        message: "Test",
        lastTransitionTime: new Date().toISOString().replace(/\.\d+Z/, "Z"),
      },
    ],
  };
}

async function addLease(t: Test, name: string) {
  const labels = { "apiserver.kubernetes.io/identity": "kube-apiserver" };
  const metadata = { name, namespace: "kube-system", labels };
  const renewTime = new Date().toISOString().replace("Z", "000Z");
  const spec = { holderIdentity: name, leaseDurationSeconds: 3_600, renewTime };
  await api.create(LEASES, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec });
  const remove = (): Promise<void> => api.delete(LEASES, metadata);
  t.teardown(remove);
  return { remove };
}

const running = startTrigger(t, cluster);
await running.settled();
await migration.completeAll();
await migration.waitForHashes(NAME, { persisted: [CURRENT], current: CURRENT });

/** A migration that runs. */
async function startMigration(trigger = running.trigger) {
  const known = await migration.migrations(NAME);
  await api.delete(STORAGE_STATES, { name: NAME });
  trigger.pollSoon();
  const created = await migration.nextMigration(NAME, known);
  await migration.setCondition(created, "Running");
  return created;
}

async function isGone(name: string): Promise<boolean> {
  return !(await migration.migrations(NAME)).some(({ metadata }) => metadata.name === name);
}

await t.test("the hash of every StorageVersion is the one that discovery shows", async (t) => {
  const states = await migration.states();
  t.same(
    states.filter(({ status }) => status?.currentStorageVersionHash === "Unknown").map(({ metadata }) => metadata.name),
    [],
  );
});

await t.test(
  "a migration is stopped when the agreement is withdrawn, and another begins when it is back",
  async (t) => {
    const first = await startMigration();
    const { uid, resourceVersion } = (await api.get<StorageVersion>(STORAGE_VERSIONS, STORAGE_VERSION)).metadata;
    t.equal(first.metadata.annotations?.[STORAGE_VERSION_ANNOTATION], `${uid}/${resourceVersion}`);
    const lease = await addLease(t, "apiserver-other");
    await report(withEntry("apiserver-other", "apps/v1beta2"));
    await eventually(() => isGone(first.metadata.name), "the migration that runs is deleted");
    await eventually(async () => (await migration.hashes(NAME))?.current === "Unknown", "nobody agrees");
    t.same(new Set((await migration.hashes(NAME))?.persisted), new Set(["Unknown", CURRENT, OTHER]));
    t.same(await migration.migrations(NAME), []);

    await lease.remove();
    await report(original.status ?? {});
    const second = await migration.nextMigration(NAME);
    await migration.setCondition(second, "Succeeded");
    await migration.waitForHashes(NAME, { persisted: [CURRENT], current: CURRENT });
  },
);

await t.test("a StorageVersion that changed during a migration proves that it must run again", async (t) => {
  const first = await startMigration();
  await running.stop();
  const body = { metadata: { labels: { touched: "yes" } } };
  await api.patch(STORAGE_VERSIONS, STORAGE_VERSION, { type: MERGE_PATCH, body });
  await migration.setCondition(first, "Succeeded");
  const again = startTrigger(t, cluster);
  const second = await migration.nextMigration(NAME, [first]);
  await again.settled();
  t.same(await migration.hashes(NAME), { persisted: ["Unknown"], current: CURRENT }, "the first one proves nothing");
  await migration.setCondition(second, "Succeeded");
  await migration.waitForHashes(NAME, { persisted: [CURRENT], current: CURRENT });
  await again.stop();
});

await t.test("the entry of an API server without a Lease is named and waited for", async (t) => {
  const { trigger, ...again } = startTrigger(t, cluster);
  await again.settled();
  const first = await startMigration(trigger);
  await report(withEntry("apiserver-dead", "apps/v1"));
  await eventually(
    async () =>
      trigger
        .report()
        .waiting.some(
          ({ name, reason }) => name === NAME && /apiserver-dead, which has no live identity Lease/.test(reason),
        ),
    "the trigger names it",
  );
  t.equal((await migration.hashes(NAME))?.current, "Unknown", "although all entries are equal");
  t.ok(await isGone(first.metadata.name));
  await report(original.status ?? {});
  const next = await migration.nextMigration(NAME, [first]);
  await migration.setCondition(next, "Succeeded");
  await migration.waitForHashes(NAME, { persisted: [CURRENT], current: CURRENT });
});
