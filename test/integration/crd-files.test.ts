// `ksvm check -f` and `ksvm migrate -f --apply`: what the one says is what the other does, with etcd read before and after.
import t, { type Test } from "tap";
import type { CheckEntry } from "../../src/inventory/upgrade.ts";
import { messageOf } from "../../src/errors.ts";
import { type Crd, CRDS, type KubeObject, objectPath, storageVersion } from "../../src/kube/objects.ts";
import { Cluster as Engine, eventually, signal } from "../engine/cluster.ts";
import { Cluster } from "./cluster.ts";
import { fileOf } from "./crd-file.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { parallel } from "./parallel.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";
import { conversionBy, type ServedWebhook, serveConversion } from "./serve-webhook.ts";

const cluster = await Cluster.start(t);
const engine = await Engine.connect(t, cluster.controlPlane);
const { client } = engine;

/** `v1alpha1:a v1:ab+`: v1 is stored, and its spec has the fields a and b; `-` is not served. */
function manifestOf(kind: TestKind, text: string, webhook?: ServedWebhook, more: object = {}) {
  const versions = text.split(" ").map((one) => {
    const [, name = "", fields = "a", flags = ""] = /^(\w+)(?::(\w+))?([+-]*)$/.exec(one) ?? [];
    const properties = Object.fromEntries(fields.split("").map((field) => [field, { type: "string" }]));
    const spec = { type: "object", properties };
    const schema = { openAPIV3Schema: { type: "object", properties: { spec } } };
    return { name, served: !flags.includes("-"), storage: flags.includes("+"), schema };
  });
  const manifest = kind.manifest({ versions: [], storage: "" });
  const conversion = webhook === undefined ? { strategy: "None" } : { strategy: "Webhook", ...conversionBy(webhook) };
  const metadata = { ...manifest.metadata, ...more };
  return { ...manifest, metadata, spec: { ...manifest.spec, versions, conversion } };
}

const namesIn = (crd: Pick<Crd, "spec">): readonly string[] => crd.spec.versions.map(({ name }) => name);
const pathOf = (kind: TestKind, name: string, version: string): string =>
  objectPath({ group: GROUP, version, plural: kind.plural }, { name, namespace: "default" });

/** A client that applies server-side, as Flux and Argo CD do. */
function applyObject(kind: TestKind, name: string, version: string, spec: object, dryRun = false): Promise<KubeObject> {
  const body = { apiVersion: `${GROUP}/${version}`, kind: kind.kind, metadata: { name, namespace: "default" }, spec };
  return client.apply<KubeObject>(pathOf(kind, name, version), body, { fieldManager: "applier", dryRun, signal });
}

/** Applies CRDs one after the other. Under each, objects are stored: `name` of the version, with its fields. */
async function live(kind: TestKind, texts: readonly string[], webhook?: ServedWebhook): Promise<void> {
  for (const text of texts) {
    const manifest = manifestOf(kind, text, webhook);
    await client.apply(`${CRDS}/${kind.name}`, manifest, { fieldManager: "their-gitops", signal });
    const storage = text.split(" ").find((one) => one.includes("+")) ?? "";
    const [, version = "", fields = "a"] = /^(\w+)(?::(\w+))?/.exec(storage) ?? [];
    await engine.untilServed(kind, version);
    const spec = Object.fromEntries(fields.split("").map((field) => [field, field]));
    for (const number of [0, 1]) {
      // Until the API server stores in it.
      await eventually(async () => {
        const before = (await engine.storedAs(kind))[version] ?? 0;
        await applyObject(kind, `${version}-${number}`, version, spec);
        if (((await engine.storedAs(kind))[version] ?? 0) > before) return true;
        await client.delete(pathOf(kind, `${version}-${number}`, version), { signal });
        return false;
      }, `an object is stored in ${version}`);
    }
  }
}

async function check(file: string): Promise<{ readonly code: number; readonly entry: CheckEntry }> {
  const { code, stderr, stdout } = await cluster.ksvm(["check", "-f", file, "-o", "json"]);
  const [entry] = stdout === "" ? [] : (JSON.parse(stdout) as { items: readonly CheckEntry[] }).items;
  if (entry === undefined) throw new Error(stderr);
  return { code, entry };
}

