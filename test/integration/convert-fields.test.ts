import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import type { ManagedFieldsEntry } from "../../src/api/meta.ts";
import { messageOf } from "../../src/errors.ts";
import { areSame, renamed } from "../../src/migrator/managed-fields.ts";
import { APPLY_PATCH, CRDS, JSON_PATCH, MERGE_PATCH, objectPath } from "../api-client.ts";
import type { CheckEntry } from "../../src/inventory/upgrade.ts";
import { asTheUserSees, type WholeObject } from "./as-user-sees.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { fileOf } from "./crd-file.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { parallel } from "./parallel.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;

const SHAPE = { storage: "v1", statusSubresource: true };
const GONE = /request to convert CR to an invalid group\/version: example\.com\/v1alpha1/;

function refOf(name: string) {
  return { name, namespace: "default" };
}

interface Applied {
  readonly version: string;
  readonly manager: string;
  readonly fields: object;
  readonly subresource?: "status";
}

function applyAs(kind: TestKind, name: string, { fields, manager, subresource, version }: Applied): Promise<unknown> {
  const metadata = { ...refOf(name), labels: { app: name } };
  const part = subresource === undefined ? { metadata, spec: fields } : { metadata: refOf(name), status: fields };
  const body = { apiVersion: `${GROUP}/${version}`, kind: kind.kind, ...part };
  const options = { fieldManager: manager, force: true, ...(subresource === undefined ? {} : { subresource }) };
  return api.patch(kind.resource(version), refOf(name), { type: APPLY_PATCH, body }, options);
}

async function updateAs(kind: TestKind, name: string, { fields, manager, version }: Applied): Promise<void> {
  const patch = { type: MERGE_PATCH, body: { spec: fields } };
  await api.patch(kind.resource(version), refOf(name), patch, { fieldManager: manager });
}

/**
 * Objects stored as v1alpha1, whose managedFields name that version: of an applier, of a client that updates and has done so in v1 as
 * well, and of the status. Their CRD stores v1 then.
 */
async function createApplied(kind: TestKind, names: readonly string[], shape: object = {}): Promise<void> {
  await cluster.createCrd(kind, { ...SHAPE, ...shape, storage: "v1alpha1" });
  for (const name of names) {
    const old = { version: "v1alpha1", manager: "operator" };
    await applyAs(kind, name, { ...old, manager: "applier", fields: { size: 1, parts: [{ name: "a<b" }] } });
    await updateAs(kind, name, { ...old, fields: { first: { a: 1 } } });
    await updateAs(kind, name, { ...old, version: "v1", fields: { first: { b: 2 }, second: true } });
    await applyAs(kind, name, { ...old, manager: "status", fields: { ready: true }, subresource: "status" });
  }
  await cluster.setVersions(kind, { ...SHAPE, ...shape });
}

function objectOf(kind: TestKind, name: string): Promise<WholeObject> {
  return api.get<WholeObject>(kind.resource("v1"), refOf(name));
}

function versionsIn({ metadata }: WholeObject): readonly (string | undefined)[] {
  return (metadata.managedFields ?? []).map(({ apiVersion }) => apiVersion);
}

/** Takes v1alpha1 off the CRD, and waits until it is gone. */
async function dropOldVersion(kind: TestKind): Promise<void> {
  await cluster.setVersions(kind, { ...SHAPE, versions: ["v1"] });
  await cluster.waitForVersion(kind, "v1alpha1", false);
}

async function applyError(kind: TestKind, name: string): Promise<string> {
  const applied = { version: "v1", manager: "applier", fields: { size: 2, parts: [{ name: "a<b" }] } };
  return applyAs(kind, name, applied).then(() => "", messageOf);
}

/** Writes objects of v1 without looking at their managedFields, and prunes, as migrators without that care do. */
async function rewriteAsTheyAre(kind: TestKind, names: readonly string[]): Promise<void> {
  for (const name of names) {
    const body = { apiVersion: `${GROUP}/v1`, kind: kind.kind, metadata: refOf(name) };
    await api.patch(kind.resource("v1"), refOf(name), { type: APPLY_PATCH, body }, { fieldManager: "careless" });
  }
  const body = { status: { storedVersions: ["v1"] } };
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body }, { subresource: "status" });
}

function withoutFields(object: WholeObject): object {
  return { ...asTheUserSees(object), metadata: { ...object.metadata, resourceVersion: "", managedFields: [] } };
}

/** What a manager owns, whatever version it wrote in. */
function ownedBy({ metadata }: WholeObject): Record<string, unknown> {
  const owned: Record<string, { readonly fields: string[]; readonly times: string[] }> = {};
  for (const { manager, operation, subresource, time = "", fieldsV1 } of metadata.managedFields ?? []) {
    const key = JSON.stringify([manager, operation, subresource]);
    const { fields = [], times = [] } = owned[key] ?? {};
    owned[key] = { fields: [...fields, ...pathsOf(fieldsV1 ?? {})].toSorted(), times: [...times, time] };
  }
  return Object.fromEntries(
    Object.entries(owned).map(([key, { fields, times }]) => [
      key,
      { fields: [...new Set(fields)], time: times.toSorted().at(-1) },
    ]),
  );
}

