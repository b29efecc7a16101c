// Which fields an API server drops with another schema: of every object that a schema allows, and of one object.
import tap from "tap";
import type { JsonObject } from "../../src/api/json-fields.ts";
import type { Client } from "../../src/kube/client.ts";
import type { Crd } from "../../src/kube/objects.ts";
import { droppedFields } from "../../src/api/pruned-fields.ts";
import { lossText, MAX_COUNTED, readLosses } from "../../src/inventory/losses.ts";

const TEXT = { type: "string" };

function objectOf(properties: JsonObject, more: JsonObject = {}): JsonObject {
  return { type: "object", properties, ...more };
}

function spec(properties: JsonObject, more: JsonObject = {}): JsonObject {
  return objectOf({ spec: objectOf(properties, more) });
}

const OPEN = { "x-kubernetes-preserve-unknown-fields": true };

function mapOf(additionalProperties: JsonObject | true): JsonObject {
  return { type: "object", additionalProperties };
}

const MAP = mapOf(TEXT);

const cases: readonly (readonly [string, JsonObject, JsonObject, readonly string[]])[] = [
  ["the same schema", spec({ a: TEXT }), spec({ a: TEXT, b: TEXT }), []],
  ["a field", spec({ a: TEXT, b: TEXT }), spec({ a: TEXT }), ["spec.b"]],
  ["all of spec, once", spec({ a: TEXT }), objectOf({}), ["spec"]],
  ["a field of a field", spec({ a: objectOf({ b: TEXT }) }), spec({ a: objectOf({}) }), ["spec.a.b"]],
  [
    "a field of the items of a list of lists",
    spec({ a: { items: { items: objectOf({ b: TEXT }) } } }),
    spec({ a: { items: { items: objectOf({}) } } }),
    ["spec.a[][].b"],
  ],
  ["what is below an open field", spec({ a: { ...OPEN } }), spec({ a: mapOf(objectOf({ b: TEXT })) }), ["spec.a.*.*"]],
  [
    "what is in the elements of a list that keeps all",
    spec({ a: { items: objectOf({}), ...OPEN } }),
    spec({ a: { items: objectOf({}) } }),
    ["spec.a[].*"],
  ],
  [
    "what identifies an embedded object",
    spec({ a: objectOf({}, { "x-kubernetes-embedded-resource": true }) }),
    spec({ a: objectOf({}) }),
    ["spec.a.apiVersion", "spec.a.kind", "spec.a.metadata"],
  ],
  [
    "a field of the values of a map",
    spec({ a: { additionalProperties: objectOf({ b: TEXT }) } }),
    spec({ a: { additionalProperties: objectOf({}) } }),
    ["spec.a.*.b"],
  ],
  ["what a map takes", spec({ a: objectOf({ b: TEXT }) }), spec({ a: { additionalProperties: TEXT } }), []],
  ["what is kept unknown", spec({ a: TEXT }), spec({}, { "x-kubernetes-preserve-unknown-fields": true }), []],
  [
    "what is described below a field that keeps the unknown",
    spec({ a: objectOf({ b: TEXT }) }),
    spec({ a: objectOf({}) }, { "x-kubernetes-preserve-unknown-fields": true }),
    ["spec.a.b"],
  ],
  [
    "what every object has",
    objectOf({ apiVersion: TEXT, kind: TEXT, metadata: objectOf({ name: TEXT }) }),
    objectOf({}),
    [],
  ],
  [
    "what every embedded object has",
    spec({ pod: objectOf({ kind: TEXT, spec: TEXT }) }),
    spec({ pod: objectOf({}, { "x-kubernetes-embedded-resource": true }) }),
    ["spec.pod.spec"],
  ],
  ["what is kept unknown, and not any more", spec({}, OPEN), spec({ a: TEXT }), ["spec.*"]],
  [
    "what is kept unknown in a list",
    spec({ a: { items: OPEN } }),
    spec({ a: { items: objectOf({}) } }),
    ["spec.a[].*"],
  ],
  [
    "what is kept unknown in the elements of a list that keeps it",
    spec({ a: { type: "array", items: objectOf({ b: TEXT }), ...OPEN } }),
    spec({ a: { type: "array", items: objectOf({}), ...OPEN } }),
    [],
  ],
  ["a map that becomes an object without fields", spec({ a: MAP }), spec({ a: objectOf({}) }), ["spec.a.*"]],
  ["a map that becomes an object with fields", spec({ a: MAP }), spec({ a: objectOf({ b: TEXT }) }), ["spec.a.*"]],
  [
    "a map of objects that becomes an object",
    spec({ a: mapOf(objectOf({ c: TEXT })) }),
    spec({ a: objectOf({ b: objectOf({}) }) }),
    ["spec.a.b.c", "spec.a.*"],
  ],
  [
    "what is below a field that an open schema begins to describe",
    spec({}, OPEN),
    spec({ a: objectOf({ b: TEXT }) }, OPEN),
    ["spec.a.*"],
  ],
  ["no text that an open schema begins to describe", spec({}, OPEN), spec({ a: TEXT }, OPEN), []],
  [
    "what is in an embedded object that was open",
    spec({ pod: OPEN }),
    spec({ pod: objectOf({ spec: objectOf({ b: TEXT }) }, { "x-kubernetes-embedded-resource": true, ...OPEN }) }),
    ["spec.pod.spec.*"],
  ],
  [
    "elements of a list that was open",
    spec({ a: OPEN }),
    spec({ a: { type: "array", items: objectOf({ b: TEXT }) } }),
    ["spec.a[].*"],
  ],
  [
    "a map that is open now, and describes a field",
    spec({ a: mapOf(objectOf({ c: TEXT })) }),
    spec({ a: objectOf({ b: objectOf({}) }, OPEN) }),
    ["spec.a.b.c"],
  ],
  ["nothing of what stays open", spec({ a: OPEN }), spec({ a: OPEN }), []],
  [
    "objects and lists of a map of anything",
    spec({ a: mapOf(objectOf({ b: TEXT })) }),
    spec({ a: mapOf(true) }),
    ["spec.a.*.b"],
  ],
  [
    "fields of a map of anything",
    spec({ a: objectOf({ b: objectOf({ c: TEXT }), d: { items: objectOf({ e: TEXT }) } }) }),
    spec({ a: mapOf(true) }),
    ["spec.a.b.c", "spec.a.d[].e"],
  ],
  ["no text of a map of anything", spec({ a: MAP }), spec({ a: mapOf(true) }), []],
  ["a field with a name that every JavaScript object has", spec({ constructor: TEXT }), spec({}), ["spec.constructor"]],
  ["nothing of what both keep unknown", spec({ a: TEXT }, OPEN), spec({}, OPEN), []],
  [
    "nothing of metadata, whatever is said of it",
    objectOf({ metadata: objectOf({ name: TEXT }) }),
    objectOf({ metadata: objectOf({}) }),
    [],
  ],
];