const migrate = (file: string, ...args: readonly string[]) =>
  cluster.migrate(["-f", file, "--apply", "--log-level", "silent", ...args]);

/** The API server follows a CRD a moment later. */
async function untilOnly(kind: TestKind, crd: Crd): Promise<void> {
  for (const { name, served } of crd.spec.versions) await cluster.waitForVersion(kind, name, served);
}

/** What the file says is there, each object is stored and can be read and applied. */
async function assertArrived(
  t: Test,
  kind: TestKind,
  manifest: ReturnType<typeof manifestOf>,
  dropped: readonly string[],
) {
  const crd = await engine.crd(kind);
  t.same(
    namesIn(crd),
    manifest.spec.versions.map(({ name }) => name),
    "the versions of the file",
  );
  t.equal(crd.spec.conversion?.strategy, manifest.spec.conversion.strategy);
  const managers = JSON.stringify(crd.metadata.managedFields);
  t.notMatch(managers, "ksvm-upgrade", "nothing of the CRD is owned by ksvm");
  t.notMatch(JSON.stringify(crd.metadata.annotations ?? {}), "ksvm.sigs", "no annotation is left");
  for (const version of dropped) await cluster.waitForVersion(kind, version, false);
  await untilOnly(kind, crd);
  const storage = storageVersion(crd);
  const stored = Object.keys(await engine.storedAs(kind));
  t.ok(
    stored.every((version) => namesIn(crd).includes(version)),
    `stored in ${stored.join(", ")}`,
  );
  for (const { name: version } of crd.spec.versions.filter(({ served }) => served)) {
    const { items } = await client.list<KubeObject & { spec: { a?: string } }>(
      `/apis/${GROUP}/${version}/${kind.plural}`,
      {
        signal,
      },
    );
    for (const { metadata, spec } of items) {
      t.equal(spec.a, "a", `${metadata.name} has its field in ${version}`);
      const named = (metadata.managedFields ?? []).map((entry) => entry.apiVersion?.split("/").at(-1) ?? "");
      t.ok(
        named.every((one) => namesIn(crd).includes(one)),
        `managedFields of ${metadata.name} name ${named.join()}`,
      );
      if (version !== storage) continue;
      const applied = await applyObject(kind, metadata.name, version, { a: "new" }).then(() => "", messageOf);
      t.equal(applied, "", "server-side apply goes on to work");
      await applyObject(kind, metadata.name, version, { a: "a" });
    }
  }
}

interface Pair {
  readonly name: string;
  /** CRDs one after the other, with objects stored under each. */
  readonly live: readonly string[];
  readonly file: string;
  /** The verdict, and the kinds of the steps. */
  readonly says: string;
  /** Whether a webhook converts before and after. @default neither */
  readonly by?: readonly [before: boolean, after: boolean];
  readonly pruned?: true;
  readonly notes?: RegExp;
}

