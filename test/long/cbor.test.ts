import t from "tap";
import { storageVersionHashOf, storedVersionsOf } from "../crd.ts";
import { eventually, Cluster } from "../integration/cluster.ts";
import { contents, encodings, restartStoring, revisions, storing, untilServed } from "./cbor-objects.ts";
import { GROUP, TestKind } from "../integration/crd-fixture.ts";

const OBJECTS = 12;

const cluster = await Cluster.start(t, { overrides: [storing("cbor")] });
const { controlPlane } = cluster;

await t.test("migrate rewrites objects that are stored as CBOR, and prunes", async (t) => {
  const kind = new TestKind("binary");
  await cluster.createStale(kind, OBJECTS);
  t.same(await encodings(cluster, kind), { "cbor v1alpha1": OBJECTS });
  const before = await contents(cluster, kind);
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await encodings(cluster, kind), { "cbor v1": OBJECTS });
  t.same(await contents(cluster, kind), before, "nothing else of an object has changed");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await cluster.setVersions(kind, { versions: ["v1"], storage: "v1" });
  await eventually(
    async () => (await cluster.api.listMetadata(kind.resource("v1"), { limit: 100 })).items.length === OBJECTS,
    "every object can be read without the old version",
  );
  t.match(
    await controlPlane.stored.storedCrd(kind.name),
    { status: { storedVersions: ["v1"] } },
    "a CRD is stored as JSON all the same",
  );
});

await t.test("migrate of objects that were stored as JSON before stores them as CBOR", async (t) => {
  await restartStoring(cluster, "json");
  const kind = new TestKind("older");
  await cluster.createStale(kind, OBJECTS);
  t.same(await encodings(cluster, kind), { "json v1alpha1": OBJECTS });
  await restartStoring(cluster, "cbor");
  await untilServed(cluster, kind);
  t.same(await encodings(cluster, kind), { "json v1alpha1": OBJECTS }, "a restart rewrites nothing");
  const before = await contents(cluster, kind);
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await encodings(cluster, kind), { "cbor v1": OBJECTS });
  t.same(await contents(cluster, kind), before);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});

await t.test("a change from JSON to CBOR alone changes no hash, and migrate finds nothing to do", async (t) => {
  await restartStoring(cluster, "json");
  const kind = new TestKind("clean");
  await cluster.createCrd(kind, { storage: "v1" });
  await cluster.createObjects(kind.resource("v1"), kind.objects(OBJECTS, "v1"));
  const before = await shownHash(kind);
  await restartStoring(cluster, "cbor");
  await untilServed(cluster, kind);
  t.equal(await shownHash(kind), before);
  t.equal(before, storageVersionHashOf(GROUP, "v1", kind.kind));
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stdout, /nothing to do/);
  t.same(await encodings(cluster, kind), { "json v1": OBJECTS });

  const [first, ...others] = kind.objects(OBJECTS, "v1");
  const atFirst = await revisions(cluster, kind);
  const path = `/apis/${GROUP}/v1/namespaces/default/${kind.plural}/${first?.metadata.name}`;
  await controlPlane.request(path, { method: "PATCH", body: {} });
  t.same(await encodings(cluster, kind), { "cbor v1": 1, "json v1": others.length }, "a patch of no change is stored");
  const afterwards = await revisions(cluster, kind);
  t.not(afterwards["w0"], atFirst["w0"]);
  await controlPlane.request(path, { method: "PATCH", body: {} });
  t.same(await revisions(cluster, kind), afterwards, "and a second one is not");
});

await t.test("migrate --force stores every object as CBOR", async (t) => {
  const kind = new TestKind("forced");
  await restartStoring(cluster, "json");
  await cluster.createCrd(kind, { storage: "v1" });
  await cluster.createObjects(kind.resource("v1"), kind.objects(OBJECTS, "v1"));
  await restartStoring(cluster, "cbor");
  await untilServed(cluster, kind);
  const run = await cluster.migrate(["--force", kind.name]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await encodings(cluster, kind), { "cbor v1": OBJECTS });
});

await t.test("an API server without the feature gate reads objects that are stored as CBOR", async (t) => {
  const kind = new TestKind("back");
  await cluster.createCrd(kind, { storage: "v1" });
  await cluster.createObjects(kind.resource("v1"), kind.objects(OBJECTS, "v1"));
  t.same(await encodings(cluster, kind), { "cbor v1": OBJECTS });
  const before = await contents(cluster, kind);
  await restartStoring(cluster, "json");
  await untilServed(cluster, kind);
  const { items } = await cluster.api.listMetadata(kind.resource("v1"), { limit: 100 });
  t.equal(items.length, OBJECTS);
  const run = await cluster.migrate(["--force", kind.name]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await encodings(cluster, kind), { "json v1": OBJECTS });
  t.same(await contents(cluster, kind), before);
});

/** The storageVersionHash that discovery shows. */
async function shownHash({ plural }: TestKind): Promise<string | undefined> {
  const { body } = await controlPlane.request(`/apis/${GROUP}/v1`);
  const { resources } = body as { readonly resources: readonly { name: string; storageVersionHash?: string }[] };
  return resources.find(({ name }) => name === plural)?.storageVersionHash;
}
