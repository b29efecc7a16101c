import { setTimeout as sleep } from "node:timers/promises";
import t from "tap";
import { storageVersionHashOf, storedVersionsOf } from "../crd.ts";
import { systemClock } from "../../src/clock.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { connect } from "../../src/kube/connect.ts";
import type { Send } from "../../src/kube/http.ts";
import { migrateCrds } from "../../src/migrator/migrate-crd.ts";
import { Cluster, eventually } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { holdableEtcd } from "./held-etcd.ts";

const SECOND = 1;
const CRD_KEYS = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

const cluster = await Cluster.start(t, { overrides: [{ hostname: "control-plane-1" }] });
const { controlPlane } = cluster;
const etcd = await holdableEtcd(t, controlPlane.etcd.url);
await controlPlane.addApiserver({ hostname: "control-plane-2", etcdUrl: etcd.url });
const ENDPOINTS = controlPlane.apiservers.map(({ url }) => url).join(",");

await t.test(
  "an API server that has yet to see the storage version go there and back is waited for, and named",
  async (t) => {
    const kind = new TestKind("thereandback");
    await cluster.createCrd(kind, { storage: "v1alpha1" });
    await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(5, "v1alpha1"));
    await cluster.setVersions(kind, { storage: "v1" });
    const showsV1 = async (): Promise<boolean> => {
      const { body } = await controlPlane.request(`/apis/${GROUP}/v1`, { apiserver: SECOND });
      const { resources } = body as { resources: { name: string; storageVersionHash?: string }[] };
      const hash = resources.find(({ name }) => name === kind.plural)?.storageVersionHash;
      return hash === storageVersionHashOf(GROUP, "v1", kind.kind);
    };
    await eventually(showsV1, "the second API server shows v1");
    etcd.holdWatches(CRD_KEYS);
    t.teardown(() => etcd.letWatchesGo());
    await cluster.setVersions(kind, { storage: "v1alpha1" });
    await cluster.setVersions(kind, { storage: "v1" });
    let output = "";
    const flags = ["--apiserver-endpoints", ENDPOINTS];
    const ended = cluster.migrate([kind.name, ...flags], { onStdout: (text) => (output += text) });
    t.ok(await showsV1(), "its discovery knows no better");
    await eventually(async () => output.includes("its watch cache shows generation"), "the run waits", 60_000);
    t.same(await cluster.storedAs(kind), { v1alpha1: 5 }, "nothing is rewritten");
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
    etcd.letWatchesGo();
    const run = await ended;
    t.equal(run.code, 0, run.stdout + run.stderr);
    t.same(await cluster.storedAs(kind), { v1: 5 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  },
);

await t.test("an API server that has not observed the guard keeps a run from rewriting", async (t) => {
  const kind = new TestKind("unguarded");
  await cluster.createStale(kind, 5);
  etcd.holdWatches("/registry/validatingadmissionpolic");
  t.teardown(() => etcd.letWatchesGo());
  const ended = cluster.migrate([kind.name, "--apiserver-endpoints", ENDPOINTS]);
  const isFrozen = async (): Promise<boolean> =>
    (await cluster.crd(kind)).metadata.annotations?.[MIGRATING] !== undefined;
  await eventually(isFrozen, "the CRD is annotated");
  await sleep(4_000);
  t.same(await cluster.storedAs(kind), { v1alpha1: 5 }, "nothing is rewritten before the guard is proven");
  etcd.letWatchesGo();
  const run = await ended;
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await cluster.storedAs(kind), { v1: 5 });
});

await t.test("a field that the schema gains before the first list is lost by no object", async (t) => {
  const kind = new TestKind("gains");
  const withFields = (...names: readonly string[]) => ({
    type: "object",
    properties: Object.fromEntries(names.map((name) => [name, { type: "integer" }])),
  });
  await cluster.createCrd(kind, { storage: "v1alpha1", specSchema: withFields("size") });
  await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(5, "v1alpha1"));
  await cluster.setVersions(kind, { storage: "v1", specSchema: withFields("size") });

  // Before the first list of the run another client changes the schema, which the API server of the run is late to see.
  const coloured = { ...kind.object("coloured", "v1"), spec: { size: 1, color: 2 } };
  const gain = async (): Promise<void> => {
    etcd.holdWatches(CRD_KEYS);
    t.teardown(() => etcd.letWatchesGo());
    await cluster.setVersions(kind, { storage: "v1", specSchema: withFields("size", "color") });
    const keepsIt = async (): Promise<boolean> => {
      const tried = await cluster.api.create(kind.resource("v1"), coloured, { dryRun: true });
      return Object.hasOwn((tried as { spec?: object }).spec ?? {}, "color");
    };
    await eventually(keepsIt, "the first API server has observed the field");
    await cluster.api.create(kind.resource("v1"), coloured);
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
    { kubeconfig: cluster.kubeconfig, server, variables: {} },
    { clock: systemClock, random: Math.random, signal, around },
  );
  t.teardown(close);
  const [end] = await migrateCrds(client, [kind.name], {
    identity: "late",
    settleMs: 50,
    endpoints: ENDPOINTS.split(","),
    signal,
    onEvent: ({ type }) => {
      if (type === "frozen") isFrozen = true;
      if (type === "waiting") etcd.letWatchesGo();
    },
  });
  t.ok(isGained);
  t.match(end, { result: { outcome: "migrated" } });
  t.same(await cluster.storedAs(kind), { v1: 6 });
  const found = await cluster.api.get(kind.resource("v1"), { name: "coloured", namespace: "default" });
  t.match(found, { spec: { size: 1, color: 2 } });
});
