// `ksvm check -f` and `ksvm migrate -f --apply`: states that CRDs of real projects led to. What becomes of each kind of
// change is in crd-pairs.test.ts.
import t from "tap";
import type { CheckEntry } from "../../src/inventory/upgrade.ts";
import { messageOf } from "../../src/errors.ts";
import { CRDS, type KubeObject, storageVersion } from "../../src/kube/objects.ts";
import { Cluster as Engine, eventually, signal } from "../engine/cluster.ts";
import { Cluster } from "./cluster.ts";
import { fileOf } from "./crd-file.ts";
import { grantUser } from "./grant-user.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { applyObject, assertArrived, live, manifestOf } from "./crd-texts.ts";
import { pruneByHand } from "./lost-objects.ts";
import { parallel } from "./parallel.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";

const cluster = await Cluster.start(t);
const engine = await Engine.connect(t, cluster.controlPlane);
const { client } = engine;

async function check(file: string): Promise<{ readonly code: number; readonly entry: CheckEntry }> {
  const { code, stderr, stdout } = await cluster.ksvm(["check", "-f", file, "-o", "json"]);
  const [entry] = stdout === "" ? [] : (JSON.parse(stdout) as { items: readonly CheckEntry[] }).items;
  if (entry === undefined) throw new Error(stderr);
  return { code, entry };
}

const migrate = (file: string, ...args: readonly string[]) =>
  cluster.migrate(["-f", file, "--apply", "--log-level", "silent", ...args]);

parallel("case 1: a version that was taken out of storedVersions by hand", async (t) => {
  const kind = new TestKind("unlisted");
  await live(engine, kind, "v1alpha1+");
  await client.apply(`${CRDS}/${kind.name}`, manifestOf(kind, "v1alpha1 v1+"), { fieldManager: "kubectl", signal });
  await pruneByHand(cluster, kind);
  const manifest = manifestOf(kind, "v1+");
  const file = fileOf(t, manifest);
  t.match(await check(file), {
    code: 4,
    entry: { reason: /although storedVersions, written by kubectl-patch, does not list v1alpha1/ },
  });
  const first = await cluster.migrate(["-f", file]);
  t.equal(first.code, 0, first.stderr);
  t.same(await engine.storedAs(kind), { v1: 2 });
  t.match(await check(file), { code: 0, entry: { reason: /written by ksvm-freeze/ } }, "from then on it is proven");
  const run = await migrate(file);
  t.equal(run.code, 0, run.stderr);
  await assertArrived(t, engine, kind, manifest, { dropped: ["v1alpha1"] });
});

/** v1beta1 with a, and v1 with a default besides. */
function defaulted(kind: TestKind, text: string) {
  const manifest = manifestOf(kind, text);
  for (const { name, schema } of manifest.spec.versions) {
    const { properties } = schema.openAPIV3Schema.properties.spec as { properties: Record<string, object> };
    if (name === "v1") properties["b"] = { type: "string", default: "d" };
  }
  return manifest;
}

parallel("case 2: a default in the new schema, also of objects that are in that state already", async (t) => {
  const kind = new TestKind("defaulted");
  await live(engine, kind, "v1beta1+");
  await client.apply(`${CRDS}/${kind.name}`, defaulted(kind, "v1beta1 v1+"), { fieldManager: "kubectl", signal });
  await engine.untilServed(kind, "v1");
  const apply = (name: string): Promise<string> =>
    applyObject(engine, kind, name, "v1", { a: "a" }, true).then(() => "", messageOf);
  const fresh = () =>
    applyObject(engine, kind, "fresh", "v1", { a: "a" }, true) as Promise<KubeObject & { spec: object }>;
  await eventually(async () => Object.hasOwn((await fresh()).spec, "b"), "the default is in force");
  const started = performance.now();
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stderr);
  t.ok(performance.now() - started < 60_000);
  t.same([await apply("v1beta1-0"), await apply("v1beta1-1")], ["", ""]);
  await client.delete(engine.path(kind, "v1beta1-0"), { signal });
  await applyObject(engine, kind, "late", "v1beta1", { a: "a" });
  t.match(await apply("late"), /field not declared in schema/, "stored as v1, and in that state all the same");
  t.equal((await cluster.migrate([kind.name, "--force"])).code, 0);
  t.equal(await apply("late"), "");
});

for (const isConverted of [false, true]) {
  parallel(
    `case 3: server-side apply after a version was dropped${isConverted ? ", with a webhook" : ""}`,
    async (t) => {
      const kind = new TestKind("silent");
      const conversion = isConverted ? conversionBy(await serveConversion(t)) : undefined;
      await live(engine, kind, "v1beta1+", conversion);
      const manifest = manifestOf(kind, "v1+", conversion);
      const file = fileOf(t, manifest);
      t.equal((await cluster.migrate(["-f", file])).code, 0);
      const { items } = await client.list<KubeObject>(`/apis/${GROUP}/v1/${kind.plural}`, { signal });
      const named = items.flatMap(({ metadata }) => metadata.managedFields ?? []).map((entry) => entry.apiVersion);
      t.same([...new Set(named)], [`${GROUP}/v1`], "before the version leaves");
      const run = await migrate(file);
      t.equal(run.code, 0, run.stderr);
      await assertArrived(t, engine, kind, manifest, { dropped: ["v1beta1"] });
    },
  );
}

