// `ksvm migrate -f`: a CRD file that drops or adds versions is brought in without losing an object. Which steps lead there,
// and what `check -f` says of them, is in crd-files.test.ts.
import t, { type Test } from "tap";
import { UPGRADE_FIELD_MANAGER } from "../../src/api/names.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { CRDS, storageVersion } from "../../src/kube/objects.ts";
import { Cluster as Engine, eventually, signal } from "../engine/cluster.ts";
import { Cluster } from "./cluster.ts";
import { type CrdShape, TestKind } from "./crd-fixture.ts";
import { fileOf } from "./crd-file.ts";
import { kubectlOf } from "./kubectl.ts";
import { V1 } from "./lost-objects.ts";
import { parallel } from "./parallel.ts";
import { conversionBy, type ServedWebhook, serveConversion, serveWebhook } from "./serve-webhook.ts";

const cluster = await Cluster.start(t);
const engine = await Engine.connect(t, cluster.controlPlane);
const { client } = engine;
const kubectl = await kubectlOf(cluster);

const V1ALPHA1: CrdShape = { versions: ["v1alpha1"], storage: "v1alpha1" };
const BOTH: CrdShape = { versions: ["v1alpha1", "v1"], storage: "v1alpha1" };

/** A CRD, and objects that are stored as v1alpha1. */
async function createOld(kind: TestKind, count = 3, shape: CrdShape = V1ALPHA1): Promise<void> {
  await cluster.createCrd(kind, shape);
  await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(count, "v1alpha1"));
}

async function assertUpgraded(t: Test, kind: TestKind, count = 3): Promise<void> {
  const crd = await engine.crd(kind);
  t.same(await cluster.storedAs(kind), { v1: count });
  t.same(crd.status?.storedVersions, ["v1"]);
  t.same(
    crd.spec.versions.map(({ name }) => name),
    ["v1"],
  );
  t.notOk(crd.metadata.managedFields?.some(({ manager }) => manager === UPGRADE_FIELD_MANAGER));
  const listed = async (): Promise<number> =>
    (await client.list(`/apis/example.com/v1/${kind.plural}`, { signal }).catch(() => ({ items: [] }))).items.length;
  await eventually(async () => (await listed()) === count, "each can be read");
}

for (const [word, shape] of [
  ["a new version only in the file", V1ALPHA1],
  ["a flip and the end of v1alpha1 in one file", BOTH],
] as const) {
  parallel(`migrate -f: ${word}: first to where the file can be applied, then the file`, async (t) => {
    const kind = new TestKind("upgrade");
    await createOld(kind, 3, shape);
    const path = fileOf(t, kind.manifest(V1));
    const before = await engine.crd(kind);
    const tried = await cluster.migrate(["-f", path, "--apply", "--dry-run"]);
    t.equal(tried.code, 0, tried.stderr);
    t.match(tried.stdout, /flip: makes v1 the storage version[^]*migrate: rewrites[^]*apply: writes/);
    t.equal(/serve: serves v1 as the file has it/.test(tried.stdout), shape === V1ALPHA1);
    t.same(await engine.crd(kind), before, "a dry run changes nothing");
    const run = await cluster.migrate(["-f", path]);
    t.equal(run.code, 0, run.stderr);
    t.match(run.stdout, /can be applied now/);
    t.same(await cluster.storedAs(kind), { v1: 3 });
    t.same((await engine.crd(kind)).status?.storedVersions, ["v1"]);
    t.equal((await engine.crd(kind)).spec.versions.length, 2, "without --apply the file is left to its own client");
    const applied = await cluster.migrate(["-f", path, "--apply"]);
    t.equal(applied.code, 0, applied.stderr);
    await assertUpgraded(t, kind);
    t.equal((await cluster.migrate(["-f", path, "--apply"])).code, 0, "once more is no error");
  });
}