function pathsOf(set: Readonly<Record<string, unknown>>): readonly string[] {
  return Object.entries(set).flatMap(([key, below]) => {
    const paths = pathsOf(below as ManagedFieldsEntry["fieldsV1"] & object);
    return paths.length === 0 ? [key] : paths.map((path) => `${key}/${path}`);
  });
}

parallel("server-side apply of every object works after migrate -f --apply has dropped a version", async (t) => {
  const kind = new TestKind("applied");
  const names = ["w0", "w1", "w2"];
  await cluster.createCrd(kind, { ...SHAPE, versions: ["v1alpha1"], storage: "v1alpha1" });
  for (const name of names) {
    await applyAs(kind, name, { version: "v1alpha1", manager: "applier", fields: { size: 1 } });
  }
  const path = fileOf(t, kind.manifest({ ...SHAPE, versions: ["v1"] }));
  const run = await cluster.migrate(["-f", path, "--apply"]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  await cluster.waitForVersion(kind, "v1alpha1", false);
  t.same(await Promise.all(names.map((name) => applyError(kind, name))), ["", "", ""]);
});

parallel("a migration lets server-side apply work once the old version is gone", async (t) => {
  const [kind, control] = [new TestKind("convert"), new TestKind("control")];
  const names = ["w0", "w1", "w2"];
  for (const each of [kind, control]) {
    await createApplied(each, names);
    await cluster.createObjects(each.resource("v1"), [each.object("fresh", "v1")]);
    let writes = 0;
    // Until the API server has followed the change of the storage version.
    await eventually(async () => {
      await updateAs(each, "fresh", { version: "v1", manager: "new", fields: { writes: ++writes } });
      return (await cluster.storedAs(each))["v1"] === 1;
    }, "an object is stored as v1");
  }
  const before = await Promise.all(names.map((name) => objectOf(kind, name)));
  t.ok(before.every((object) => versionsIn(object).includes("example.com/v1alpha1")));
  const fresh = await objectOf(kind, "fresh");

  const tried = await cluster.migrate([kind.name, "--dry-run"]);
  t.match(tried, { code: 0, stdout: /4 objects would be accepted; nothing was/ });
  t.strictSame(await Promise.all(names.map((name) => objectOf(kind, name))), before, "a dry run changes nothing");

  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stdout, /: 3 rewritten, 1 .*; storedVersions is \[v1\]\n$/);
  t.same(await cluster.storedAs(kind), { v1: 4 });
  await assertNoTraces(t, cluster, kind);
  const after = await Promise.all(names.map((name) => objectOf(kind, name)));
  t.strictSame(
    after.map(withoutFields),
    before.map(withoutFields),
    "spec, status, generation, labels are as they were",
  );
  t.strictSame(after.map(ownedBy), before.map(ownedBy), "each manager owns what it owned, since when it did");
  t.ok(after.flatMap(versionsIn).every((version) => version === "example.com/v1"));
  t.equal(after[0]?.metadata.managedFields?.length, 3, "the two entries of one manager are one");
  t.strictSame(await objectOf(kind, "fresh"), fresh, "one that names v1 alone is not written");

  // As another migrator does.
  await rewriteAsTheyAre(control, [...names, "fresh"]);
  t.ok(versionsIn(await objectOf(control, "w0")).includes("example.com/v1alpha1"));
  for (const each of [kind, control]) {
    await dropOldVersion(each);
  }
  t.equal(await applyError(kind, "w0"), "");
  t.match(await applyError(control, "w0"), GONE, "negative control: kept as they are");

  t.match(await cluster.migrate([control.name]), { code: 0, stdout: /nothing to do/ }, "a clean CRD is left alone");
  const late = await cluster.migrate([control.name, "--force"]);
  t.equal(late.code, 0, late.stdout + late.stderr);
  t.equal(await applyError(control, "w0"), "", "also where the version is gone, and the CRD clean");
});

parallel("check counts objects whose managedFields name a version that leaves", async (t) => {
  const kind = new TestKind("count");
  await createApplied(kind, ["w0", "w1"]);
  await cluster.createObjects(kind.resource("v1"), [kind.object("fresh", "v1")]);
  const check = async (versions: readonly string[]): Promise<CheckEntry | undefined> => {
    const input = JSON.stringify(kind.manifest({ ...SHAPE, versions }));
    const { stdout } = await cluster.ksvm(["check", "-f", "-", "-o", "json"], { input });
    return (JSON.parse(stdout) as { items: readonly CheckEntry[] }).items[0];
  };
  const named = { objects: 2, versions: ["v1alpha1"], lookedAt: 3, isPartial: false };
  const entry = await check(["v1"]);
  t.strictSame(entry?.managedFields, named);
  t.match(entry?.notes, [/^managedFields of 2 of 3 objects name v1alpha1/]);
  t.equal((await check(["v1alpha1", "v1"]))?.managedFields, undefined, "no version is about to leave");

  t.equal((await cluster.migrate([kind.name])).code, 0);
  t.match(await check(["v1"]), { verdict: "applicable", managedFields: undefined });
});

