// `ksvm doctor`: what it finds in a cluster, and how `--repair` brings back objects that no API server can read.
import { isDeepStrictEqual } from "node:util";
import t, { type Test } from "tap";
import { type CustomResourceDefinition, storedVersionsOf } from "../crd.ts";
import { Interruption } from "../../src/cli/shared/interruption.ts";
import type { Finding } from "../../src/inventory/doctor.ts";
import { restoredVersion } from "../../src/inventory/repair.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { APPLY_PATCH, CRDS, LEASES, MERGE_PATCH } from "../api-client.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { fileOf } from "./crd-file.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";
import { leaveFreeze } from "./left-behind.ts";
import { createInV1, dropOldVersions, listProblem, loseObjects, pruneByHand, V1 } from "./lost-objects.ts";
import { alone, parallel } from "./parallel.ts";
import { accountFor } from "./rbac-account.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";
import { INTERRUPTED_FLAGS, startSlowRun, untilRewriting } from "./slow-run.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const REPAIR_FLAGS = ["--repair", "--unsafe-settle", "50ms"] as const;

async function doctor(...names: readonly string[]) {
  const { code, stderr, stdout } = await cluster.ksvm(["doctor", ...names, "-o", "json"]);
  const items = stdout === "" ? [] : (JSON.parse(stdout) as { readonly items: readonly Finding[] }).items;
  return { code, stderr, items };
}

function repair(kind: TestKind, ...args: readonly string[]) {
  return cluster.ksvm(["doctor", kind.name, ...REPAIR_FLAGS, ...args]);
}

async function versionNames(kind: TestKind): Promise<readonly string[]> {
  return (await cluster.crd(kind)).spec.versions.map(({ name }) => name);
}

async function assertRepaired(t: Test, kind: TestKind, count: number): Promise<void> {
  t.same(await cluster.storedAs(kind), { v1: count });
  t.same(await versionNames(kind), ["v1"]);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.equal(await listProblem(cluster, kind), "", "every object can be read");
  await assertUnfrozen(t, cluster, kind);
  t.match(await doctor(kind.name), { code: 0, items: [] });
}

alone("doctor of a healthy cluster finds nothing; of one with a silent API server, just that", async (t) => {
  t.match(await cluster.ksvm(["doctor"]), { code: 0, stdout: /^nothing found: \d+ CRDs? looked at\n$/, stderr: "" });

  const ref = { namespace: "kube-system", name: "apiserver-gone" };
  const renewTime = new Date(Date.now() - 120_000).toISOString().replace("Z", "000Z");
  const labels = { "apiserver.kubernetes.io/identity": "kube-apiserver" };
  const spec = { holderIdentity: "gone", leaseDurationSeconds: 3_600, renewTime };
  await api.create(LEASES, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: { ...ref, labels }, spec });
  const silent = await doctor();
  await api.delete(LEASES, ref);
  t.match(silent.items, [{ finding: "silent-api-server", object: "leases/apiserver-gone", help: /only if/ }]);
  t.equal(silent.items.length, 1);
});

/** So many that a run at four a second is killed in the middle. */
const MANY = 40;

parallel("doctor --repair is killed in the middle, and a second one completes it", async (t) => {
  const kind = new TestKind("dying");
  await loseObjects(cluster, kind, MANY);
  const run = cluster.spawnKsvm(t, ["doctor", kind.name, ...REPAIR_FLAGS, "--yes", ...INTERRUPTED_FLAGS]);
  await untilRewriting(cluster, kind, run);
  await run.kill();
  t.ok(((await cluster.storedAs(kind))["v1alpha1"] ?? 0) > 0, "objects are left in the version that was lost");
  t.same(storedVersionsOf(await cluster.crd(kind)).toSorted(), ["v1", "v1alpha1"], "and it is listed");
  t.equal(await listProblem(cluster, kind), "", "no object is lost in between");
  const again = await repair(kind, "--yes");
  t.equal(again.code, 0, again.stderr);
  await assertRepaired(t, kind, MANY + 1);
});