parallel("migrate -f: the file can be applied afterwards by the client that owns it, without a conflict", async (t) => {
  for (const args of [[], ["--server-side"]]) {
    const kind = new TestKind("owner");
    const first = await kubectl(["apply", ...args, "-f", "-"], kind.manifest(V1ALPHA1));
    t.equal(first.code, 0, first.stderr);
    await cluster.waitForVersion(kind, "v1alpha1");
    await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(3, "v1alpha1"));
    const direct = await kubectl(["apply", ...args, "-f", "-"], kind.manifest(V1));
    t.not(direct.code, 0, "negative control: not before");
    const run = await cluster.migrate(["-f", fileOf(t, kind.manifest(V1))]);
    t.equal(run.code, 0, run.stderr);
    const applied = await kubectl(["apply", ...args, "-f", "-"], kind.manifest(V1));
    t.equal(applied.code, 0, applied.stderr);
    await assertUpgraded(t, kind);
  }
});

for (const step of ["migrate", "apply"]) {
  parallel(`migrate -f goes on where it was killed: before the end of "${step}"`, async (t) => {
    const kind = new TestKind("killed");
    await createOld(kind);
    const args = ["-f", fileOf(t, kind.manifest(V1)), "--apply"];
    const running = cluster.spawnKsvm(t, ["migrate", ...args, "--unsafe-settle", "1s", "--log-level", "silent"]);
    await eventually(async () => running.stdout.includes(`${step}: `), `${step} begins`);
    await running.kill();
    const again = await cluster.migrate(args);
    t.equal(again.code, 0, again.stderr);
    await assertUpgraded(t, kind);
  });
}

parallel("migrate -f: several CRDs each by itself; a refusal does not stop the others", async (t) => {
  const [frozen, scope, good, fresh] = [
    new TestKind("many"),
    new TestKind("many"),
    new TestKind("many"),
    new TestKind("many"),
  ];
  await Promise.all([frozen, scope, good].map((kind) => createOld(kind)));
  const annotations = { [MIGRATING]: "mine" };
  await client.patch(`${CRDS}/${frozen.name}`, { metadata: { annotations } }, { fieldManager: "their-tool", signal });
  const path = fileOf(
    t,
    frozen.manifest(V1),
    scope.manifest({ ...V1, scope: "Cluster" }),
    good.manifest(V1),
    fresh.manifest(V1),
  );
  const { code, stdout, stderr } = await cluster.migrate(["-f", path, "--apply", "--log-level", "silent"]);
  t.equal(code, 5, "the worst");
  t.match(stderr, /^warning: --unsafe-settle 50ms [^\n]*\n$/);
  t.match(stdout, /refused: its storage version is frozen by something other than ksvm/);
  t.match(stdout, /refused: .*immutable/);
  await assertUpgraded(t, good);
  await cluster.waitForVersion(fresh, "v1");
  for (const kind of [frozen, scope]) {
    t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
    t.equal(storageVersion(await engine.crd(kind)), "v1alpha1");
  }
});

parallel(
  "migrate -f waits for a conversion webhook, and leaves the CRD as it was where it does not come up",
  async (t) => {
    const webhook = await serveConversion(t);
    webhook.setDown(true);
    const kind = new TestKind("webhook");
    await createOld(kind);
    const path = fileOf(t, kind.manifest({ ...V1, conversion: conversionBy(webhook) }));
    const before = await engine.crd(kind);
    const failed = await cluster.migrate(["-f", path, "--apply", "--max-idle", "4s"]);
    t.equal(failed.code, 1);
    t.match(failed.stderr, /conversion webhook for .* failed/);
    t.same((await engine.crd(kind)).spec, before.spec);
    t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
    let output = "";
    const ended = cluster.migrate(["-f", path, "--apply"], {
      onStdout: (text) => {
        output += text;
      },
    });
    await eventually(async () => /waiting: .*webhook/.test(output), "it waits and says for what");
    t.equal(storageVersion(await engine.crd(kind)), "v1alpha1", "nothing is stored in v1 meanwhile");
    webhook.setDown(false);
    t.equal((await ended).code, 0, (await ended).stderr);
    await assertUpgraded(t, kind);
  },
);