function versionWith(schema: JsonObject) {
  return { name: "v1", served: true, storage: true, schema: { openAPIV3Schema: schema } };
}

/** What is said of more objects than are read, or of those in a version with the same schema: no request is sent. */
async function lossesOf(
  known: JsonObject,
  target: JsonObject | undefined,
  count = MAX_COUNTED + 1,
  storedVersions: readonly string[] = [],
  ...others: readonly object[]
) {
  const names = { plural: "widgets", kind: "Widget" };
  const live = {
    metadata: { name: "widgets" },
    spec: { group: "example.com", names, versions: [versionWith(known), ...others] },
    status: { storedVersions },
  };
  const versions = target === undefined ? [] : [versionWith(target)];
  const meta = { name: "widgets", source: "f", apiVersion: "", labels: {}, annotations: {} };
  const file = { ...meta, spec: {}, versions, target: target === undefined ? "" : "v1" };
  const { signal } = new AbortController();
  return readLosses({} as Client, live as unknown as Crd, file, count, signal);
}

for (const [name, known, target, expected] of cases) {
  await tap.test(
    `of 10,001 objects, those fields are named that one schema describes and the other drops: ${name}`,
    async (t) => {
      t.same(
        (await lossesOf(known, target))?.map(({ path }) => path),
        expected,
      );
    },
  );
}

await tap.test("droppedFields() names each field of one object", async (t) => {
  const schema = spec({
    a: TEXT,
    list: { type: "array", items: objectOf({ b: TEXT }) },
    map: mapOf(objectOf({ c: TEXT })),
  });
  const object = {
    apiVersion: "example.com/v1",
    metadata: { name: "x", labels: { y: "z" } },
    spec: { a: "1", list: [{ b: "2" }, { b: "2", x: 1 }, { y: 1 }], map: { k: { c: "3", z: {} } }, gone: { deep: 1 } },
    status: { ready: true },
  };
  t.same(droppedFields(schema, object, true), [
    "spec.list[].x",
    "spec.list[].y",
    "spec.map.k.z",
    "spec.gone",
    "status",
  ]);
  t.same(droppedFields(objectOf({}, OPEN), object, true), []);
  t.same(droppedFields(spec({ a: OPEN }), { spec: { a: [{ k: 1 }] } }, true), [], "a list in a field that is open");
});

await tap.test("that they were not counted is said", async (t) => {
  const losses = await lossesOf(spec({ a: TEXT }), spec({}));
  t.same(losses?.map(lossText), ["spec.a (not counted)"]);
});

await tap.test("fields of a version that is not served, and that storedVersions lists, are named", async (t) => {
  const unserved = { ...versionWith(spec({ a: TEXT, b: TEXT })), name: "v0", served: false, storage: false };
  const losses = (storedVersions: readonly string[]) =>
    lossesOf(spec({ a: TEXT }), spec({ a: TEXT }), 2, storedVersions, unserved);
  t.same(await losses(["v0", "v1"]), [{ path: "spec.b" }]);
  t.same(await losses(["v1"]), []);
});

await tap.test("without preserveUnknownFields, each version of the file drops what its schema lacks", async (t) => {
  const object = { metadata: { name: "w0" }, spec: { a: "1", b: "2" } };
  const list = { body: { items: [object], metadata: {} }, size: 1 };
  const client = { listWithSize: async () => list, clock: { monotonic: () => 0 } } as unknown as Client;
  const versions = [versionWith(spec({ a: TEXT })), { ...versionWith(spec({ a: TEXT, b: TEXT })), name: "v2" }];
  const names = { plural: "widgets", kind: "Widget" };
  const open = { group: "example.com", names, preserveUnknownFields: true, versions: versions.slice(0, 1) };
  const live = { metadata: { name: "widgets" }, spec: open, status: { storedVersions: ["v1"] } } as unknown as Crd;
  const { signal } = new AbortController();
  t.same(await readLosses(client, live, { target: "v2", versions }, 1, signal), [{ path: "spec.b", objects: 1 }]);
});

await tap.test("nothing is known of a file without a storage version", async (t) => {
  t.equal(await lossesOf(spec({ a: TEXT }), undefined), undefined);
});
