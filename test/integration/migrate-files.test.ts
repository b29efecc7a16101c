import t, { type Test } from "tap";
import { storageVersionOf, storedVersionsOf } from "../../src/api/crd.ts";
import { MIGRATING_ANNOTATION, UPGRADE_FIELD_MANAGER } from "../../src/api/names.ts";
import type { ApiError } from "../../src/kube/errors.ts";
import { CRDS, MERGE_PATCH } from "../../src/kube/resources.ts";
import { Cluster, eventually } from "./cluster.ts";
import { type CrdShape, TestKind, versionsOf } from "./crd-fixture.ts";
import { fileOf } from "./crd-file.ts";
import { kubectlOf } from "./kubectl.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const kubectl = await kubectlOf(cluster);

const V1ALPHA1: CrdShape = { versions: ["v1alpha1"], storage: "v1alpha1" };
const V1: CrdShape = { versions: ["v1"], storage: "v1" };
const BOTH: CrdShape = { versions: ["v1alpha1", "v1"], storage: "v1alpha1" };

/** A CRD, and objects that are stored as v1alpha1. */
async function createOld(kind: TestKind, count = 3, shape: CrdShape = V1ALPHA1): Promise<void> {
  await cluster.createCrd(kind, shape);
  await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(count, "v1alpha1"));
}

async function assertUpgraded(t: Test, kind: TestKind, count = 3): Promise<void> {
  const crd = await cluster.crd(kind);
  t.same(await cluster.storedAs(kind), { v1: count });
  t.same(storedVersionsOf(crd), ["v1"]);
  t.same(
    crd.spec.versions.map(({ name }) => name),
    ["v1"],
  );
  t.notOk(crd.metadata.managedFields?.some(({ manager }) => manager === UPGRADE_FIELD_MANAGER));
  t.equal((await api.listMetadata(kind.resource("v1"), { limit: 500 })).items.length, count, "each can be read");
}

await t.test(
  "negative control: the file applied as it is is refused; forced through status, objects are lost",
  async (t) => {
    const kind = new TestKind("control");
    await createOld(kind);
    const spec = { versions: versionsOf(V1) };
    const applied = api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec } });
    await t.rejects(applied, /spec\.versions/);
    await cluster.setVersions(kind, { ...BOTH, storage: "v1" });
    const patch = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1"] } } };
    await api.patch(CRDS, kind, patch, { subresource: "status" });
    await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec } });
    t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
    const said = (): Promise<string> =>
      api.listMetadata(kind.resource("v1"), { limit: 500 }).then(
        () => "",
        (error: unknown) => (error as ApiError).said,
      );
    await eventually(async () => (await said()).includes("invalid group/version"), "no object can be read");
  },
);