parallel("doctor says in one line what it cannot do", async (t) => {
  t.match(await cluster.ksvm(["doctor", "secrets"]), {
    code: 1,
    stderr: /^error: .*no CustomResourceDefinition.*\]\n$/,
  });
  t.match(await cluster.ksvm(["doctor", "nothing.example.com"]), { code: 1, stderr: /\[ResourceNotFound\]\n$/ });
  const kubeconfig = cluster.controlPlane.kubeconfigFor("reader");
  t.match(await cluster.ksvm(["doctor", "--kubeconfig", kubeconfig]), {
    code: 1,
    stderr: /^error: .*\[Forbidden\]\n$/,
  });
  t.match(await cluster.ksvm(["doctor", "--yes"]), { code: 2, stderr: /\[Usage\]/ });
});

parallel("doctor finds stale storedVersions, and no more after a migration", async (t) => {
  const kind = new TestKind("stale");
  await cluster.createStale(kind, 2);
  t.match(await doctor(kind.name), { code: 4, items: [{ finding: "stale-stored-versions", versions: ["v1alpha1"] }] });
  t.equal((await cluster.migrate([kind.name])).code, 0);
  t.match(await doctor(kind.name), { code: 0, items: [] });
});

parallel(
  "doctor finds managedFields of a version that is gone, and what helps lets server-side apply work again",
  async (t) => {
    const kind = new TestKind("fields");
    await cluster.createStale(kind, 1);
    const ref = { name: "w0", namespace: "default" };
    let writes = 0;
    const isInV1 = async (): Promise<boolean> => {
      const body = { metadata: { annotations: { writes: String(++writes) } } };
      await api.patch(kind.resource("v1"), ref, { type: MERGE_PATCH, body });
      return (await cluster.storedAs(kind))["v1"] === 1;
    };
    await eventually(isInV1, "another client stored it in v1");
    t.match((await doctor(kind.name)).items, [{ finding: "stale-stored-versions" }]);
    await pruneByHand(cluster, kind);
    await cluster.setVersions(kind, V1);
    const applyIt = () => {
      const body = { ...kind.object("w0", "v1"), metadata: { ...ref, labels: { a: "b" } }, spec: {} };
      return api.patch(kind.resource("v1"), ref, { type: APPLY_PATCH, body }, { fieldManager: "gitops" }).then(
        () => "applied",
        (error: Error) => error.message,
      );
    };
    await eventually(async () => (await applyIt()).includes("an invalid group/version"), "server-side apply fails");
    t.match(await doctor(kind.name), {
      code: 4,
      items: [
        { finding: "managed-fields", versions: ["v1alpha1"], objects: 1, help: `ksvm migrate ${kind.name} --force` },
      ],
    });
    const { code, stderr } = await cluster.migrate([kind.name, "--force"]);
    t.equal(code, 0, stderr);
    t.equal(await applyIt(), "applied");
    t.match(await doctor(kind.name), { code: 0, items: [] });
  },
);

const text = { type: "string" };
const objectOf = (properties: object): object => ({ type: "object", properties });
const AB = objectOf({ a: text, b: text });

/** The schema of an old version, that of the new one, what a client writes in that, and whether a later apply fails. */
const OLD_SCHEMAS: readonly (readonly [words: string, old: object, next: object, spec: object, fails: boolean])[] = [
  ["has every field", AB, AB, { b: "1" }, false],
  ["lacks a field of the object", objectOf({ a: text }), AB, { b: "1" }, true],
  ["lacks a field that the object does not have, either", objectOf({ a: text }), AB, { a: "1" }, false],
  ["is open", { type: "object", "x-kubernetes-preserve-unknown-fields": true }, AB, { b: "1" }, false],
  ["describes no field at all", { type: "object" }, AB, { b: "1" }, false],
  ["is a map", { type: "object", additionalProperties: text }, AB, { b: "1" }, false],
  [
    "lacks a field in a list",
    objectOf({ l: { type: "array", items: objectOf({ a: text }) } }),
    objectOf({ l: { type: "array", items: AB } }),
    { l: [{ b: "1" }] },
    true,
  ],
];

