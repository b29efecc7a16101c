// `ksvm migrate -f`: CRDs with the versions of two projects, from one release to a later one.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { CRDS, MERGE_PATCH } from "../api-client.ts";
import { Cluster } from "../integration/cluster.ts";
import { fileOf } from "../integration/crd-file.ts";
import { type CrdShape, TestKind, versionsOf } from "../integration/crd-fixture.ts";
import { parallel } from "../integration/parallel.ts";

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

parallel("as Gateway API v1.0.0 to v1.2.0: one CRD drops an old version, another one its only version", async (t) => {
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
  t.match(check.stdout, new RegExp(`${routes.name} +needs-migration +v1alpha2 +v1alpha2 +v1alpha2 +20`));
  const run = await cluster.migrate(["-f", folder, "--apply"]);
  t.equal(run.code, 0, run.stderr);
  t.same(await cluster.storedAs(grants), { v1beta1: 25 });
  t.same(await cluster.storedAs(routes), { v1: 20 });
  for (const [kind, shape] of later) await t.resolves(apply(kind, shape), "the client of the project applies its file");
  t.equal((await cluster.ksvm(["check", "-f", folder])).code, 0);
});

const OPEN = { type: "object", "x-kubernetes-preserve-unknown-fields": true };

parallel(
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
    const said = /its schema lacks spec\.size \(10 objects\): clients no longer see that/;
    t.match((await cluster.ksvm(["check", "-f", path])).stdout, said);
    const run = await cluster.migrate(["-f", path, "--apply"]);
    t.equal(run.code, 0, run.stderr);
    t.match(run.stdout, said, "it is said before the first step");
    t.same(await cluster.storedAs(kind), { v1beta1: 10 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1beta1"]);
  },
);