parallel("case 5: the metadata of a file comes with its spec, so that its webhook gets its CA", async (t) => {
  const kind = new TestKind("injected");
  await live(engine, kind, "v1beta1+");
  const { clientConfig, ...rest } = await serveConversion(t);
  const { caBundle, url } = clientConfig;
  const annotations = { "cert-manager.io/inject-ca-from": "default/w" };
  const withoutCa = conversionBy({ ...rest, clientConfig: { url } as typeof clientConfig });
  const file = fileOf(t, manifestOf(kind, "v1beta1 v1+", withoutCa, { annotations }));
  t.match(await check(file), {
    code: 0,
    entry: {
      notes: [
        /fields .* not known/,
        /it brings the conversion webhook .*ksvm migrate -f --apply waits/,
        /stay stored/,
        /objects were not tried/,
      ],
    },
  });
  const injected = eventually(async () => {
    const { metadata } = await engine.crd(kind);
    if (metadata.annotations?.["cert-manager.io/inject-ca-from"] === undefined) return false;
    const body = { spec: { conversion: { webhook: { clientConfig: { caBundle } } } } };
    await client.patch(`${CRDS}/${kind.name}`, body, { fieldManager: "cert-manager-cainjector", signal });
    return true;
  }, "the annotation is there");
  const run = await migrate(file);
  t.equal(run.code, 0, run.stdout + run.stderr);
  await injected;
  const { spec } = await engine.crd(kind);
  t.equal(spec.conversion?.webhook?.clientConfig?.caBundle, caBundle);
  const listed = () =>
    client.list(`/apis/${GROUP}/v1/${kind.plural}`, { signal }).then(({ items }) => items.length, messageOf);
  await eventually(async () => (await listed()) === 2, "it converts");
});

parallel("case 6: a file that drops the webhook and brings a version", async (t) => {
  const kind = new TestKind("dropped");
  const service = { name: "w", namespace: "default" };
  const conversion = { strategy: "Webhook", webhook: { conversionReviewVersions: ["v1"], clientConfig: { service } } };
  await live(engine, kind, "v1beta1+");
  await client.patch(`${CRDS}/${kind.name}`, { spec: { conversion } }, { signal });
  const file = fileOf(t, manifestOf(kind, "v1beta1 v1+"));
  const { code, entry } = await check(file);
  t.match(
    { code, entry },
    { code: 5, entry: { verdict: "refused", steps: [], help: [/keep a webhook that knows v1/] } },
  );
  t.match(await migrate(file), { code: 5, stdout: entry.reason });
  t.same(await engine.storedAs(kind), { v1beta1: 2 });
});

parallel("cases 5b and 7: a webhook that refuses an object, which is named before anything is written", async (t) => {
  // The first one: each list asks for its conversion.
  const refused = "v1beta1-0";
  const conversion = conversionBy(await serveConversion(t, (name) => name === refused));
  const [there, fresh] = [new TestKind("refuses"), new TestKind("refuses")];
  await live(engine, there, "v1beta1+ v1", conversion);
  await live(engine, fresh, "v1beta1+", conversion);
  for (const kind of [there, fresh]) {
    const before = await engine.crd(kind);
    const file = fileOf(t, manifestOf(kind, "v1beta1 v1+", conversion));
    const isThere = kind === there;
    const { code, entry } = await check(file);
    t.equal(code, isThere ? 5 : 0, "what is not served cannot be tried");
    if (isThere) t.match(entry.reason, /objects are refused .*\(1\): default\/v1beta1-0: .*cannot be converted/);
    const run = await migrate(file);
    t.match(run, { code: 5, stdout: /refused: objects are refused .*default\/v1beta1-0: .*cannot be converted/ });
    t.same((await engine.crd(kind)).spec, before.spec, "the CRD is as it was");
    t.same(await engine.storedAs(kind), { v1beta1: 2 });
  }
});

parallel(
  "an object that an admission policy keeps from being written stops the move of the storage version",
  async (t) => {
    const kind = new TestKind("denied");
    await live(engine, kind, "v1alpha1+ v1");
    const allow = await rejectUpdatesOf(cluster, kind, "v1alpha1-1");
    const kept = await cluster.migrate(["-f", fileOf(t, manifestOf(kind, "v1alpha1 v1+"))]);
    t.match(kept, { code: 5, stdout: /refused: objects/ }, "where nothing has to be migrated first");
    const file = fileOf(t, manifestOf(kind, "v1+"));
    t.match(await check(file), {
      code: 5,
      entry: { verdict: "refused", reason: /default\/v1alpha1-1: .*stays as it is/ },
    });
    t.match(await migrate(file), { code: 5, stdout: /refused: objects .*default\/v1alpha1-1/ });
    t.equal(storageVersion(await engine.crd(kind)), "v1alpha1");
    await allow();
    await eventually(async () => (await check(file)).code === 4, "the policy is gone");
    t.equal((await migrate(file)).code, 0);
    t.same(await engine.storedAs(kind), { v1: 2 });
  },
);

