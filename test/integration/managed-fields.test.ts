import t from "tap";
import { APPLY_PATCH, MERGE_PATCH, type Resource } from "../api-client.ts";
import { asTheUserSees, type WholeObject } from "./as-user-sees.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { parallel } from "./parallel.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;

/** Takes all managedFields off an object, as one has that was created before Kubernetes 1.18. */
async function forgetManagers(resource: Resource, name: string): Promise<void> {
  const body = { metadata: { managedFields: [{}] } };
  const ref = { name, namespace: "default" };
  const { metadata } = await api.patch<WholeObject>(resource, ref, { type: MERGE_PATCH, body });
  t.same(metadata.managedFields ?? [], []);
}

const CASES = [
  ["that has no managedFields", async (resource: Resource) => forgetManagers(resource, "w0")],
  ["that has managedFields of an update", async () => undefined],
  [
    "that has managedFields of an apply and of an update",
    async (resource: Resource, kind: TestKind) => {
      const ref = { name: "w0", namespace: "default" };
      const body = { ...kind.object("w0", resource.version), spec: { applied: true } };
      await api.patch(resource, ref, { type: APPLY_PATCH, body }, { fieldManager: "applier", force: true });
    },
  ],
] as const;

for (const [words, prepare] of CASES) {
  parallel(`migrate changes nothing that a user sees of an object ${words}`, async (t) => {
    const kind = new TestKind("managed");
    await cluster.createCrd(kind, { storage: "v1alpha1" });
    await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(1, "v1alpha1"));
    await prepare(kind.resource("v1alpha1"), kind);
    await cluster.setVersions(kind, { storage: "v1" });
    const ref = { name: "w0", namespace: "default" };
    const before = await api.get<WholeObject>(kind.resource("v1"), ref);

    const tried = await cluster.migrate([kind.name, "--dry-run"]);
    t.equal(tried.code, 0, tried.stderr);
    t.strictSame(await api.get<WholeObject>(kind.resource("v1"), ref), before);

    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 0, run.stderr);
    t.match(run.stdout, /: 1 rewritten; storedVersions is \[v1\]/);
    const after = await api.get<WholeObject>(kind.resource("v1"), ref);
    const renamed = before.metadata.managedFields?.map((entry) => ({ ...entry, apiVersion: "example.com/v1" }));
    const managedFields = renamed === undefined ? {} : { managedFields: renamed };
    t.strictSame(
      asTheUserSees(after),
      asTheUserSees({ ...before, metadata: { ...before.metadata, ...managedFields } }),
    );
    t.not(after.metadata.resourceVersion, before.metadata.resourceVersion);
    t.same(await cluster.storedAs(kind), { v1: 1 });
    await assertNoTraces(t, cluster, kind);
  });
}

parallel("migrate writes nothing to an object of a built-in resource that has no managedFields", async (t) => {
  const configMaps = { group: "", version: "v1", resource: "configmaps" };
  const ref = { name: "unmanaged", namespace: "default" };
  await api.create(configMaps, { apiVersion: "v1", kind: "ConfigMap", metadata: ref, data: { a: "1" } });
  await forgetManagers(configMaps, ref.name);
  const before = await api.get<WholeObject>(configMaps, ref);
  const run = await cluster.migrate(["configmaps"]);
  t.equal(run.code, 0, run.stderr);
  t.strictSame(await api.get<WholeObject>(configMaps, ref), before, "not even the resourceVersion");
});

parallel(
  "negative control: an apply gives an object without managedFields an entry that owns every field",
  async (t) => {
    const kind = new TestKind("owned");
    await cluster.createCrd(kind, { storage: "v1" });
    await cluster.createObjects(kind.resource("v1"), kind.objects(1, "v1"));
    await forgetManagers(kind.resource("v1"), "w0");
    const ref = { name: "w0", namespace: "default" };
    const body = { apiVersion: `${GROUP}/v1`, kind: kind.kind, metadata: ref };
    await api.patch(kind.resource("v1"), ref, { type: APPLY_PATCH, body }, { fieldManager: "ksvm" });
    const written = await api.get<WholeObject>(kind.resource("v1"), ref);
    t.match(written.metadata.managedFields, [{ manager: "before-first-apply" }]);
  },
);