for (const [word, shape] of [
  ["a new version only in the file", V1ALPHA1],
  ["a flip and the end of v1alpha1 in one file", BOTH],
] as const) {
  await t.test(`migrate -f: ${word}: first to where the file can be applied, then the file`, async (t) => {
    const kind = new TestKind("upgrade");
    await createOld(kind, 3, shape);
    const path = fileOf(t, kind.manifest(V1));
    const before = await cluster.crd(kind);
    const tried = await cluster.migrate(["-f", path, "--apply", "--dry-run"]);
    t.equal(tried.code, 0, tried.stderr);
    t.match(tried.stdout, /flip: makes v1 the storage version[^]*migrate: rewrites[^]*apply: writes[^]*hand-over: /);
    t.equal(/serve: adds v1/.test(tried.stdout), shape === V1ALPHA1);
    t.same(await cluster.crd(kind), before, "a dry run changes nothing");
    const run = await cluster.migrate(["-f", path]);
    t.equal(run.code, 0, run.stderr);
    t.match(run.stdout, /can be applied now/);
    t.same(await cluster.storedAs(kind), { v1: 3 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    t.equal((await cluster.crd(kind)).spec.versions.length, 2, "without --apply the file is left to its own client");
    const applied = await cluster.migrate(["-f", path, "--apply"]);
    t.equal(applied.code, 0, applied.stderr);
    await assertUpgraded(t, kind);
    t.equal((await cluster.migrate(["-f", path, "--apply"])).code, 0, "once more is no error");
  });
}

await t.test(
  "migrate -f: the file can be applied afterwards by the client that owns it, without a conflict",
  async (t) => {
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
      // What ksvm applies is in no one's way either.
      const v2 = kind.manifest({ versions: ["v2"], storage: "v2" });
      const next = await cluster.migrate(["-f", fileOf(t, v2), "--apply"]);
      t.equal(next.code, 0, next.stderr);
      const both = kind.manifest({ versions: ["v2", "v3"], storage: "v2" });
      const again = await kubectl(["apply", ...args, "-f", "-"], both);
      t.equal(again.code, 0, again.stderr);
      t.same(await cluster.storedAs(kind), { v2: 3 });
    }
  },
);

await t.test("migrate -f goes on where it was killed, between each two steps", async (t) => {
  for (const step of ["serve", "flip", "migrate", "hand-over", "apply"]) {
    const kind = new TestKind("killed");
    await createOld(kind);
    const path = fileOf(t, kind.manifest(V1));
    const args = ["migrate", "-f", path, "--apply", "--settle", "3s", "--log-level", "silent"];
    const running = cluster.spawnKsvm(t, args);
    const hasBegun = async (): Promise<boolean> => running.stdout.includes(`${step}: `);
    await eventually(hasBegun, `${step} begins`, undefined, 5);
    await running.kill();
    const again = await cluster.migrate(["-f", path, "--apply"]);
    t.equal(again.code, 0, `${step}: ${again.stderr}`);
    await assertUpgraded(t, kind);
  }
});

await t.test("migrate -f: several CRDs each by itself; a refusal does not stop the others", async (t) => {
  const [frozen, scope, good, fresh] = [1, 2, 3, 4].map(() => new TestKind("many")) as [
    TestKind,
    TestKind,
    TestKind,
    TestKind,
  ];
  for (const kind of [frozen, scope, good]) await createOld(kind);
  const annotations = { [MIGRATING_ANNOTATION]: "mine" };
  const patch = { type: MERGE_PATCH, body: { metadata: { annotations } } };
  await api.patch(CRDS, frozen, patch, { fieldManager: "their-tool" });
  const path = fileOf(
    t,
    frozen.manifest(V1),
    scope.manifest({ ...V1, scope: "Cluster" }),
    good.manifest(V1),
    fresh.manifest(V1),
  );
  const { code, stdout, stderr } = await cluster.migrate(["-f", path, "--apply"]);
  t.equal(code, 5, "the worst");
  t.match(stderr, /frozen by something other than ksvm \(field manager "their-tool"\).*\[ForeignFreeze\]/);
  t.match(stdout, /refused: .*immutable/);
  await assertUpgraded(t, good);
  await cluster.waitForVersion(fresh, "v1");
  for (const kind of [frozen, scope]) {
    t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
    t.equal(storageVersionOf(await cluster.crd(kind)), "v1alpha1");
  }
});

await t.test(
  "migrate -f rewrites every object before it drops a version that storedVersions no longer lists",
  async (t) => {
    const kind = new TestKind("unlisted");
    await cluster.createStale(kind, 3);
    const patch = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1"] } } };
    await api.patch(CRDS, kind, patch, { subresource: "status" });
    t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
    const path = fileOf(t, kind.manifest(V1));
    const run = await cluster.migrate(["-f", path, "--apply"]);
    t.equal(run.code, 0, run.stderr);
    t.match(run.stdout, /migrate: rewrites every object in v1 .*the file drops v1alpha1/);
    await cluster.waitForVersion(kind, "v1alpha1", false);
    await assertUpgraded(t, kind);
  },
);

await t.test(
  "migrate -f waits for a conversion webhook, and leaves the CRD as it was where it does not come up",
  async (t) => {
    const webhook = await serveConversion(t);
    webhook.setDown(true);
    const kind = new TestKind("webhook");
    await createOld(kind);
    const path = fileOf(t, kind.manifest({ ...V1, conversion: conversionBy(webhook) }));
    const before = await cluster.crd(kind);
    const failed = await cluster.migrate(["-f", path, "--apply", "--webhook-wait", "4s", "--max-idle", "4s"]);
    t.equal(failed.code, 1);
    t.match(failed.stderr, /cannot be read in v1: .*again as it was.*Start the conversion webhook \(https:/);
    t.same((await cluster.crd(kind)).spec, before.spec);
    t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
    let output = "";
    const ended = cluster.migrate(["-f", path, "--apply"], {
      onStdout: (text) => {
        output += text;
      },
    });
    await eventually(async () => /waiting: .*webhook/.test(output), "it waits and says for what");
    t.equal(storageVersionOf(await cluster.crd(kind)), "v1alpha1", "nothing is stored in v1 meanwhile");
    webhook.setDown(false);
    t.equal((await ended).code, 0, (await ended).stderr);
    await assertUpgraded(t, kind);
  },
);

await t.test("migrate -f refuses a file without the conversion that its new version needs", async (t) => {
  const kind = new TestKind("gap");
  const webhook = await serveConversion(t);
  await createOld(kind, 3, { ...V1ALPHA1, conversion: conversionBy(webhook) });
  const before = await cluster.crd(kind);
  const { code, stdout } = await cluster.migrate(["-f", fileOf(t, kind.manifest(V1)), "--apply"]);
  t.equal(code, 5);
  t.match(stdout, /keep spec\.conversion with a webhook that knows v1/);
  t.same(await cluster.crd(kind), before);
});

await t.test("migrate -f refuses a file that would lose data, and names the command that helps", async (t) => {
  const kind = new TestKind("lost");
  await cluster.createStale(kind, 3);
  const patch = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1"] } } };
  await api.patch(CRDS, kind, patch, { subresource: "status" });
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec: { versions: versionsOf(V1) } } });
  const path = fileOf(t, kind.manifest(V1));
  const run = () => cluster.migrate(["-f", path, "--apply"]);
  await eventually(async () => (await run()).code === 5, "it is refused");
  t.match((await run()).stdout, /data-loss: .*stored in v1alpha1.*ksvm migrate .* --force/);
  t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
});

await t.test("migrate -f says what goes together", async (t) => {
  t.match(await cluster.ksvm(["migrate", "a.example.com", "-f", "crd.yaml"]), { code: 2 });
  t.match(await cluster.ksvm(["migrate", "a.example.com", "--apply"]), { code: 2, stderr: /pass it with -f/ });
  t.match(await cluster.ksvm(["migrate", "-f", "/nowhere.yaml"]), { code: 1, stderr: /ManifestInvalid/ });
});
