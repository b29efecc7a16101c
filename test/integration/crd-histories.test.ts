import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { stringify } from "yaml";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { CRDS, MERGE_PATCH } from "../../src/kube/resources.ts";
import { Cluster } from "./cluster.ts";
import { type CrdShape, TestKind, versionsOf } from "./crd-fixture.ts";
import { fileOf } from "./crd-file.ts";
import { conversionBy, type ServedWebhook, serveWebhook } from "./serve-webhook.ts";

// CRDs of the same shape as those of three projects, from one release to a later one: which versions they had, and which of them was the
// storage version. Of each, the file of the later release alone is refused by the API server, or would lose data.

const cluster = await Cluster.start(t);
const { api } = cluster;

/** What a client does that applies the file of a release. */
function apply(kind: TestKind, shape: CrdShape): Promise<unknown> {
  const { spec } = kind.manifest(shape);
  return api.patch(CRDS, kind, {
    type: MERGE_PATCH,
    body: { spec: { conversion: { strategy: "None", webhook: null }, ...spec } },
  });
}

async function assertReached(t: Test, kind: TestKind, version: string, objects: number): Promise<void> {
  t.same(await cluster.storedAs(kind), { [version]: objects });
  t.same(storedVersionsOf(await cluster.crd(kind)), [version]);
  t.equal((await api.listMetadata(kind.resource(version), { limit: 500 })).items.length, objects);
}

await t.test(
  "as Gateway API v1.0.0 to v1.2.0: one CRD drops an old version, another one its only version",
  async (t) => {
    const [grants, routes] = [new TestKind("grant"), new TestKind("route")];
    await cluster.createCrd(grants, { versions: ["v1alpha2", "v1beta1"], storage: "v1alpha2" });
    await cluster.createObjects(grants.resource("v1alpha2"), grants.objects(20, "v1alpha2"));
    await apply(grants, { versions: ["v1alpha2", "v1beta1"], storage: "v1beta1" });
    await cluster.createObjects(grants.resource("v1beta1"), grants.objects(5, "v1beta1", "new"));
    await cluster.createCrd(routes, { versions: ["v1alpha2"], storage: "v1alpha2" });
    await cluster.createObjects(routes.resource("v1alpha2"), routes.objects(20, "v1alpha2"));
    const later = [
      [grants, { versions: ["v1beta1"], storage: "v1beta1" }],
      [routes, { versions: ["v1"], storage: "v1" }],
    ] as const;
    const folder = join(t.testdir({}), "crds");
    mkdirSync(folder);
    for (const [kind, shape] of later) {
      await t.rejects(apply(kind, shape), /"v1alpha2": .*spec\.versions/, "negative control");
      writeFileSync(join(folder, `${kind.plural}.yaml`), stringify(kind.manifest(shape)));
    }
    const check = await cluster.ksvm(["check", "-f", folder]);
    t.equal(check.code, 4);
    t.match(check.stdout, new RegExp(`${grants.name} +needs-migration +v1beta1 +v1alpha2,v1beta1 +v1alpha2 +25`));
    t.match(check.stdout, new RegExp(`${routes.name} +two-steps +v1alpha2 +v1alpha2 +v1alpha2 +20`));
    const run = await cluster.migrate(["-f", folder, "--apply"]);
    t.equal(run.code, 0, run.stderr);
    await assertReached(t, grants, "v1beta1", 25);
    await assertReached(t, routes, "v1", 20);
    for (const [kind, shape] of later)
      await t.resolves(apply(kind, shape), "the client of the project applies its file");
    t.equal((await cluster.ksvm(["check", "-f", folder])).code, 0);
  },
);