parallel("migrate -f says what goes together", async (t) => {
  t.match(await cluster.ksvm(["migrate", "a.example.com", "-f", "crd.yaml"]), { code: 2 });
  t.match(await cluster.ksvm(["migrate", "a.example.com", "--apply"]), { code: 2, stderr: /pass it with -f/ });
  t.match(await cluster.ksvm(["migrate", "-f", "/nowhere.yaml"]), { code: 1, stderr: /ManifestInvalid/ });
});

/** A webhook for which `size` of v1alpha1 is `width` in v1. */
function serveRename(t: Test): Promise<ServedWebhook> {
  interface Sized {
    readonly apiVersion: string;
    readonly spec: { readonly size?: number; readonly width?: number };
  }
  interface Review {
    readonly request: { readonly uid: string; readonly desiredAPIVersion: string; readonly objects: readonly Sized[] };
  }
  return serveWebhook(t, ({ request: { desiredAPIVersion: apiVersion, objects, uid } }: Review) => {
    const convertedObjects = objects.map(({ spec: { size, width }, ...rest }) => {
      const value = size ?? width;
      return { ...rest, apiVersion, spec: apiVersion.endsWith("/v1") ? { width: value } : { size: value } };
    });
    const response = { uid, result: { status: "Success" }, convertedObjects };
    return { apiVersion: "apiextensions.k8s.io/v1", kind: "ConversionReview", response };
  });
}

const SIZED = { v1alpha1: "size", v1: "width" } as const;

/** With the schema that each version has. */
function sized(kind: TestKind, shape: CrdShape) {
  const manifest = kind.manifest(shape);
  const versions = manifest.spec.versions.map((version) => {
    const field = version.name === "v1" ? SIZED.v1 : SIZED.v1alpha1;
    const spec = { type: "object", properties: { [field]: { type: "integer" } } };
    return { ...version, schema: { openAPIV3Schema: { type: "object", properties: { spec } } } };
  });
  return { ...manifest, spec: { ...manifest.spec, versions } };
}

for (const isMigrated of [false, true]) {
  const what = isMigrated
    ? "migrate -f rewrites every object before"
    : "negative control: applied as it is, the file loses a field";
  parallel(`a project takes its conversion webhook away: ${what}`, async (t) => {
    const kind = new TestKind("converted");
    const conversion = conversionBy(await serveRename(t));
    const both: CrdShape = { versions: ["v1alpha1", "v1"], storage: "v1alpha1", conversion };
    await client.create(CRDS, sized(kind, both), { signal });
    await cluster.waitForVersion(kind, "v1alpha1");
    await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(3, "v1alpha1"));
    await client.patch(`${CRDS}/${kind.name}`, { spec: sized(kind, { ...both, storage: "v1" }).spec }, { signal });
    const file = sized(kind, { versions: ["v1alpha1", "v1"], storage: "v1", unserved: ["v1alpha1"] });
    const path = fileOf(t, file);
    const check = await cluster.ksvm(["check", "-f", path]);
    t.equal(check.code, 4);
    t.match(check.stdout, /has no conversion webhook, so that nothing would convert v1alpha1 to v1/);
    if (isMigrated) {
      const run = await cluster.migrate(["-f", path, "--apply"]);
      t.equal(run.code, 0, run.stderr);
      t.same(await cluster.storedAs(kind), { v1: 3 });
    } else {
      const spec = { ...file.spec, conversion: { strategy: "None", webhook: null } };
      await client.patch(`${CRDS}/${kind.name}`, { spec }, { signal });
    }
    await cluster.waitForVersion(kind, "v1alpha1", false);
    const widthOf = async (): Promise<unknown> =>
      (await client.get<{ spec: { width?: number } }>(engine.path(kind, "w0"), { signal })).spec.width;
    // The API server replaces the handler of v1 a moment after that of v1alpha1 has gone.
    await eventually(async () => (await widthOf()) === (isMigrated ? 2 : undefined), "the object reads so");
  });
}
