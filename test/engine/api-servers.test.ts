// Two API servers on one etcd: each has to answer, whatever becomes of the other.
import t from "tap";
import { storageVersionHash } from "../../src/apiservers/converge.ts";
import { askEach } from "../../src/apiservers/find.ts";
import { LEASES } from "../../src/kube/objects.ts";
import { migrateBuiltIn } from "../../src/migrator/migrate-built-in.ts";
import type { MigrationEvent } from "../../src/migrator/types.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { balancer } from "./balancer.ts";
import { Cluster, eventually, signal } from "./cluster.ts";

const overrides = [{ hostname: "alpha" }, { hostname: "beta" }];
const cluster = await Cluster.start(t, { apiservers: 2, overrides });
const { client, controlPlane } = cluster;
const endpoints = controlPlane.apiservers.map(({ url }) => url);

await t.test("each of those that a user names is asked", async (t) => {
  const { answers, isSampled } = await askEach(client, { endpoints }, (one) => one.get("/version", { signal }), signal);
  t.same(answers.map(({ address }) => address).toSorted(), endpoints.toSorted());
  t.notOk(isSampled);
  await t.rejects(
    askEach(client, { endpoints: [endpoints[0] ?? "", endpoints[0] ?? ""] }, async () => undefined, signal),
    { code: "ApiServerMissing", message: /1 of 2 answer/ },
    "one that is named twice counts once",
  );
});

await t.test("behind a balancer of connections they are told apart", async (t) => {
  const { address, close } = await balancer(endpoints);
  t.teardown(close);
  const through = client.over(undefined, address);
  const { answers, isSampled, processes } = await askEach(through, {}, async () => undefined, signal);
  t.equal(answers.length, 2);
  t.ok(isSampled);
  t.equal(processes.split(" ").length, 4, "two Leases and two processes");
});

await t.test("a CRD is migrated with each of them asked", async (t) => {
  const kind = new TestKind("both");
  await cluster.createStale(kind, 20);
  const { events, result } = await cluster.migrate(kind, { endpoints });
  t.match(result, { outcome: "migrated" });
  t.ok(events.some((event) => event.type === "frozen" && event.apiServers === 2));
  t.same(await cluster.storedAs(kind), { v1: 20 });
});

await t.test("one that hangs in mid-run keeps the run from pruning, until it goes on", async (t) => {
  const kind = new TestKind("hung");
  await cluster.createStale(kind, 60);
  const second = controlPlane.apiservers[1];
  let waited = false;
  const { error, result } = await cluster.migrate(kind, {
    endpoints,
    maxQps: 20,
    onEvent: (event) => {
      if (event.type === "frozen" && !waited) second?.pause();
      if (event.type !== "waiting" || waited) return;
      waited = true;
      void (async () => {
        await cluster.assertUnfrozen(t, kind);
        t.same((await cluster.crd(kind)).status?.storedVersions, ["v1alpha1", "v1"]);
        second?.resume();
      })();
    },
  });
  t.equal(error, undefined);
  t.ok(waited);
  t.match(result, { outcome: "migrated" });
  t.same(await cluster.storedAs(kind), { v1: 60 });
});

await t.test("built-in resources are rewritten, and their API servers agree", async (t) => {
  const path = "/api/v1/namespaces/default/configmaps";
  for (let n = 0; n < 5; n++) await client.create(path, { metadata: { name: `c${n}` }, data: { a: "1" } }, { signal });
  const events: MigrationEvent[] = [];
  const options = {
    identity: "built-in",
    settleMs: 50,
    endpoints,
    signal,
    onEvent: (event: MigrationEvent) => events.push(event),
  };
  const result = await migrateBuiltIn(client, "configmaps", options);
  t.match(result, { outcome: "migrated", tally: { failed: 0 } });
  t.ok((result.tally?.current ?? 0) >= 5, "nothing is written that is stored so already");
  t.match(result.epoch, storageVersionHash("", "v1", "ConfigMap"));
  t.equal(await client.find(`${LEASES}/kube-system/leases/ksvm-migrate.configmaps`, { signal }), undefined);
  await t.rejects(migrateBuiltIn(client, "bindings", options as never), { code: "ResourceNotMigratable" });
  await t.rejects(migrateBuiltIn(client, "nothing.apps", options as never), { code: "ResourceNotFound" });
});

await t.test("one that is started anew in mid-run has a built-in run begin again", async (t) => {
  const second = controlPlane.apiservers[1];
  let restarted: Promise<unknown> | undefined;
  const events: MigrationEvent[] = [];
  const result = await migrateBuiltIn(client, "configmaps", {
    identity: "restarted",
    settleMs: 50,
    endpoints,
    maxQps: 2,
    signal,
    onEvent: (event) => {
      events.push(event);
      if (event.type === "progress") restarted ??= second?.restart();
    },
  });
  await restarted;
  t.ok(events.some(({ type }) => type === "beginsAgain"));
  t.match(result, { outcome: "migrated" });
});

await t.test("one that is gone is ignored by the name of its Lease", async (t) => {
  const kind = new TestKind("gone");
  await cluster.createStale(kind, 5);
  const leases = await client.list<{ metadata: { name: string; labels: Record<string, string> } }>(
    `${LEASES}/kube-system/leases`,
    { query: { labelSelector: "apiserver.kubernetes.io/identity=kube-apiserver" }, signal },
  );
  const beta = leases.items.find(({ metadata }) => metadata.labels["kubernetes.io/hostname"] === "beta")?.metadata.name;
  const alive = await cluster.migrate(kind, { ignored: [beta ?? ""], settleMs: 60_000 });
  t.match(alive.error, { code: "Usage", message: /has renewed its identity Lease/ });
  await controlPlane.apiservers[1]?.stop();
  await eventually(async () => true, "it is gone");
  const { error, result } = await cluster.migrate(kind, { ignored: [beta ?? ""], settleMs: 15_000 });
  t.equal(error, undefined);
  t.match(result, { outcome: "migrated" });
});
