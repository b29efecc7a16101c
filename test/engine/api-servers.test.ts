// Two API servers on one etcd: each has to answer, whatever becomes of the other.
import { setTimeout as sleep } from "node:timers/promises";
import t, { type Test } from "tap";
import { storageVersionHashOf, storedVersionsOf } from "../crd.ts";
import { storageVersionHash } from "../../src/apiservers/converge.ts";
import { askEach, identityLeases } from "../../src/apiservers/find.ts";
import { Interruption } from "../../src/cli/shared/interruption.ts";
import { systemClock } from "../../src/clock.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { connect } from "../../src/kube/connect.ts";
import type { Send } from "../../src/kube/http.ts";
import { LEASES as LEASE_RESOURCE } from "../api-client.ts";
import { LEASES } from "../../src/kube/objects.ts";
import { migrateBuiltIn } from "../../src/migrator/migrate-built-in.ts";
import { migrateCrds } from "../../src/migrator/migrate-crd.ts";
import type { MigrationEvent } from "../../src/migrator/types.ts";
import { assertUnfrozen } from "../integration/assert-no-traces.ts";
import { balance } from "../integration/balancer.ts";
import { Cluster as CliCluster } from "../integration/cluster.ts";
import { GROUP, TestKind } from "../integration/crd-fixture.ts";
import { holdableEtcd } from "../integration/held-etcd.ts";
import { balancer } from "./balancer.ts";
import { Cluster, eventually, signal } from "./cluster.ts";

const cli = await CliCluster.start(t, { overrides: [{ hostname: "alpha" }] });
const { controlPlane } = cli;
const etcd = await holdableEtcd(t, controlPlane.etcd.url);
const CRD_KEYS = "/registry/apiextensions.k8s.io/customresourcedefinitions/";
/** Its way to etcd can be held. */
const SECOND = 1;
await controlPlane.addApiserver({ hostname: "beta", etcdUrl: etcd.url });
const cluster = await Cluster.connect(t, controlPlane);
const { client } = cluster;
const endpoints = controlPlane.apiservers.map(({ url }) => url);
const areBothThere = async (): Promise<boolean> =>
  (await askEach(client, { endpoints }, async () => undefined, signal)).processes.split(" ").length === 2 &&
  (await identityLeases(client, {}, signal)).length === 2;
await eventually(() => areBothThere().catch(() => false), "both are there");

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