await t.test(
  "as Cilium v1.15 to v1.16 and later: a new storage version, and the end of the old one a release after",
  async (t) => {
    const kind = new TestKind("nodeconfig");
    await cluster.createCrd(kind, { versions: ["v2alpha1"], storage: "v2alpha1" });
    await cluster.createObjects(kind.resource("v2alpha1"), kind.objects(10, "v2alpha1"));
    const next: CrdShape = { versions: ["v2", "v2alpha1"], storage: "v2" };
    const check = await cluster.ksvm(["check", "-f", fileOf(t, kind.manifest(next))]);
    t.equal(check.code, 0);
    t.match(check.stdout, /objects stay stored in v2alpha1 until ksvm migrate/);
    await apply(kind, next);
    const last: CrdShape = { versions: ["v2"], storage: "v2" };
    await t.rejects(apply(kind, last), /"v2alpha1": .*spec\.versions/, "negative control");
    const path = fileOf(t, kind.manifest(last));
    t.equal((await cluster.ksvm(["check", "-f", path])).code, 4);
    t.equal((await cluster.migrate(["-f", path, "--apply"])).code, 0);
    await assertReached(t, kind, "v2", 10);
  },
);

const OPEN = { type: "object", "x-kubernetes-preserve-unknown-fields": true };

await t.test(
  "as cluster-api v1.5 to v1.6: an unserved version leaves, with a field that the newer one lacks",
  async (t) => {
    const kind = new TestKind("cluster");
    const versions = ["v1alpha3", "v1alpha4", "v1beta1"];
    await cluster.createCrd(kind, { versions, storage: "v1alpha3" });
    await cluster.createObjects(kind.resource("v1alpha3"), kind.objects(10, "v1alpha3"));
    await apply(kind, { versions, storage: "v1beta1", unserved: ["v1alpha3"] });
    const later: CrdShape = { versions: versions.slice(1), storage: "v1beta1", unserved: ["v1alpha4"] };
    await t.rejects(apply(kind, later), /"v1alpha3": .*spec\.versions/, "negative control");
    const manifest = kind.manifest(later);
    const closed = {
      type: "object",
      properties: { spec: { type: "object", properties: { name: { type: "string" } } } },
    };
    const described = {
      type: "object",
      properties: { spec: { type: "object", properties: { size: { type: "integer" } } } },
    };
    const live = versionsOf({ versions, storage: "v1beta1", unserved: ["v1alpha3"] });
    const schemas = live.map((one) => ({
      ...one,
      schema: { openAPIV3Schema: one.name === "v1beta1" ? OPEN : described },
    }));
    await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec: { versions: schemas } } });
    const fileVersions = manifest.spec.versions.map((one) => ({ ...one, schema: { openAPIV3Schema: closed } }));
    const path = fileOf(t, { ...manifest, spec: { ...manifest.spec, versions: fileVersions } });
    const said =
      /does not have spec\.size \(v1alpha3\), spec\.\* \(v1beta1\), .*: no client reads such a field any more/;
    t.match((await cluster.ksvm(["check", "-f", path])).stdout, said);
    const run = await cluster.migrate(["-f", path, "--apply"]);
    t.equal(run.code, 0, run.stderr);
    t.match(run.stdout, said, "it is said before the first step");
    await assertReached(t, kind, "v1beta1", 10);
  },
);

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
  await t.test(`as a project that takes its conversion webhook away: ${what}`, async (t) => {
    const kind = new TestKind("converted");
    const conversion = conversionBy(await serveRename(t));
    const both: CrdShape = { versions: ["v1alpha1", "v1"], storage: "v1alpha1", conversion };
    await api.create(CRDS, sized(kind, both));
    await cluster.waitForVersion(kind, "v1alpha1");
    await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(3, "v1alpha1"));
    await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec: sized(kind, { ...both, storage: "v1" }).spec } });
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
      await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec } });
    }
    await cluster.waitForVersion(kind, "v1alpha1", false);
    const read = await api.get<{ readonly spec: object }>(kind.resource("v1"), { name: "w0", namespace: "default" });
    t.same(read.spec, isMigrated ? { width: 2 } : {});
  });
}