const PAIRS: readonly Pair[] = [
  { name: "a version is added", live: ["v1+"], file: "v1+ v2", says: "applicable: apply" },
  {
    name: "a new version replaces the old one",
    live: ["v1+"],
    file: "v2+",
    says: "needs-migration: serve flip migrate apply",
  },
  {
    name: "a version that is there replaces it",
    live: ["v1+ v2"],
    file: "v2+",
    says: "needs-migration: serve flip migrate apply",
  },
  {
    name: "one that is not served replaces it",
    live: ["v1+ v2-"],
    file: "v2+",
    says: "needs-migration: serve flip migrate apply",
  },
  {
    name: "a version leaves",
    live: ["v1+", "v1 v2+"],
    file: "v2+",
    says: "needs-migration: migrate apply",
    notes: /managedFields of 2 of 4 objects name v1/,
  },
  {
    name: "two leave at once",
    live: ["v1+", "v1 v2+", "v1- v2 v3+"],
    file: "v3+",
    says: "needs-migration: migrate apply",
  },
  {
    name: "a version leaves that a user took out of storedVersions",
    live: ["v1+", "v1 v2+"],
    file: "v2+",
    pruned: true,
    says: "needs-migration: migrate apply",
  },
  { name: "a version leaves that was never stored", live: ["v1 v2+"], file: "v2+", says: "applicable: migrate apply" },
  {
    name: "the storage version moves",
    live: ["v1+"],
    file: "v1 v2+",
    says: "applicable: serve apply",
    notes: /stay stored in v1 until/,
  },
  {
    name: "the storage version moves with a webhook, and an older one leaves",
    live: ["v0+", "v0 v1+"],
    file: "v1 v2+",
    by: [false, true],
    says: "needs-migration: serve flip migrate apply",
  },
  {
    name: "it moves back, and the newer one leaves",
    live: ["v1+", "v1 v2+"],
    file: "v1+",
    says: "needs-migration: serve flip migrate apply",
  },
  {
    name: "a field is dropped that objects have",
    live: ["v1:ab+"],
    file: "v2:a+",
    says: "needs-migration: serve flip migrate apply",
    notes: /lacks spec\.b \(2 objects\)/,
  },
  {
    name: "a field is dropped that no object has",
    live: ["v1+", "v1:ab+"].slice(0, 1),
    file: "v1:a+ v2",
    says: "applicable: apply",
  },
  {
    name: "a webhook converts",
    live: ["v1+", "v1 v2+"],
    file: "v2+ v3",
    by: [true, true],
    says: "needs-migration: migrate apply",
  },
  {
    name: "a webhook converts, and a new version replaces the old one",
    live: ["v1+"],
    file: "v2+",
    by: [true, true],
    says: "needs-migration: serve flip migrate apply",
  },
  { name: "a webhook comes", live: ["v1+"], file: "v1 v2+", by: [false, true], says: "applicable: serve apply" },
  {
    name: "a webhook goes",
    live: ["v1+", "v1 v2+"],
    file: "v1- v2+",
    by: [true, false],
    says: "needs-migration: migrate apply",
  },
  {
    name: "a webhook goes as the storage version moves",
    live: ["v1+ v2"],
    file: "v1- v2+",
    by: [true, false],
    says: "needs-migration: serve flip migrate apply",
  },
  {
    name: "a webhook goes with the version that would be new",
    live: ["v1+"],
    file: "v2+",
    by: [true, false],
    says: "refused: ",
  },
];

for (const { by = [false, false], file: text, live: texts, name, notes, pruned, says } of PAIRS) {
  parallel(`${name}: ${texts.join(", ")} to ${text}`, async (t) => {
    const kind = new TestKind("pair");
    const webhook = await serveConversion(t);
    await live(kind, texts, by[0] ? webhook : undefined);
    if (pruned) await prune(kind, "v2");
    const manifest = manifestOf(kind, text, by[1] ? webhook : undefined);
    const file = fileOf(t, manifest);
    const [crd, etcd] = [await engine.crd(kind), await engine.storedAs(kind)];
    const { code, entry } = await check(file);
    const kinds = entry.steps.map((step) => step.kind);
    t.equal(`${entry.verdict}: ${kinds.join(" ")}`, says);
    t.equal(code, { applicable: 0, "needs-migration": 4 }[entry.verdict as string] ?? 5);
    if (notes !== undefined) t.match(entry.notes.join("\n"), notes);
    else t.notMatch(entry.notes.join("\n"), /lacks spec/);
    t.same([await engine.crd(kind), await engine.storedAs(kind)], [crd, etcd], "the check changes nothing");
    const run = await migrate(file);
    const told = run.stdout.split("\n").flatMap((line) => /: (serve|flip|migrate|apply): /.exec(line)?.[1] ?? []);
    t.same(told, kinds, "the steps that check named");
    if (code === 5) {
      t.match(run, { code: 5, stdout: entry.reason });
      t.same([await engine.crd(kind), await engine.storedAs(kind)], [crd, etcd], "nothing is changed");
      return;
    }
    t.equal(run.code, 0, run.stdout + run.stderr);
    await assertArrived(t, kind, manifest, entry.removedVersions);
    if (kinds.includes("migrate"))
      t.same(Object.keys(await engine.storedAs(kind)), [storageVersion(await engine.crd(kind))]);
    t.match(await check(file), { code: 0, entry: { verdict: "applicable", steps: [{ kind: "apply" }] } });
  });
}

