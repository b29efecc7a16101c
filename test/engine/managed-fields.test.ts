import t from "tap";
import { REWRITE_FIELD_MANAGER } from "../../src/api/names.ts";
import { APPLY_PATCH, type KubeObject } from "../../src/kube/objects.ts";
import { areSame, renamed, withoutGone } from "../../src/migrator/managed-fields.ts";
import { conversionBy, serveConversion } from "../integration/serve-webhook.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { parallel } from "../integration/parallel.ts";
import { Cluster, signal } from "./cluster.ts";

const cluster = await Cluster.start(t);
const { client } = cluster;

const entry = (apiVersion: string, fieldsV1: Record<string, unknown>, rest: object = {}): object => ({
  manager: "m",
  operation: "Update",
  apiVersion,
  fieldsType: "FieldsV1",
  fieldsV1,
  ...rest,
});

parallel("entries of other versions are renamed, and merged where their manager has one already", async (t) => {
  const wanted = "example.com/v1";
  t.equal(renamed([entry(wanted, { "f:a": {} })], wanted), undefined);
  t.equal(renamed([entry("v1", { "f:a": {} })], wanted), undefined, "another group is left alone");
  t.strictSame(renamed([entry("example.com/v1beta1", { "f:a": {} })], wanted), [entry(wanted, { "f:a": {} })]);
  const merged = renamed(
    [
      entry("example.com/v1beta1", { "f:spec": { "f:a": {}, "f:b": { "f:c": {} } } }, { time: "2026-01-02T00:00:00Z" }),
      entry(wanted, { "f:spec": { "f:b": {}, "f:d": {} } }, { time: "2026-01-01T00:00:00Z" }),
      entry("example.com/v1beta1", { "f:status": {} }, { subresource: "status" }),
    ],
    wanted,
  );
  const fields = { "f:spec": { "f:a": {}, "f:b": { ".": {}, "f:c": {} }, "f:d": {} } };
  t.strictSame(merged, [
    entry(wanted, fields, { time: "2026-01-02T00:00:00Z" }),
    entry(wanted, { "f:status": {} }, { subresource: "status" }),
  ]);
});

parallel("entries of versions that are gone are removed, and one is left", async (t) => {
  const [old, other, now] = ["v1alpha1", "v1beta1", "v1"].map((version) =>
    entry(`example.com/${version}`, { "f:a": {} }),
  );
  const isThere = (version: string): boolean => version !== "v1alpha1";
  t.equal(withoutGone([other, now] as object[], "example.com/v1", isThere), undefined);
  t.strictSame(withoutGone([old, other] as object[], "example.com/v1", isThere), [other]);
  t.match(withoutGone([old] as object[], "example.com/v1", isThere), [
    { manager: "m", operation: "Apply", apiVersion: "example.com/v1", fieldsV1: { "f:metadata": { "f:name": {} } } },
  ]);
});

parallel("an API server may sort entries and the fields in them", async (t) => {
  const [a, b] = [entry("v1", { "f:a": {}, "f:b": {} }), entry("v1", { "f:c": {} }, { manager: "n" })];
  t.ok(areSame([a, b] as object[], [b, entry("v1", { "f:b": {}, "f:a": {} })] as object[]));
  t.notOk(areSame([a] as object[], [a, b] as object[]));
});

async function applyObject(
  kind: TestKind,
  version: string,
  { name = "w0", spec = { a: "q" } }: { readonly name?: string; readonly spec?: object } = {},
): Promise<KubeObject> {
  const body = { ...kind.object(name, version), spec };
  const options = { fieldManager: "applier", query: { force: true }, signal };
  return client.patch(cluster.path(kind, name, version), body, options, APPLY_PATCH);
}

async function dropOld(kind: TestKind, shape: object = {}): Promise<void> {
  await cluster.setVersions(kind, { versions: ["v1"], storage: "v1", ...shape });
}

parallel("server-side apply works after a migration and dropping the old version", async (t) => {
  const kind = new TestKind("applied");
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await applyObject(kind, "v1alpha1");
  await cluster.setVersions(kind, { storage: "v1" });
  const { result } = await cluster.migrate(kind);
  t.match(result, { outcome: "migrated", tally: { rewritten: 1, changed: 0, fieldVersions: {} } });
  await dropOld(kind);
  const applied = await applyObject(kind, "v1", { spec: { a: "new" } });
  t.match(applied, { spec: { a: "new" } });
  t.match(applied.metadata.managedFields, [{ manager: "applier", apiVersion: "example.com/v1" }]);
});

const schema = (...names: string[]): object => ({
  type: "object",
  properties: Object.fromEntries(
    names.map((name) => [name, { type: "string", ...(name === "b" ? { default: "d" } : {}) }]),
  ),
});