await t.test(
  "an API server that has yet to see the storage version go there and back is waited for, and named",
  async (t) => {
    const kind = new TestKind("thereandback");
    await cli.createCrd(kind, { storage: "v1alpha1" });
    await cli.createObjects(kind.resource("v1alpha1"), kind.objects(5, "v1alpha1"));
    await cli.setVersions(kind, { storage: "v1" });
    const showsV1 = async (): Promise<boolean> => {
      const { body } = await controlPlane.request(`/apis/${GROUP}/v1`, { apiserver: SECOND });
      const { resources = [] } = body as { resources?: { name: string; storageVersionHash?: string }[] };
      const hash = resources.find(({ name }) => name === kind.plural)?.storageVersionHash;
      return hash === storageVersionHashOf(GROUP, "v1", kind.kind);
    };
    await eventually(showsV1, "the second API server shows v1");
    etcd.holdWatches(CRD_KEYS);
    t.teardown(() => etcd.letWatchesGo());
    await cli.setVersions(kind, { storage: "v1alpha1" });
    await cli.setVersions(kind, { storage: "v1" });
    let output = "";
    const flags = ["--apiserver-endpoints", endpoints.join()];
    const ended = cli.migrate([kind.name, ...flags], { onStdout: (text) => (output += text) });
    t.ok(await showsV1(), "its discovery knows no better");
    await eventually(async () => output.includes("its watch cache shows generation"), "the run waits");
    t.same(await cli.storedAs(kind), { v1alpha1: 5 }, "nothing is rewritten");
    t.same(storedVersionsOf(await cli.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
    etcd.letWatchesGo();
    const run = await ended;
    t.equal(run.code, 0, run.stdout + run.stderr);
    t.same(await cli.storedAs(kind), { v1: 5 });
    t.same(storedVersionsOf(await cli.crd(kind)), ["v1"]);
  },
);

await t.test("an API server that has not observed the guard keeps a run from rewriting", async (t) => {
  const kind = new TestKind("unguarded");
  await cli.createStale(kind, 5);
  etcd.holdWatches("/registry/validatingadmissionpolic");
  t.teardown(() => etcd.letWatchesGo());
  const ended = cli.migrate([kind.name, "--apiserver-endpoints", endpoints.join()]);
  const isFrozen = async (): Promise<boolean> => (await cli.crd(kind)).metadata.annotations?.[MIGRATING] !== undefined;
  await eventually(isFrozen, "the CRD is annotated");
  await sleep(4_000);
  t.same(await cli.storedAs(kind), { v1alpha1: 5 }, "nothing is rewritten before the guard is proven");
  etcd.letWatchesGo();
  const run = await ended;
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await cli.storedAs(kind), { v1: 5 });
});

await t.test("a field that the schema gains before the first list is lost by no object", async (t) => {
  const kind = new TestKind("gains");
  const withFields = (...names: readonly string[]) => ({
    type: "object",
    properties: Object.fromEntries(names.map((name) => [name, { type: "integer" }])),
  });
  await cli.createCrd(kind, { storage: "v1alpha1", specSchema: withFields("size") });
  await cli.createObjects(kind.resource("v1alpha1"), kind.objects(5, "v1alpha1"));
  await cli.setVersions(kind, { storage: "v1", specSchema: withFields("size") });

  // Before the first list of the run another client changes the schema, which the API server of the run is late to see.
  const coloured = { ...kind.object("coloured", "v1"), spec: { size: 1, color: 2 } };
  const gain = async (): Promise<void> => {
    etcd.holdWatches(CRD_KEYS);
    t.teardown(() => etcd.letWatchesGo());
    await cli.setVersions(kind, { storage: "v1", specSchema: withFields("size", "color") });
    const keepsIt = async (): Promise<boolean> => {
      const tried = await cli.api.create(kind.resource("v1"), coloured, { dryRun: true });
      return Object.hasOwn((tried as { spec?: object }).spec ?? {}, "color");
    };
    await eventually(keepsIt, "the first API server has observed the field");
    await cli.api.create(kind.resource("v1"), coloured);
  };
  let isFrozen = false;
  let isGained = false;
  const around =
    (send: Send): Send =>
    async (request) => {
      const isList = request.method === "GET" && request.path.endsWith(`/v1/${kind.plural}`);
      if (isFrozen && !isGained && isList) {
        isGained = true;
        await gain();
      }
      return send(request);
    };
  const server = controlPlane.apiservers[SECOND]?.url;
  const { signal } = new AbortController();
  const { client, close } = await connect(
    { kubeconfig: cli.kubeconfig, server, variables: {} },
    { clock: systemClock, random: Math.random, signal, around },
  );
  t.teardown(close);
  const [end] = await migrateCrds(client, [kind.name], {
    identity: "late",
    settleMs: 50,
    endpoints: endpoints,
    signal,
    onEvent: ({ type }) => {
      if (type === "frozen") isFrozen = true;
      if (type === "waiting") etcd.letWatchesGo();
    },
  });
  t.ok(isGained);
  t.match(end, { result: { outcome: "migrated" } });
  t.same(await cli.storedAs(kind), { v1: 6 });
  const found = await cli.api.get(kind.resource("v1"), { name: "coloured", namespace: "default" });
  t.match(found, { spec: { size: 1, color: 2 } });
});
/** An identity Lease, as of an API server that nobody sees. It goes with the test. */
async function addIdentityLease(t: Test, name: string): Promise<void> {
  const labels = { "apiserver.kubernetes.io/identity": "kube-apiserver" };
  const metadata = { name, namespace: "kube-system", labels };
  const renewTime = new Date().toISOString().replace("Z", "000Z");
  const spec = { holderIdentity: `${name}_1`, leaseDurationSeconds: 3_600, renewTime };
  await cli.api.create(LEASE_RESOURCE, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec });
  t.teardown(() => cli.api.delete(LEASE_RESOURCE, metadata));
}

/** Neither frozen, nor rewritten, nor pruned. */
async function assertUntouched(t: Test, kind: TestKind, objects: number): Promise<void> {
  t.same(await cli.storedAs(kind), { v1alpha1: objects }, "nothing is rewritten");
  t.same(storedVersionsOf(await cli.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
  await assertUnfrozen(t, cli, kind);
}

/** A run that waits for an API server until it is interrupted. */
async function assertWaits(t: Test, kind: TestKind, flags: readonly string[], named: string): Promise<void> {
  const interrupt = new AbortController();
  let output = "";
  const ended = cli.migrate([kind.name, ...flags], {
    signal: interrupt.signal,
    onStdout: (text) => (output += text),
  });
  const isOver = ended.then(({ code, stderr }) => {
    throw new Error(`the run ended with ${code}: ${output}${stderr}`);
  });
  await Promise.race([eventually(async () => output.includes(named), `the run waits, and names ${named}`), isOver]);
  isOver.catch(() => undefined);
  interrupt.abort(new Interruption("SIGINT"));
  t.equal((await ended).code, 130);
  await assertUntouched(t, kind, 5);
}

await t.test("one that is named and never answers is waited for, and named", async (t) => {
  const kind = new TestKind("dead");
  await cli.createStale(kind, 5);
  const dead = "https://127.0.0.1:1";
  await assertWaits(t, kind, ["--apiserver-endpoints", `${endpoints[0]},${dead}`], dead);
});

await t.test("behind a load balancer new connections find all of them, and the output says so", async (t) => {
  const kind = new TestKind("balanced");
  await cli.createStale(kind, 5);
  const balancer = await balance(t, controlPlane, endpoints);
  const run = await cli.migrate([kind.name, "--kubeconfig", balancer.kubeconfig]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, /\(2, sampled\)/);
  t.same(await cli.storedAs(kind), { v1: 5 });
});

await t.test("an identity Lease without an API server is waited for, and named", async (t) => {
  const kind = new TestKind("replaced");
  await cli.createStale(kind, 5);
  await addIdentityLease(t, "apiserver-of-a-replaced-host");
  const balancer = await balance(t, controlPlane, endpoints);
  await assertWaits(t, kind, ["--kubeconfig", balancer.kubeconfig], "apiserver-of-a-replaced-host");
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