/** As people do by hand, and runbooks tell them to. */
async function prune(kind: TestKind, version: string): Promise<void> {
  const options = { fieldManager: "kubectl-patch", signal };
  await client.patch(`${CRDS}/${kind.name}/status`, { status: { storedVersions: [version] } }, options);
}

parallel("case 1: a version that was taken out of storedVersions by hand", async (t) => {
  const kind = new TestKind("unlisted");
  await live(kind, ["v1alpha1+"]);
  await client.apply(`${CRDS}/${kind.name}`, manifestOf(kind, "v1alpha1 v1+"), { fieldManager: "kubectl", signal });
  await prune(kind, "v1");
  const manifest = manifestOf(kind, "v1+");
  const file = fileOf(t, manifest);
  t.match(await check(file), {
    code: 4,
    entry: { reason: /although storedVersions does not list that, which kubectl-patch wrote/ },
  });
  const first = await cluster.migrate(["-f", file]);
  t.equal(first.code, 0, first.stderr);
  t.same(await engine.storedAs(kind), { v1: 2 });
  t.match(await check(file), { code: 0, entry: { reason: /which ksvm-freeze wrote/ } }, "from then on it is proven");
  const run = await migrate(file);
  t.equal(run.code, 0, run.stderr);
  await assertArrived(t, kind, manifest, ["v1alpha1"]);
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
  await live(kind, ["v1beta1+"]);
  await client.apply(`${CRDS}/${kind.name}`, defaulted(kind, "v1beta1 v1+"), { fieldManager: "kubectl", signal });
  await engine.untilServed(kind, "v1");
  const apply = (name: string): Promise<string> =>
    applyObject(kind, name, "v1", { a: "a" }, true).then(() => "", messageOf);
  const fresh = () => applyObject(kind, "fresh", "v1", { a: "a" }, true) as Promise<KubeObject & { spec: object }>;
  await eventually(async () => Object.hasOwn((await fresh()).spec, "b"), "the default is in force");
  const started = performance.now();
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stderr);
  t.ok(performance.now() - started < 60_000);
  t.same([await apply("v1beta1-0"), await apply("v1beta1-1")], ["", ""]);
  await client.delete(pathOf(kind, "v1beta1-0", "v1"), { signal });
  await applyObject(kind, "late", "v1beta1", { a: "a" });
  t.match(await apply("late"), /field not declared in schema/, "stored as v1, and in that state all the same");
  t.equal((await cluster.migrate([kind.name, "--force"])).code, 0);
  t.equal(await apply("late"), "");
});

for (const isConverted of [false, true]) {
  parallel(
    `case 3: server-side apply after a version was dropped${isConverted ? ", with a webhook" : ""}`,
    async (t) => {
      const kind = new TestKind("silent");
      const webhook = isConverted ? await serveConversion(t) : undefined;
      await live(kind, ["v1beta1+"], webhook);
      const manifest = manifestOf(kind, "v1+", webhook);
      const file = fileOf(t, manifest);
      t.equal((await cluster.migrate(["-f", file])).code, 0);
      const { items } = await client.list<KubeObject>(`/apis/${GROUP}/v1/${kind.plural}`, { signal });
      const named = items.flatMap(({ metadata }) => metadata.managedFields ?? []).map((entry) => entry.apiVersion);
      t.same([...new Set(named)], [`${GROUP}/v1`], "before the version leaves");
      const run = await migrate(file);
      t.equal(run.code, 0, run.stderr);
      await assertArrived(t, kind, manifest, ["v1beta1"]);
    },
  );
}