parallel(
  "negative control: of two entries of one manager that name one version, an API server drops one",
  async (t) => {
    const kind = new TestKind("twice");
    await createApplied(kind, ["w0"]);
    const { metadata } = await objectOf(kind, "w0");
    const managedFields = metadata.managedFields?.map((entry) => ({ ...entry, apiVersion: "example.com/v1" }));
    const patch = { type: MERGE_PATCH, body: { metadata: { managedFields } } };
    const object = await api.patch<WholeObject>(kind.resource("v1"), refOf("w0"), patch, { dryRun: true });
    const owned = JSON.stringify(ownedBy(object));
    t.notOk(owned.includes("f:second") && owned.includes("f:first/f:a"), owned);
  },
);

parallel("which writes an API server lets change managedFields", async (t) => {
  const kind = new TestKind("writes");
  await createApplied(kind, ["w0"]);
  const object = await objectOf(kind, "w0");
  const { uid, resourceVersion } = object.metadata;
  const managedFields = renamed(object.metadata.managedFields ?? [], "example.com/v1") ?? [];
  const resource = kind.resource("v1");
  const patchAs = (type: string, body: unknown, subresource?: "status"): Promise<WholeObject> => {
    const options = { dryRun: true, ...(subresource === undefined ? {} : { subresource }) };
    return api.patch<WholeObject>(resource, refOf("w0"), { type, body }, { ...options, fieldManager: "ksvm" });
  };
  const merge = { metadata: { uid, resourceVersion, managedFields } };
  const json = [
    { op: "test", path: "/metadata/resourceVersion", value: resourceVersion },
    { op: "replace", path: "/metadata/managedFields", value: managedFields },
  ];
  for (const [type, body] of [
    [MERGE_PATCH, merge],
    [JSON_PATCH, json],
  ] as const) {
    const patched = await patchAs(type, body);
    t.ok(areSame(patched.metadata.managedFields ?? [], managedFields), type);
  }
  const put = await api.request<WholeObject>({
    method: "PUT",
    path: objectPath(resource, refOf("w0")),
    query: { dryRun: "All" },
    body: { ...object, metadata: { ...object.metadata, managedFields } },
  });
  t.ok(areSame(put.body.metadata.managedFields ?? [], managedFields), "PUT");
  const ofStatus = await patchAs(MERGE_PATCH, merge, "status");
  t.strictSame(ofStatus.metadata.managedFields, object.metadata.managedFields, "of the status they are ignored");
  const apply = { apiVersion: "example.com/v1", kind: kind.kind, metadata: { ...refOf("w0"), managedFields } };
  await t.rejects(patchAs(APPLY_PATCH, apply), /managedFields must be nil/);
  await t.rejects(patchAs(JSON_PATCH, [{ ...json[0], value: "1" }]), /answered 422/);
  const stale = { metadata: { ...merge.metadata, resourceVersion: "1" } };
  await t.rejects(patchAs(MERGE_PATCH, stale), /answered 409/);
});

parallel("where a webhook converts, managedFields stay, and the run says which versions they name", async (t) => {
  const webhook = await serveConversion(t);
  const kind = new TestKind("hooked");
  await createApplied(kind, ["w0"], { conversion: conversionBy(webhook) });
  const before = await objectOf(kind, "w0");
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, /: managedFields still name v1alpha1 \(1 objects\): have their clients apply them in v1 before/);
  t.same(await cluster.storedAs(kind), { v1: 1 });
  t.strictSame(versionsIn(await objectOf(kind, "w0")), versionsIn(before));
});

parallel("an object that is rejected keeps its managedFields, and nothing is pruned", async (t) => {
  const kind = new TestKind("rejected");
  await createApplied(kind, ["w0", "w3"]);
  await rejectUpdatesOf(cluster, kind, "w3");
  const before = await objectOf(kind, "w3");
  const run = await cluster.migrate([kind.name]);
  t.match(run, { code: 3, stderr: /default\/w3: .*this one stays as it is/ });
  t.strictSame(await objectOf(kind, "w3"), before);
  t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: 1 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
});

parallel("a client that writes at the same time loses no write", async (t) => {
  const kind = new TestKind("busy");
  await createApplied(kind, ["w0"]);
  const stop = new AbortController();
  let last = 0;
  const busy = (async () => {
    for (; !stop.signal.aborted; last++) {
      await updateAs(kind, "w0", { version: "v1alpha1", manager: "other", fields: { other: last + 1 } });
    }
  })();
  const run = await cluster.migrate([kind.name]);
  stop.abort();
  await busy;
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await cluster.storedAs(kind), { v1: 1 });
  t.match(await objectOf(kind, "w0"), { spec: { other: last } });
});
