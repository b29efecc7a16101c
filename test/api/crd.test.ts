import * as fc from "fast-check";
import tap from "tap";
import {
  type CustomResourceDefinition,
  fieldsLostThrough,
  isClean,
  requestVersionOf,
  servedVersionsOf,
  storageVersionHashOf,
  storageVersionOf,
  storageVersionsOf,
  storedVersionsOf,
} from "../../src/api/crd.ts";
import { NewestSeen } from "../../src/api/newest-seen.ts";
import { compareResourceVersions, isNewer } from "../../src/api/resource-version.ts";
import { crdWith } from "./crd-with.ts";
import { TEST_SEED } from "../seed.ts";

const storageCases: readonly [versions: readonly string[], storage: readonly string[]][] = [
  [["v1+"], ["v1"]],
  [["v1", "v2+"], ["v2"]],
  [
    ["v2+", "v1+"],
    ["v1", "v2"],
  ],
  [["v1", "v2"], []],
];

for (const [versions, storage] of storageCases) {
  await tap.test(`storageVersionsOf() is [${storage.join()}] when the versions are ${versions.join()}`, (t) => {
    t.same(storageVersionsOf(crdWith({ versions })), storage);
    t.end();
  });
}

await tap.test("storageVersionOf() throws when not exactly one version is the storage version", (t) => {
  t.equal(storageVersionOf(crdWith()), "v2");
  const message = 'Cannot read the storage version of "widgets.example.com": expected exactly one';
  t.throws(() => storageVersionOf(crdWith({ versions: ["v1", "v2"] })), new TypeError(message));
  t.throws(() => storageVersionOf(crdWith({ versions: ["v1+", "v2+"] })), new TypeError(message));
  t.end();
});

await tap.test("servedVersionsOf() keeps the order of spec.versions and leaves unserved ones out", (t) => {
  t.same(servedVersionsOf(crdWith({ versions: ["v3", "v1+-", "v2"] })), ["v3", "v2"]);
  t.end();
});

const cleanCases: readonly [storedVersions: readonly string[] | undefined, clean: boolean][] = [
  [["v2"], true],
  [["v1"], false],
  [["v1", "v2"], false],
  [["v2", "v1"], false],
  [[], false],
  [undefined, false],
];

for (const [storedVersions, clean] of cleanCases) {
  await tap.test(`isClean() is ${clean} when storedVersions is ${storedVersions?.join() ?? "missing"}`, (t) => {
    const crd = crdWith({ storedVersions });
    t.equal(isClean(crd), clean);
    t.same(storedVersionsOf(crd), storedVersions ?? []);
    t.end();
  });
}

const requestCases: readonly [versions: readonly string[], request: string | undefined][] = [
  [["v1", "v2+"], "v2"],
  [["v1", "v2+-"], "v1"],
  [["v1-", "v2+-", "v3"], "v3"],
  [["v1-", "v2+-"], undefined],
];

for (const [versions, request] of requestCases) {
  await tap.test(`requestVersionOf() is ${request} when the versions are ${versions.join()}`, (t) => {
    t.equal(requestVersionOf(crdWith({ versions })), request);
    t.end();
  });
}

const NARROW = { spec: { type: "object", properties: { size: { type: "integer" } } } };
const WIDE = { spec: { type: "object", properties: { size: { type: "integer" }, extra: { type: "integer" } } } };

/** A CRD that does not serve its storage version v3, with a schema for each version. */
function withSchemas(
  schemas: Readonly<Record<string, object>>,
  more: Partial<CustomResourceDefinition["spec"]> = {},
): CustomResourceDefinition {
  const crd = crdWith({ versions: ["v1", "v2", "v3+-"] });
  const versions = crd.spec.versions.map((version) => {
    const properties = schemas[version.name];
    return properties === undefined
      ? version
      : { ...version, schema: { openAPIV3Schema: { type: "object", properties } } };
  });
  return { ...crd, spec: { ...crd.spec, ...more, versions } };
}