for (const [words, old, next, spec, fails] of OLD_SCHEMAS) {
  parallel(
    `doctor finds managedFields of a version that is there only if its schema fails an apply: it ${words}`,
    async (t) => {
      const kind = new TestKind("narrow");
      const specSchemas = { v1alpha1: old, v1: next };
      await cluster.createCrd(kind, { storage: "v1alpha1", specSchemas });
      const { metadata, ...object } = kind.object("w0", "v1alpha1");
      const labelled = { ...object, metadata: { ...metadata, labels: { entry: "stays" } }, spec: {} };
      await cluster.createObjects(kind.resource("v1alpha1"), [labelled]);
      await cluster.setVersions(kind, { storage: "v1", specSchemas });
      await pruneByHand(cluster, kind);
      const ref = { name: "w0", namespace: "default" };
      const isInV1 = async (): Promise<boolean> => {
        await api.patch(kind.resource("v1"), ref, { type: MERGE_PATCH, body: { spec } });
        const read = (await api.get(kind.resource("v1"), ref)) as { readonly spec?: object };
        return (await cluster.storedAs(kind))["v1"] === 1 && isDeepStrictEqual(read.spec, spec);
      };
      await eventually(isInV1, "another client stored it in v1");
      const body = { ...kind.object("w0", "v1"), spec: {} };
      const applied = api.patch(kind.resource("v1"), ref, { type: APPLY_PATCH, body }, { fieldManager: "gitops" });
      const problem = await applied.then(
        () => "",
        (error: Error) => error.message,
      );
      t.match(problem, fails ? "field not declared in schema" : /^$/);
      const { code, items } = await doctor(kind.name);
      t.match(items, fails ? [{ finding: "managed-fields", versions: ["v1alpha1"], objects: 1 }] : []);
      if (!fails) return;
      t.equal(code, 4);
      t.equal((await cluster.migrate([kind.name, "--force"])).code, 0);
      t.match(await doctor(kind.name), { code: 0, items: [] });
    },
  );
}

/** Writes a CRD into etcd as no API server takes it, and older ones did. */
async function putCrd(kind: TestKind, changeOf: (crd: CustomResourceDefinition) => object): Promise<void> {
  const crd = await cluster.crd(kind);
  const { resourceVersion: _, ...metadata } = crd.metadata;
  const value = JSON.stringify({ ...crd, metadata, ...changeOf(crd) });
  const key = `/registry/apiextensions.k8s.io/customresourcedefinitions/${kind.name}`;
  const body = JSON.stringify({
    key: Buffer.from(key).toString("base64"),
    value: Buffer.from(value).toString("base64"),
  });
  const answer = await fetch(`${cluster.controlPlane.stored.url}/v3/kv/put`, { method: "POST", body });
  if (!answer.ok) throw new Error(await answer.text());
}

parallel("doctor --repair brings back a version that storedVersions lists and the CRD lacks", async (t) => {
  const kind = new TestKind("listed");
  await cluster.createCrd(kind, V1);
  await cluster.createObjects(kind.resource("v1"), kind.objects(2, "v1"));
  const storedVersions = ["v1alpha1", "v1"];
  await putCrd(kind, ({ status }) => ({ status: { ...status, storedVersions } }));
  const label = { type: MERGE_PATCH, body: { metadata: { labels: { a: "b" } } } };
  await eventually(
    () =>
      api.patch(CRDS, kind, label, { dryRun: true }).then(
        () => false,
        () => true,
      ),
    "the API server takes no change of it",
  );
  const reason = /status\.storedVersions lists v1alpha1, which spec\.versions lacks/;
  t.match(await doctor(kind.name), { code: 5, items: [{ finding: "blocked-crd", severity: "data", meaning: reason }] });
  t.match(await cluster.migrate([kind.name]), { code: 1, stderr: reason });
  t.match((await cluster.ksvm(["plan", kind.name])).stdout, /blocked .*; help: ksvm doctor .* --repair/);
  const { code, stderr } = await repair(kind, "--yes");
  t.equal(code, 0, stderr);
  await assertRepaired(t, kind, 2);
});

