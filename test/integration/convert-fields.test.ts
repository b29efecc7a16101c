import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { areSameFields, convertedFields } from "../../src/api/managed-fields.ts";
import type { ManagedFieldsEntry } from "../../src/api/meta.ts";
import { messageOf } from "../../src/errors.ts";
import { APPLY_PATCH, CRDS, JSON_PATCH, MERGE_PATCH, objectPath } from "../../src/old/kube/resources.ts";
import type { CheckEntry } from "../../src/plan/check-types.ts";
import { asTheUserSees, type WholeObject } from "./as-user-sees.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { fileOf } from "./crd-file.ts";
import { GROUP, TestKind, versionsOf } from "./crd-fixture.ts";
import { balanceRequests } from "./http-balancer.ts";
import { mutateUpdates } from "./mutate-updates.ts";
import { parallel } from "./parallel.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";
import { SLOW_RUN_OBJECTS, startSlowRun } from "./slow-run.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";
import { unlessAtLeast } from "../control-plane/features.ts";

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
  t.match(tried, {
    code: 0,
    stdout: /4 objects would be accepted; managedFields of 3 objects would be converted; nothing was/,
  });
  t.strictSame(await Promise.all(names.map((name) => objectOf(kind, name))), before, "a dry run changes nothing");

  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stdout, /: 3 rewritten, 1 .*; storedVersions is \[v1\]; managedFields of 3 objects converted\n/);
  t.equal(run.stderr, "");
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

  const keeping = await cluster.migrate([control.name, "--managed-fields=keep"]);
  t.equal(keeping.code, 0, keeping.stderr);
  t.notMatch(keeping.stdout, /managedFields/);
  t.ok(versionsIn(await objectOf(control, "w0")).includes("example.com/v1alpha1"));
  for (const each of [kind, control]) {
    await dropOldVersion(each);
  }
  t.equal(await applyError(kind, "w0"), "");
  t.match(await applyError(control, "w0"), GONE, "negative control: kept as they are");

  t.match(await cluster.migrate([control.name]), { code: 0, stdout: /nothing to do/ }, "a clean CRD is left alone");
  const late = await cluster.migrate([control.name, "--managed-fields=convert"]);
  t.equal(late.code, 0, late.stdout + late.stderr);
  t.match(late.stdout, /managedFields of 3 objects converted/, "also where the version is gone, and the CRD clean");
  t.equal(await applyError(control, "w0"), "");
  const again = await cluster.migrate([control.name, "--managed-fields=convert"]);
  t.equal(again.code, 0, again.stderr);
  t.notMatch(again.stdout, /managedFields/, "none is left");
});

parallel("a run that converts managedFields begins again where a schema gets a new field", async (t) => {
  const fields = { size: { type: "integer" }, first: { type: "object", additionalProperties: { type: "integer" } } };
  const [narrow, wide] = [fields, { ...fields, second: { type: "boolean" } }].map((properties) => ({
    specSchema: { type: "object", properties },
  }));
  for (const flags of [[], ["--managed-fields=keep"]]) {
    const kind = new TestKind(flags.length === 0 ? "schema" : "unread");
    const run = await startSlowRun(cluster, kind, { flags, shape: { ...narrow } });
    const versions = versionsOf({ ...wide, storage: "v1" });
    await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec: { versions } } });
    const { code, stdout, stderr } = await run.ended;
    t.equal(code, 0, stdout + stderr);
    const startsAgain = /starting again: .*its schema changed,.*: spec\.second is new/;
    t.equal(startsAgain.test(stdout), flags.length === 0, `${flags.join()}\n${stdout}`);
    t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  }
});

