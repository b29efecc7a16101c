import t from "tap";
import { CRDS, type KubeObject, LEASES } from "../../src/kube/objects.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { parallel } from "../integration/parallel.ts";
import { Cluster, signal } from "./cluster.ts";

const cluster = await Cluster.start(t);
const { client } = cluster;

parallel("a CRD is migrated, pruned and unfrozen, and no object looks otherwise", async (t) => {
  const kind = new TestKind("plain");
  await cluster.createStale(kind, 30);
  t.same(await cluster.storedAs(kind), { v1alpha1: 30 });
  const before = await cluster.object(kind, "w3");
  const { error, events, result } = await cluster.migrate(kind);
  t.equal(error, undefined);
  t.match(result, {
    outcome: "migrated",
    storedVersions: ["v1"],
    tally: { rewritten: 30, failed: 0, total: 30, changed: 0 },
  });
  t.same(result?.tally?.fieldVersions, {});
  t.same(await cluster.storedAs(kind), { v1: 30 });
  t.same((await cluster.crd(kind)).status?.storedVersions, ["v1"]);
  await cluster.assertNoTraces(t, kind);
  const renamed = before.metadata.managedFields?.map((entry) => ({ ...entry, apiVersion: "example.com/v1" }));
  const seen = ({ metadata, ...rest }: KubeObject): object => ({
    ...rest,
    metadata: { ...metadata, resourceVersion: "" },
  });
  t.strictSame(
    seen(await cluster.object(kind, "w3")),
    seen({ ...before, metadata: { ...before.metadata, managedFields: renamed ?? [] } }),
  );
  const told = events.filter(({ type }) => type !== "progress" && type !== "settling").map(({ type }) => type);
  t.same(told, ["converged", "settled", "frozen", "pruned", "unfrozen"]);

  const again = await cluster.migrate(kind);
  t.match(again.result, { outcome: "nothing-to-do" });
});

parallel("a dry run names what would fail, and changes nothing", async (t) => {
  const kind = new TestKind("dry");
  await cluster.createStale(kind, 3);
  const before = await cluster.crd(kind);
  const { result } = await cluster.migrate(kind, { dryRun: true });
  t.match(result, { outcome: "dry-run", tally: { rewritten: 3 } });
  t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
  t.strictSame(await cluster.crd(kind), before);
});

parallel("a CRD that is missing, or being deleted, is refused", async (t) => {
  const kind = new TestKind("deleted");
  t.match((await cluster.migrate(kind)).error, { code: "ResourceNotFound" });
  await cluster.createStale(kind, 1);
  const finalizers = { metadata: { finalizers: ["example.com/keep"] } };
  await client.patch(cluster.path(kind, "w0"), finalizers, { signal });
  await client.delete(`${CRDS}/${kind.name}`, { signal });
  const { error } = await cluster.migrate(kind);
  t.match(error, { code: "ResourceNotMigratable" });
  t.match(error?.message, /is being deleted/);
  await client.patch(cluster.path(kind, "w0"), { metadata: { finalizers: null } }, { signal });
});

parallel("the storage version cannot be changed while objects are rewritten", async (t) => {
  const kind = new TestKind("guarded");
  await cluster.createStale(kind, 40);
  let denied: Promise<unknown> | undefined;
  const { result } = await cluster.migrate(kind, {
    maxQps: 8,
    onEvent: ({ type }) => {
      if (type !== "frozen") return;
      denied = cluster.setVersions(kind, { storage: "v1alpha1" }).catch((error: unknown) => error);
    },
  });
  t.match(await denied, { status: 403, said: /StorageVersionFrozen: cannot change the storage version/ });
  t.match(result, { outcome: "migrated" });
});

parallel("a change of the spec has the run begin again, and the new storage version is migrated to", async (t) => {
  const kind = new TestKind("edited");
  await cluster.createStale(kind, 60);
  let edit: Promise<unknown> | undefined;
  const { error, events, result } = await cluster.migrate(kind, {
    maxQps: 8,
    onEvent: ({ type }) => {
      if (type !== "frozen" || edit !== undefined) return;
      const body = { spec: { names: { shortNames: [kind.plural.slice(0, 8)] } } };
      edit = client.patch(`${CRDS}/${kind.name}`, body, { signal });
    },
  });
  await edit;
  t.equal(error, undefined);
  t.match(result, { outcome: "migrated" });
  t.ok(events.some(({ type }) => type === "beginsAgain"));
  t.same(await cluster.storedAs(kind), { v1: 60 });
  await cluster.assertNoTraces(t, kind);
});

parallel(
  "what a dead run has begun is migrated although another client pruned, also at the second attempt",
  async (t) => {
    const kind = new TestKind("begun");
    await cluster.createStale(kind, 3);
    await client.patch(`${CRDS}/${kind.name}/status`, { status: { storedVersions: ["v1"] } }, { signal });
    const metadata = { name: `ksvm-migrate.${kind.name}`, namespace: "kube-system" };
    const lease = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec: { holderIdentity: "dead" } };
    await client.create(`${LEASES}/kube-system/leases`, lease, { signal });
    let edit: Promise<unknown> | undefined;
    const { events, result } = await cluster.migrate(kind, {
      onEvent: ({ type }) => {
        if (type !== "settled" || edit !== undefined) return;
        const body = { spec: { names: { shortNames: [kind.plural.slice(0, 8)] } } };
        edit = client.patch(`${CRDS}/${kind.name}`, body, { signal });
      },
    });
    await edit;
    t.ok(events.some(({ type }) => type === "beginsAgain"));
    t.match(result, { outcome: "migrated", tally: { rewritten: 3 } });
    t.same(await cluster.storedAs(kind), { v1: 3 });
    await cluster.assertNoTraces(t, kind);
  },
);

parallel("a user who lifts the freeze stops the migration, and nothing is pruned", async (t) => {
  const kind = new TestKind("lifted");
  await cluster.createStale(kind, 60);
  const { error } = await cluster.migrate(kind, {
    maxQps: 8,
    onEvent: ({ type }) => {
      if (type !== "frozen") return;
      const annotations = { "ksvm.sigs.k8s.io/migrating": null };
      void client.patch(`${CRDS}/${kind.name}`, { metadata: { annotations } }, { signal });
    },
  });
  t.match(error, { code: "FreezeLifted" });
  t.same((await cluster.crd(kind)).status?.storedVersions, ["v1alpha1", "v1"]);
  await cluster.assertUnfrozen(t, kind);
});

parallel("an interrupted run lifts the freeze", async (t) => {
  const kind = new TestKind("interrupt");
  await cluster.createStale(kind, 60);
  const abort = new AbortController();
  const { error } = await cluster.migrate(kind, {
    maxQps: 8,
    signal: abort.signal,
    onEvent: ({ type }) => {
      if (type === "frozen") abort.abort(new Error("interrupted"));
    },
  });
  t.match(error, { message: "interrupted" });
  await cluster.assertUnfrozen(t, kind);
});