parallel("doctor finds preserveUnknownFields, and check names the fields that the API server would drop", async (t) => {
  const kind = new TestKind("unknown");
  const specSchema = { type: "object", properties: { size: { type: "integer" } } };
  await cluster.createCrd(kind, { ...V1, specSchema });
  await putCrd(kind, ({ spec }) => ({ spec: { ...spec, preserveUnknownFields: true } }));
  await cluster.createObjects(kind.resource("v1"), kind.objects(1, "v1"));
  const ref = { name: "w0", namespace: "default" };
  const body = { spec: { extra: 1 } };
  const isKept = async (): Promise<boolean> =>
    JSON.stringify(await api.patch(kind.resource("v1"), ref, { type: MERGE_PATCH, body })).includes('"extra":1');
  await eventually(isKept, "fields that no schema describes are kept");
  t.match(await doctor(kind.name), {
    code: 4,
    items: [{ finding: "blocked-crd", meaning: /preserveUnknownFields is true/, help: /ksvm check -f FILE/ }],
  });
  const file = fileOf(t, kind.manifest({ ...V1, specSchema }));
  t.match(await cluster.ksvm(["check", "-f", file]), { code: 5, stdout: /spec\.extra \(1 objects\)/ });
});

parallel("doctor tells the freeze of a dead run from that of one that lives, and from another client's", async (t) => {
  const [dead, foreign, live] = [new TestKind("dead"), new TestKind("foreign"), new TestKind("live")];
  await Promise.all([cluster.createCrd(dead, V1), cluster.createCrd(foreign, V1)]);
  await leaveFreeze(cluster, dead, `kube-system/ksvm-migrate.${dead.name}`);
  const annotations = { [MIGRATING]: "by hand" };
  await api.patch(CRDS, foreign, { type: MERGE_PATCH, body: { metadata: { annotations } } }, { fieldManager: "me" });
  const stop = new AbortController();
  const run = await startSlowRun(cluster, live, { signal: stop.signal });
  t.match(await doctor(dead.name, foreign.name, live.name), {
    code: 4,
    items: [
      { finding: "stuck-freeze", object: dead.name, help: `ksvm unfreeze ${dead.name}` },
      { finding: "foreign-freeze", object: foreign.name, meaning: /^another client froze/ },
    ],
  });
  stop.abort(new Interruption("SIGINT"));
  await run.ended;
});

/** What Kubernetes' own migrator applies to the status of a CRD; it forces, and owns what it applies. */
async function applyInTree({ name }: TestKind, status: object): Promise<void> {
  const body = { apiVersion: "apiextensions.k8s.io/v1", kind: "CustomResourceDefinition", metadata: { name }, status };
  const options = { subresource: "status", fieldManager: "storage-version-migrator-controller", force: true } as const;
  await api.patch(CRDS, { name }, { type: APPLY_PATCH, body }, options);
}

function inTreeCondition(status: "True" | "False", reason: string): object {
  const lastTransitionTime = "2026-01-01T00:00:00Z";
  return { conditions: [{ type: "StorageMigrating", status, reason, message: "", lastTransitionTime }] };
}

parallel(
  "doctor finds what Kubernetes' own migrator pruned without a success, and a forced migration ends it",
  async (t) => {
    const [failed, second, other] = [new TestKind("failed"), new TestKind("second"), new TestKind("other")];
    for (const kind of [failed, second, other]) await cluster.createStale(kind, 2);
    const storedVersions = ["v1"];
    await applyInTree(failed, { storedVersions, ...inTreeCondition("False", "MigrationFailed") });
    // As the begin of its second migration leaves it: what its only owner leaves out, the API server prunes.
    await applyInTree(second, {
      storedVersions: ["v1alpha1", "v1"],
      ...inTreeCondition("False", "MigrationSucceeded"),
    });
    await applyInTree(second, inTreeCondition("True", "MigrationRunning"));
    t.same(storedVersionsOf(await cluster.crd(second)), ["v1"]);
    await applyInTree(other, { storedVersions, ...inTreeCondition("False", "MigrationSucceeded") });
    t.same((await doctor(other.name)).items, [], "negative control: the migration succeeded");
    for (const kind of [failed, second]) {
      t.match(await doctor(kind.name), {
        code: 5,
        items: [
          { finding: "unproven-prune", versions: ["v1alpha1"], objects: 2, help: `ksvm migrate ${kind.name} --force` },
        ],
      });
      t.match((await cluster.ksvm(["plan", kind.name])).stdout, / migrate .*which storedVersions lacks/);
      const { code, stderr } = await cluster.migrate([kind.name, "--force"]);
      t.equal(code, 0, stderr);
      t.same(await cluster.storedAs(kind), { v1: 2 });
      t.same(await versionNames(kind), ["v1alpha1", "v1"], "the CRD's own version is for its author to remove");
      t.match(await doctor(kind.name), { code: 0, items: [] });
    }
  },
);