parallel(
  "a run that converts managedFields looks at the CRD after each page, before it writes an object of it",
  async (t) => {
    const looksOf = async (word: string, flags: readonly string[]): Promise<{ pages: number; looks: number }> => {
      const kind = new TestKind(word);
      await cluster.createStale(kind, 20);
      const requests: ("page" | "look" | "write")[] = [];
      const instead = async (method: string, path: string): Promise<undefined> => {
        const isOfObjects = path.includes(`/${kind.plural}`) && !path.includes("customresourcedefinitions");
        if (method === "GET" && isOfObjects && path.includes("limit=5")) requests.push("page");
        if (method === "GET" && path.endsWith(`/customresourcedefinitions/${kind.name}`)) requests.push("look");
        if (method === "PATCH" && isOfObjects) requests.push("write");
      };
      const kubeconfig = await balanceRequests(t, cluster.controlPlane, () => 0, { instead });
      const args = [kind.name, "--page-size=5", "--max-in-flight=1", "--kubeconfig", kubeconfig, ...flags];
      const { code, stdout, stderr } = await cluster.migrate(args);
      t.equal(code, 0, stdout + stderr);
      t.same(await cluster.storedAs(kind), { v1: 20 });
      const rewriting = requests.slice(requests.indexOf("page"), requests.lastIndexOf("write"));
      const count = (what: string): number => rewriting.filter((one) => one === what).length;
      return { pages: count("page"), looks: count("look") };
    };
    const { pages, looks } = await looksOf("paged", []);
    t.equal(pages, 4);
    // On a busy machine there are some by time as well.
    t.ok(looks > 1, `${looks} looks`);
    const { looks: fewer } = await looksOf("unpaged", ["--managed-fields=keep"]);
    t.ok(fewer < looks, `a run that writes no object of others looks after the first page alone: ${fewer} looks`);
  },
);

parallel("check and plan count objects whose managedFields name a version that leaves", async (t) => {
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
  const command = `ksvm migrate ${kind.name}`;
  t.ok(entry?.steps[0]?.endsWith(command), entry?.steps[0] ?? "no step");
  t.ok(
    entry?.notes.some(
      (note) =>
        note.includes("managedFields of 2 of 3 objects name v1alpha1") && note.includes("the migration has them name"),
    ),
  );
  t.equal((await check(["v1alpha1", "v1"]))?.managedFields, undefined, "no version is about to leave");

  const plan = async (...flags: readonly string[]): Promise<string> =>
    (await cluster.ksvm(["plan", kind.name, ...flags])).stdout;
  t.match(await plan("--managed-fields"), /managedFields of 2 of 3 objects name v1alpha1/);
  t.match(JSON.parse(await plan("--managed-fields", "-o", "json")), { items: [{ managedFields: named }] });
  t.notMatch(await plan(), /managedFields/, "each object would have to be listed");

  const [, ...args] = command.split(" ");
  t.equal((await cluster.migrate(args.slice(1))).code, 0);
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
  const managedFields = convertedFields(object.metadata.managedFields ?? [], "example.com/v1") ?? [];
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
    t.ok(areSameFields(patched.metadata.managedFields ?? [], managedFields), type);
  }
  const put = await api.transport.request<WholeObject>({
    method: "PUT",
    path: objectPath(resource, refOf("w0")),
    query: { dryRun: "All" },
    body: { ...object, metadata: { ...object.metadata, managedFields } },
  });
  t.ok(areSameFields(put.body.metadata.managedFields ?? [], managedFields), "PUT");
  const ofStatus = await patchAs(MERGE_PATCH, merge, "status");
  t.strictSame(ofStatus.metadata.managedFields, object.metadata.managedFields, "of the status they are ignored");
  const apply = { apiVersion: "example.com/v1", kind: kind.kind, metadata: { ...refOf("w0"), managedFields } };
  await t.rejects(patchAs(APPLY_PATCH, apply), /managedFields must be nil/);
  await t.rejects(patchAs(JSON_PATCH, [{ ...json[0], value: "1" }]), /answered 422/);
  const stale = { metadata: { ...merge.metadata, resourceVersion: "1" } };
  await t.rejects(patchAs(MERGE_PATCH, stale), /answered 409/);
});