for (const { title, crd, request, lost } of [
  { title: "one that keeps all", crd: withSchemas({ v1: NARROW, v2: WIDE, v3: WIDE }), request: "v2", lost: [] },
  { title: "the first", crd: withSchemas({ v1: NARROW, v2: NARROW, v3: WIDE }), request: "v1", lost: ["spec.extra"] },
  { title: "the first without schemas", crd: withSchemas({}), request: "v1", lost: [] },
  {
    title: "the first where a webhook converts",
    crd: withSchemas({ v1: NARROW, v2: WIDE, v3: WIDE }, { conversion: { strategy: "Webhook" } }),
    request: "v1",
    lost: [],
  },
  {
    title: "the first where nothing is pruned",
    crd: withSchemas({ v1: NARROW, v2: WIDE, v3: WIDE }, { preserveUnknownFields: true }),
    request: "v1",
    lost: [],
  },
]) {
  await tap.test(`requestVersionOf() is ${title}, where the storage version is not served`, (t) => {
    t.equal(requestVersionOf(crd), request);
    t.same(fieldsLostThrough(crd, request), lost);
    t.same(fieldsLostThrough(crd, "v3"), []);
    t.end();
  });
}

await tap.test("storageVersionHashOf() is what an API server's discovery shows", (t) => {
  // The hash of apps/v1 Deployment is part of the API: kubectl get --raw /apis/apps/v1 shows it on every cluster.
  t.equal(storageVersionHashOf("apps", "v1", "Deployment"), "8aSe+NMegvE=");
  t.not(storageVersionHashOf("apps", "v2", "Deployment"), storageVersionHashOf("apps", "v1", "Deployment"));
  t.end();
});

await tap.test("compareResourceVersions() orders as integers do, beyond what a number holds", (t) => {
  const versions = fc.bigInt({ min: 0n, max: 2n ** 100n });
  fc.assert(
    fc.property(versions, versions, (a, b) => {
      const order = compareResourceVersions(String(a), String(b));
      return order !== undefined && Math.sign(order) === (a < b ? -1 : Number(a > b));
    }),
    { seed: TEST_SEED },
  );
  t.equal(compareResourceVersions("9007199254740993", "9007199254740992"), 1);
  t.equal(compareResourceVersions("0", "0"), 0);
  t.end();
});

for (const text of ["", " 1", "1 ", "01", "00", "-1", "+1", "1.0", "1e3", "0x10", "a", "1\n", "١"]) {
  await tap.test(`compareResourceVersions() follows nothing when one is ${JSON.stringify(text)}`, (t) => {
    t.equal(compareResourceVersions(text, "1"), undefined);
    t.equal(compareResourceVersions("1", text), undefined);
    t.equal(isNewer(text, "0"), false);
    t.equal(isNewer("5", text), false);
    t.end();
  });
}

await tap.test("isNewer() is true only beyond the other", (t) => {
  t.equal(isNewer("10", "9"), true);
  t.equal(isNewer("9", "9"), false);
  t.equal(isNewer("9", "10"), false);
  t.end();
});

await tap.test("NewestSeen.take() takes what is newer or the same, and nothing older", (t) => {
  const newest = new NewestSeen();
  for (const version of ["9", "9", "10"]) t.ok(newest.take(version), version);
  t.notOk(newest.take("9"), "as a number");
  t.equal(newest.resourceVersion, "10");
  t.end();
});

await tap.test("NewestSeen.take() takes an older one by a read that was sent after the newer one was taken", (t) => {
  const newest = new NewestSeen();
  newest.take("10");
  const sentAfter = newest.resourceVersion;
  newest.take("12");
  t.notOk(newest.take("11", sentAfter), "the watch overtook the read");
  t.ok(newest.take("11", newest.resourceVersion), "etcd was restored");
  t.ok(newest.take("12"), "from then on the backup's resourceVersions count");
  t.end();
});

await tap.test("NewestSeen.take() takes what cannot be compared", (t) => {
  const newest = new NewestSeen();
  t.ok(newest.take("b"));
  t.ok(newest.take("a"));
  t.ok(newest.take(undefined));
  t.equal(newest.resourceVersion, "a");
  t.end();
});