parallel("doctor --repair brings back objects that are unreadable, and a dry run of it changes nothing", async (t) => {
  const kind = new TestKind("lost");
  await loseObjects(cluster, kind, 5);
  const before = await cluster.crd(kind);
  t.match(await doctor(kind.name), {
    code: 5,
    items: [{ finding: "unreadable-objects", object: kind.name, versions: ["v1alpha1"], objects: "unknown" }],
  });
  const dryRun = await repair(kind);
  t.match(dryRun, {
    code: 5,
    stdout: /1\. add the versions that the CRD lost .*\n.*status\.storedVersions.*\n.*nothing was changed/s,
  });
  t.same(await cluster.crd(kind), before);
  t.same(await cluster.storedAs(kind), { v1: 1, v1alpha1: 5 });

  const { code, stderr } = await repair(kind, "--yes");
  t.equal(code, 0, stderr);
  t.match(stderr, /added v1alpha1 back.*6 objects can be listed.*removed v1alpha1 from spec/s);
  await assertRepaired(t, kind, 6);
});

parallel(
  "doctor --repair goes on before storedVersions lists the version, and before the version leaves",
  async (t) => {
    const [early, late] = [new TestKind("early"), new TestKind("late")];
    await loseObjects(cluster, early, 3);
    await cluster.createCrd(late, V1);
    await cluster.createObjects(late.resource("v1"), late.objects(2, "v1"));
    for (const kind of [early, late]) {
      const versions = [...(await cluster.crd(kind)).spec.versions, restoredVersion("v1alpha1")];
      await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec: { versions } } });
      t.match(await cluster.ksvm(["doctor", kind.name]), { code: 5, stdout: /unfinished-repair/ });
      t.match(await repair(kind, "--yes"), { code: 0 });
    }
    await assertRepaired(t, early, 4);
    await assertRepaired(t, late, 2);
  },
);

parallel("doctor --repair prunes nothing while an object is rejected, and goes on afterwards", async (t) => {
  const kind = new TestKind("reject");
  await cluster.createStale(kind, 3);
  const lift = await rejectUpdatesOf(cluster, kind, "w1");
  await createInV1(cluster, kind);
  await pruneByHand(cluster, kind);
  await dropOldVersions(cluster, kind);
  t.match(await repair(kind, "--yes"), { code: 5 });
  t.same(await versionNames(kind), ["v1", "v1alpha1"]);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1", "v1alpha1"], "the version cannot leave the CRD again");
  t.equal(await listProblem(cluster, kind), "", "the objects can be read");
  t.equal((await cluster.storedAs(kind))["v1alpha1"], 1);
  await lift();
  t.match(await repair(kind, "--yes"), { code: 0 });
  await assertRepaired(t, kind, 4);
});