parallel(
  "--managed-fields=convert is refused where a webhook converts, and by default managedFields are kept there",
  async (t) => {
    const webhook = await serveConversion(t);
    const kind = new TestKind("hooked");
    await createApplied(kind, ["w0"], { conversion: conversionBy(webhook) });
    const before = [await cluster.crd(kind), await objectOf(kind, "w0")];
    for (const more of [[], ["--dry-run"]]) {
      const run = await cluster.migrate([kind.name, "--managed-fields=convert", ...more]);
      t.match(run, {
        code: 1,
        stderr: /a webhook converts its versions, and may move fields; leave out --managed-fields/,
      });
    }
    t.strictSame([await cluster.crd(kind), await objectOf(kind, "w0")], before);
    const plain = await cluster.migrate([kind.name]);
    t.equal(plain.code, 0, plain.stderr);
    t.same(await cluster.storedAs(kind), { v1: 1 });
    t.strictSame(
      versionsIn(await objectOf(kind, "w0")),
      versionsIn(before[1] as WholeObject),
      "by default they are kept",
    );
    t.match(await cluster.migrate(["configmaps", "--managed-fields=convert"]), {
      code: 1,
      stderr: /it is no custom resource/,
    });
    const both = await cluster.migrate([kind.name, "--managed-fields=convert", "--via=status"]);
    t.match(both, { code: 2, stderr: /leave out --via or --managed-fields/ });
  },
);

parallel("an object that is rejected keeps its managedFields, and nothing is pruned", async (t) => {
  const kind = new TestKind("rejected");
  await createApplied(kind, ["w0", "w3"]);
  await rejectUpdatesOf(cluster, kind, "w3");
  const before = await objectOf(kind, "w3");
  const run = await cluster.migrate([kind.name]);
  t.match(run, {
    code: 3,
    stderr: /default\/w3: .*this one stays as it is/,
    stdout: /managedFields of 1 objects converted/,
  });
  t.strictSame(await objectOf(kind, "w3"), before);
  t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: 1 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
});

parallel(
  "managedFields are left as they are where the write would change something else",
  async (t) => {
    const kind = new TestKind("mutated");
    await createApplied(kind, ["w0", "w1"]);
    await mutateUpdates(cluster, kind, ["w1"]);
    await eventually(async () => {
      const tried = await cluster.migrate([kind.name, "--dry-run"]);
      return tried.stdout.includes("managedFields of 1 objects would be converted, those of 1 left as they are");
    }, "the rule is in force");
    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 0, run.stderr);
    t.match(run.stdout, /managedFields of 1 objects converted, those of 1 left as they are/);
    t.match(run.stderr, /with managedFields that still name another version:\n {2}default\/w1: a dry run shows/);
    t.ok(versionsIn(await objectOf(kind, "w1")).includes("example.com/v1alpha1"));
    t.same(await cluster.storedAs(kind), { v1: 2 });
  },
  unlessAtLeast(36, "MutatingAdmissionPolicy v1"),
);

parallel("an object whose field has another type by now keeps its managedFields", async (t) => {
  const kind = new TestKind("typed");
  await createApplied(kind, ["w0"]);
  const spec = {
    type: "object",
    "x-kubernetes-preserve-unknown-fields": true,
    properties: { size: { type: "string" } },
  };
  await cluster.setVersions(kind, { ...SHAPE, specSchema: spec });
  const isRefused = async (): Promise<boolean> => {
    const applied = { version: "v1", manager: "another", fields: {} };
    return /failed to create typed live object/.test(await applyAs(kind, "w0", applied).then(() => "", messageOf));
  };
  await eventually(isRefused, "the schema is in force");
  const before = await objectOf(kind, "w0");
  const run = await cluster.migrate([kind.name]);
  t.match(run, { code: 3, stderr: /failed to create typed live object/ });
  t.strictSame(await objectOf(kind, "w0"), before);
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