parallel("a field that has another type in the new schema is named before anything is stored in it", async (t) => {
  const kind = new TestKind("retyped");
  await live(engine, kind, "v1alpha1+");
  const manifest = manifestOf(kind, "v1+");
  for (const { schema } of manifest.spec.versions) {
    const { properties } = schema.openAPIV3Schema.properties.spec as { properties: Record<string, object> };
    properties["a"] = { type: "array", items: { type: "string" } };
  }
  const run = await migrate(fileOf(t, manifest));
  t.equal(run.code, 5, run.stdout);
  t.match(
    run.stdout,
    /a rewrite leaves v1alpha1 in managedFields: the file's schema refuses a value, or .*; what helps: /,
  );
  const { spec } = await engine.crd(kind);
  t.match(spec.versions, [{ name: "v1alpha1", storage: true }], "the CRD is as it was");
  await engine.assertUnfrozen(t, kind);
});

parallel("a file with an integer that ksvm would round is refused before anything is written", async (t) => {
  const kind = new TestKind("huge");
  await live(engine, kind, "v1beta1+");
  const before = await engine.crd(kind);
  const manifest = manifestOf(kind, "v1+");
  for (const { schema } of manifest.spec.versions) {
    Object.assign(schema.openAPIV3Schema.properties.spec.properties, { n: { type: "integer", maximum: 2 ** 55 } });
  }
  const file = fileOf(t, manifest);
  const help = `what helps: use kubectl: store v1, then ksvm migrate ${kind.name} --force, then the file`;
  t.match(await check(file), {
    code: 4,
    entry: { verdict: "needs-migration", notes: [/round integers .* by kubectl/] },
  });
  t.match(await migrate(file), { code: 5, stdout: `round integers beyond 2^53; ${help}` });
  t.same(await engine.crd(kind), before);
});

parallel("a client that puts the old CRD back while a run waits", async (t) => {
  const kind = new TestKind("reverted");
  await live(engine, kind, "v1beta1+ v1");
  const manifest = manifestOf(kind, "v1+");
  let reverted: Promise<unknown> | undefined;
  const run = await cluster.ksvm(["migrate", "-f", fileOf(t, manifest), "--apply", "--unsafe-settle", "2s"], {
    onStdout: (text) => {
      if (!text.includes("waiting 2s")) return;
      const old = manifestOf(kind, "v1beta1+ v1");
      reverted ??= client.apply(`${CRDS}/${kind.name}`, old, { fieldManager: "their-gitops", signal });
    },
  });
  t.ok(reverted);
  t.equal(run.code, 0, run.stdout + run.stderr);
  await assertArrived(t, engine, kind, manifest, { dropped: ["v1beta1"], isMigrated: true });
});

parallel("a client that puts the old CRD back once, while objects are tried", async (t) => {
  const kind = new TestKind("undone");
  await live(engine, kind, "v1beta1+");
  const manifest = manifestOf(kind, "v1beta1 v1+");
  const { resourceVersion } = (await engine.crd(kind)).metadata;
  // As soon as the version is served.
  const undone = eventually(async () => {
    if ((await engine.crd(kind)).metadata.resourceVersion === resourceVersion) return false;
    await client.apply(`${CRDS}/${kind.name}`, manifestOf(kind, "v1beta1+"), { fieldManager: "their-gitops", signal });
    return true;
  }, "the old CRD is back");
  const run = await migrate(fileOf(t, manifest), "--max-idle", "30s");
  await undone;
  t.equal(run.code, 0, run.stdout + run.stderr);
  await assertArrived(t, engine, kind, manifest, { dropped: [], isMigrated: false });
});

parallel("rights that a migration takes are missing before the first step", async (t) => {
  const kind = new TestKind("unfit");
  await live(engine, kind, "v1beta1+ v1");
  const before = await engine.crd(kind);
  const crds = { apiGroups: ["apiextensions.k8s.io"], resources: ["customresourcedefinitions"], verbs: ["*"] };
  await grantUser(cluster.api, "editor", [crds, { apiGroups: [GROUP], resources: [kind.plural], verbs: ["*"] }]);
  const kubeconfig = cluster.controlPlane.kubeconfigFor("editor");
  const run = await migrate(fileOf(t, manifestOf(kind, "v1+")), "--kubeconfig", kubeconfig);
  t.match(run, { code: 1, stderr: /may not .*create validatingadmissionpolicies.*; nothing was changed; / });
  t.same((await engine.crd(kind)).spec, before.spec);
});
