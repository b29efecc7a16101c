import t from "tap";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import type { ApiserverOptions } from "../control-plane/apiserver.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { GROUP, TestKind } from "../integration/crd-fixture.ts";
import { installCrds } from "../integration/install-crds.ts";
import { STORAGE_STATES } from "../../src/kube/resources.ts";
import type { ClusterStatus } from "../../src/plan/cluster-status.ts";
import { MigrationApi, startTrigger } from "../integration/trigger-harness.ts";

// A rolling upgrade of two API servers. The migration controller does not run: the test plays it.

const SERVED = {
  featureGates: { DynamicResourceAllocation: true },
  runtimeConfig: { "resource.k8s.io/v1beta1": true },
};
const OLD: ApiserverOptions = { ...SERVED, emulatedVersion: "1.34" };
const NEW: ApiserverOptions = { ...SERVED, emulatedVersion: "1.37" };
const NAME = "deviceclasses.resource.k8s.io";

const cluster = await Cluster.start(t, { ...OLD, apiservers: 2 });
await installCrds(cluster);
const { api, controlPlane } = cluster;
const migration = new MigrationApi(cluster);
const endpoints = controlPlane.apiservers.map(({ url }) => url);

await t.test("API servers that disagree stop migrations, and the trigger goes on when they agree", async (t) => {
  const started = startTrigger(t, cluster, { endpoints });
  const { trigger } = started;
  await started.settled();
  await migration.completeAll();
  await eventually(async () => (await migration.hashes(NAME))?.persisted[0] !== "Unknown", "the first migration ended");
  const before = await migration.hashes(NAME);
  const secrets = await migration.hashes("secrets");
  const old = before?.current ?? "";
  t.same(before, { persisted: [old], current: old });
  // A migration that is under way when the upgrade begins.
  await api.delete(STORAGE_STATES, { name: NAME });
  const known = await migration.migrations(NAME);
  trigger.pollSoon();
  const running = await migration.nextMigration(NAME, known);
  await migration.setCondition(running, "Running");

  await controlPlane.restartApiserver(1, NEW);
  await eventually(async () => {
    // An API server that has just started may not show every group yet: that is looked at again.
    trigger.pollSoon();
    const { current, persisted = [] } = (await migration.hashes(NAME)) ?? {};
    return current === "Unknown" && persisted.length > 2;
  }, "the disagreement is recorded");
  const during = await migration.hashes(NAME);
  const current = during?.persisted.find((hash) => hash !== old && hash !== "Unknown") ?? "";
  t.same(new Set(during?.persisted), new Set(["Unknown", old, current]), "all their hashes are listed");
  t.not(current, "");
  const shown = JSON.parse((await cluster.ksvm(["status", NAME, "-o", "json"])).stdout) as ClusterStatus;
  t.match(shown.storage, [{ resource: NAME, storageVersion: "unknown", lookedAt: /^20/ }]);
  t.equal(shown.storage?.[0]?.storedVersions?.length, during?.persisted.length);
  t.match(
    (await cluster.ksvm(["status", NAME])).stdout,
    new RegExp(`\nNOT STORED ALIKE .*\n${NAME} .*unknown.* unknown `),
  );
  t.same(await migration.migrations(NAME), [], "the migration that ran is deleted and no other one created");
  t.match(
    trigger.report().waiting.find(({ name }) => name === NAME)?.reason,
    /API servers encode it as .* and /,
    "and it says why it waits",
  );
  t.same(await migration.hashes("secrets"), secrets, "what they agree on is left as it is");

  await controlPlane.restartApiserver(0, NEW);
  const next = await migration.nextMigration(NAME);
  t.equal((await migration.hashes(NAME))?.current, current);
  await migration.setCondition(next, "Succeeded");
  await migration.waitForHashes(NAME, { persisted: [current], current });
});

await t.test("a CRD is migrated only when every API server can be asked", async (t) => {
  const { trigger, ...started } = startTrigger(t, cluster, { endpoints });
  await started.settled();
  const kind = new TestKind("paused");
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await migration.setCondition(await migration.nextMigration(kind.name), "Succeeded");
  const hashes = ["v1alpha1", "v1"].map((version) => storageVersionHashOf(GROUP, version, kind.kind));
  const [old = "", current = ""] = hashes;
  await migration.waitForHashes(kind.name, { persisted: [old], current: old });
  const known = await migration.migrations(kind.name);
  const second = controlPlane.apiservers[1];
  second?.pause();
  await cluster.setVersions(kind, { storage: "v1" });
  await eventually(
    async () =>
      trigger.report().waiting.some(({ name, reason }) => name === kind.name && reason.includes(endpoints[1] ?? "?")),
    "the trigger names the API server that does not answer",
  );
  t.same(await migration.migrations(kind.name), known, "nothing begins while they disagree");
  t.same(await migration.hashes(kind.name), { persisted: [old], current: old });
  second?.resume();
  await migration.nextMigration(kind.name, known);
  t.same(await migration.hashes(kind.name), { persisted: [old, current], current });
});