parallel("doctor --repair stops where the storage version lacks fields of objects, and drops none", async (t) => {
  const kind = new TestKind("hidden");
  const bare = { type: "object" };
  await cluster.createStale(kind, 2, { specSchemas: { v1: bare } });
  await pruneByHand(cluster, kind);
  await dropOldVersions(cluster, kind, { ...V1, specSchema: bare });
  const ref = (name: string) => ({ name, namespace: "default" });
  for (const count of [2, 1]) {
    const stopped = new RegExp(
      `schema of v1 lacks spec\\.size \\(${count} objects\\).* in v1alpha1.*\\[RepairStopped\\]`,
    );
    t.match(await repair(kind, "--yes"), { code: 5, stderr: stopped });
    t.equal((await cluster.storedAs(kind))["v1alpha1"], count, "what has the field was not rewritten");
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1", "v1alpha1"]);
    await assertUnfrozen(t, cluster, kind);
    const body = { spec: { size: null } };
    if (count === 2) await api.patch(kind.resource("v1alpha1"), ref("w0"), { type: MERGE_PATCH, body });
  }
  const described = versionsOf({ ...V1, specSchema: { ...bare, properties: { size: { type: "integer" } } } });
  const restored = (await cluster.crd(kind)).spec.versions.slice(1);
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec: { versions: [...described, ...restored] } } });
  const { code, stderr } = await repair(kind, "--yes");
  t.equal(code, 0, stderr);
  await assertRepaired(t, kind, 2);
  t.match(await api.get(kind.resource("v1"), ref("w1")), { spec: { size: 2 } }, "the field is kept");
});

parallel("doctor --repair brings back objects of a CRD with a conversion webhook, once that is up", async (t) => {
  const webhook = await serveConversion(t);
  const kind = new TestKind("converted");
  await cluster.createStale(kind, 3, { conversion: conversionBy(webhook) });
  await createInV1(cluster, kind);
  await pruneByHand(cluster, kind);
  await dropOldVersions(cluster, kind);
  webhook.setDown(true);
  t.not((await repair(kind, "--yes", "--max-idle", "1s")).code, 0, "nothing can be converted while it is down");
  t.equal((await cluster.storedAs(kind))["v1alpha1"], 3);
  t.ok(storedVersionsOf(await cluster.crd(kind)).includes("v1alpha1"), "nothing was pruned");
  webhook.setDown(false);
  const { code, stderr } = await repair(kind, "--yes");
  t.equal(code, 0, stderr);
  await assertRepaired(t, kind, 4);
});

parallel("doctor --repair touches nothing that another client froze, and no version of the CRD's own", async (t) => {
  const [foreign, vendor] = [new TestKind("foreign"), new TestKind("vendor")];
  await Promise.all([loseObjects(cluster, foreign, 2), loseObjects(cluster, vendor, 2)]);
  const annotations = { [MIGRATING]: "by hand" };
  await api.patch(CRDS, foreign, { type: MERGE_PATCH, body: { metadata: { annotations } } }, { fieldManager: "me" });
  const before = await cluster.crd(foreign);
  t.match(await repair(foreign, "--yes"), { code: 5, stderr: /\[ForeignFreeze\]/ });
  t.same(await cluster.crd(foreign), before);
  t.same(await cluster.storedAs(foreign), { v1: 1, v1alpha1: 2 });

  await api.patch(CRDS, vendor, { type: MERGE_PATCH, body: { spec: { versions: versionsOf({ storage: "v1" }) } } });
  t.match(await repair(vendor, "--yes"), { code: 0, stdout: /^nothing found/ });
  t.same(await versionNames(vendor), ["v1alpha1", "v1"], "nothing is found there, and nothing is taken away");
});

parallel("ksvm rbac prints what doctor NAME --repair takes, and no more", async (t) => {
  const [kind, other] = [new TestKind("allowed"), new TestKind("denied")];
  await Promise.all([loseObjects(cluster, kind, 2), loseObjects(cluster, other, 2)]);
  const kubeconfig = await accountFor(cluster, "surgeon", [kind.name]);
  const { code, stderr } = await repair(kind, "--yes", "--kubeconfig", kubeconfig);
  t.equal(code, 0, stderr);
  await assertRepaired(t, kind, 3);
  t.not((await repair(other, "--yes", "--kubeconfig", kubeconfig)).code, 0, "negative control: another CRD");
  t.same(await cluster.storedAs(other), { v1: 1, v1alpha1: 2 });
});