parallel("a default of the new schema does not break server-side apply, nor an object in that state", async (t) => {
  const kind = new TestKind("default");
  const specSchemas = { v1alpha1: schema("a"), v1: schema("a", "b") };
  await cluster.createCrd(kind, { storage: "v1alpha1", specSchemas });
  await applyObject(kind, "v1alpha1");
  await cluster.setVersions(kind, { storage: "v1", specSchemas });
  let [frozenAt, prunedAt] = [0, 0];
  const { result } = await cluster.migrate(kind, {
    onEvent: ({ type }) => {
      if (type === "frozen") frozenAt = performance.now();
      if (type === "pruned") prunedAt = performance.now();
    },
  });
  t.match(result, { outcome: "migrated", tally: { rewritten: 1, failed: 0 } });
  t.ok(prunedAt - frozenAt < 20_000, "it is no reason to retry");
  const { metadata } = await client.get<KubeObject>(cluster.path(kind, "w0", "v1"), { signal });
  t.notOk(
    metadata.managedFields?.some(({ manager }) => manager === REWRITE_FIELD_MANAGER),
    "the default has no owner",
  );
  t.match(await applyObject(kind, "v1"), { spec: { a: "q", b: "d" } });
  const body = { ...kind.object("w0", "v1"), spec: { b: "z" } };
  const applied = client.patch(cluster.path(kind, "w0", "v1"), body, { fieldManager: "other", signal }, APPLY_PATCH);
  t.match(await applied, { spec: { a: "q", b: "z" } }, "no conflict");
  t.same(await cluster.storedAs(kind), { v1: 1 });
});

parallel("an object without managedFields is written without giving it an owner", async (t) => {
  const kind = new TestKind("unowned");
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await cluster.createObjects(kind, kind.objects(1, "v1alpha1"), "v1alpha1");
  await client.patch(cluster.path(kind, "w0"), { metadata: { managedFields: [{}] } }, { signal });
  await cluster.setVersions(kind, { storage: "v1" });
  const { result } = await cluster.migrate(kind);
  t.match(result, { outcome: "migrated", tally: { rewritten: 1, changed: 0 } });
  t.same((await cluster.object(kind, "w0")).metadata.managedFields ?? [], []);
  t.same(await cluster.storedAs(kind), { v1: 1 });
});

parallel("where a webhook converts, entries stay until their version has left the CRD", async (t) => {
  const webhook = await serveConversion(t);
  const kind = new TestKind("hooked");
  const shape = { versions: ["v1alpha1", "v1beta1", "v1"], conversion: conversionBy(webhook) };
  await cluster.createCrd(kind, { ...shape, storage: "v1alpha1" });
  await applyObject(kind, "v1alpha1");
  await cluster.setVersions(kind, { ...shape, storage: "v1" });
  const first = await cluster.migrate(kind);
  t.match(first.result, { outcome: "migrated", tally: { rewritten: 1, changed: 0, fieldVersions: { v1alpha1: 1 } } });
  await cluster.setVersions(kind, { ...shape, storage: "v1", unserved: ["v1alpha1"] });
  const second = await cluster.migrate(kind, { force: true });
  t.match(second.result, { outcome: "migrated", tally: { failed: 0, changed: 0, fieldVersions: { v1alpha1: 1 } } });
  await dropOld(kind, { versions: ["v1beta1", "v1"] });
  const third = await cluster.migrate(kind, { force: true });
  t.match(third.result, { outcome: "migrated", tally: { failed: 0, changed: 0, fieldVersions: {} } });
  t.match(await applyObject(kind, "v1", { spec: { a: "new" } }), { spec: { a: "new" } });
});

parallel(
  "entries of versions that are gone are removed although the conversion webhook is down for a while",
  async (t) => {
    let isRefused = false;
    const webhook = await serveConversion(t, (name) => isRefused && name === "w1");
    const kind = new TestKind("wiped");
    const shape = { versions: ["v1alpha1", "v1beta1", "v1"], storage: "v1", conversion: conversionBy(webhook) };
    await cluster.createCrd(kind, shape);
    const label = { metadata: { labels: { old: "yes" } } };
    for (const name of ["w0", "w1"]) {
      await applyObject(kind, "v1beta1", { name });
      await client.patch(cluster.path(kind, name, "v1alpha1"), label, { fieldManager: "old", signal });
    }
    await dropOld(kind, { ...shape, versions: ["v1beta1", "v1"] });
    isRefused = true;
    const { result } = await cluster.migrate(kind, {
      force: true,
      onEvent: ({ type }) => {
        if (type !== "frozen") return;
        webhook.setDown(true);
        setTimeout(() => webhook.setDown(false), 5_000);
      },
    });
    t.match(
      result,
      { outcome: "migrated", tally: { failed: 0, changed: 1 } },
      "w1 stays as it is, or loses its entries",
    );
    const { metadata } = await client.get<KubeObject>(cluster.path(kind, "w0", "v1"), { signal });
    t.match(metadata.managedFields, [{ manager: "applier" }]);
    t.equal(metadata.managedFields?.length, 1);
  },
);

parallel("an object that a client goes on to write in the old version gets its entries renamed, too", async (t) => {
  const kind = new TestKind("late");
  await cluster.createStale(kind, 60);
  let write: Promise<unknown> | undefined;
  const { result } = await cluster.migrate(kind, {
    maxQps: 8,
    onEvent: ({ type }) => {
      if (type !== "progress" || write !== undefined) return;
      // The last one of the list, which is written again before the run gets there.
      const body = { metadata: { labels: { late: "yes" } } };
      write = client.patch(cluster.path(kind, "w9", "v1alpha1"), body, { fieldManager: "late", signal });
    },
  });
  await write;
  t.match(result, { outcome: "migrated", tally: { newer: 1, rewritten: 59, fieldVersions: {} } });
  const { metadata } = await cluster.object(kind, "w9");
  t.ok(metadata.managedFields?.every(({ apiVersion }) => apiVersion === "example.com/v1"));
});