parallel("case 5: the metadata of a file comes with its spec, so that its webhook gets its CA", async (t) => {
  const kind = new TestKind("injected");
  await live(kind, ["v1beta1+"]);
  const { clientConfig, ...rest } = await serveConversion(t);
  const { caBundle, url } = clientConfig;
  const annotations = { "cert-manager.io/inject-ca-from": "default/w" };
  const withoutCa = { ...rest, clientConfig: { url } as typeof clientConfig };
  const file = fileOf(t, manifestOf(kind, "v1beta1 v1+", withoutCa, { annotations }));
  t.match(await check(file), {
    code: 0,
    entry: { notes: [/it brings the conversion webhook .*ksvm migrate -f --apply waits/, /stay stored/, /not tried/] },
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
  await live(kind, ["v1beta1+"], undefined);
  await client.patch(`${CRDS}/${kind.name}`, { spec: { conversion } }, { signal });
  const file = fileOf(t, manifestOf(kind, "v1beta1 v1+"));
  const { code, entry } = await check(file);
  t.match({ code, entry }, { code: 5, entry: { verdict: "refused", steps: [], help: [/keep spec\.conversion/] } });
  t.match(await migrate(file), { code: 5, stdout: entry.reason });
  t.same(await engine.storedAs(kind), { v1beta1: 2 });
});

parallel("cases 5b and 7: a webhook that refuses an object, which is named before anything is written", async (t) => {
  const webhook = await serveConversion(t, (name) => name === "v1beta1-1");
  const [there, fresh] = [new TestKind("refuses"), new TestKind("refuses")];
  await live(there, ["v1beta1+ v1"], webhook);
  await live(fresh, ["v1beta1+"], webhook);
  for (const kind of [there, fresh]) {
    const before = await engine.crd(kind);
    const file = fileOf(t, manifestOf(kind, "v1beta1 v1+", webhook));
    const isThere = kind === there;
    const { code, entry } = await check(file);
    t.equal(code, isThere ? 5 : 0, "what is not served cannot be tried");
    if (isThere) t.match(entry.reason, /1 objects are refused .*default\/v1beta1-1: .*cannot be converted/);
    const run = await migrate(file);
    t.match(run, { code: 5, stdout: /refused: 1 objects are refused .*default\/v1beta1-1: .*cannot be converted/ });
    t.same((await engine.crd(kind)).spec, before.spec, "the CRD is as it was");
    t.same(await engine.storedAs(kind), { v1beta1: 2 });
  }
});

parallel(
  "an object that an admission policy keeps from being written stops the move of the storage version",
  async (t) => {
    const kind = new TestKind("denied");
    await live(kind, ["v1alpha1+ v1"]);
    const allow = await rejectUpdatesOf(cluster, kind, "v1alpha1-1");
    const file = fileOf(t, manifestOf(kind, "v1+"));
    t.match(await check(file), {
      code: 5,
      entry: { verdict: "refused", reason: /default\/v1alpha1-1: .*stays as it is/ },
    });
    t.match(await migrate(file), { code: 5, stdout: /refused: 1 objects .*default\/v1alpha1-1/ });
    t.equal(storageVersion(await engine.crd(kind)), "v1alpha1");
    await allow();
    await eventually(async () => (await check(file)).code === 4, "the policy is gone");
    t.equal((await migrate(file)).code, 0);
    t.same(await engine.storedAs(kind), { v1: 2 });
  },
);

parallel("a field that has another type in the new schema keeps the old version in the CRD", async (t) => {
  const kind = new TestKind("retyped");
  await live(kind, ["v1alpha1+"]);
  const manifest = manifestOf(kind, "v1+");
  for (const { schema } of manifest.spec.versions) {
    const { properties } = schema.openAPIV3Schema.properties.spec as { properties: Record<string, object> };
    properties["a"] = { type: "array", items: { type: "string" } };
  }
  const run = await migrate(fileOf(t, manifest));
  t.equal(run.code, 5, run.stdout);
  t.match(
    run.stdout,
    /managedFields of 2 of 2 objects name v1alpha1, and have values that .* v1 does not allow; what helps: /,
  );
  t.same(namesIn(await engine.crd(kind)), ["v1alpha1", "v1"]);
  await engine.assertUnfrozen(t, kind);
});
