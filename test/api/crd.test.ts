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
import { crdWith } from "./crd-with.ts";

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
