import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import type { JsonObject } from "../../src/api/json-fields.ts";
import type { CrdManifest } from "../../src/plan/crd-manifests.ts";
import { droppedFieldsOf } from "../../src/plan/dropped-fields.ts";
import { fileWith } from "./check-situation.ts";
import { crdWith } from "../api/crd-with.ts";

const TEXT = { type: "string" };

function objectOf(properties: JsonObject, more: JsonObject = {}): JsonObject {
  return { type: "object", properties, ...more };
}

function spec(properties: JsonObject, more: JsonObject = {}): JsonObject {
  return objectOf({ spec: objectOf(properties, more) });
}

type Conversion = CustomResourceDefinition["spec"]["conversion"];

/** What is dropped where objects are stored in v1 with one schema, and the file stores them in v2 with another one. */
function dropped(
  known: JsonObject,
  target: JsonObject,
  conversions: { live?: Conversion; file?: Conversion } = {},
): readonly string[] {
  const live = crdWith({ versions: ["v1+"], storedVersions: ["v1"], conversion: conversions.live });
  const versions = [{ ...live.spec.versions[0], schema: { openAPIV3Schema: known } }];
  const file = fileWith(["v2+"]);
  const fileVersions = [{ name: "v2", served: true, storage: true, schema: { openAPIV3Schema: target } }];
  const fileSpec = { conversion: conversions.file, versions: fileVersions };
  const manifest: CrdManifest = { ...file, object: { ...file.object, spec: fileSpec } };
  const crd = { ...live, spec: { ...live.spec, versions } } as CustomResourceDefinition;
  return droppedFieldsOf(manifest, crd).map(({ path, versions: names }) => `${path} ${names.join(",")}`);
}

const OPEN = { "x-kubernetes-preserve-unknown-fields": true };
const EMBEDDED = { "x-kubernetes-embedded-resource": true };

function mapOf(additionalProperties: JsonObject | true): JsonObject {
  return { type: "object", additionalProperties };
}

const MAP = mapOf(TEXT);

const cases: readonly (readonly [string, JsonObject, JsonObject, readonly string[]])[] = [
  ["the same schema", spec({ a: TEXT }), spec({ a: TEXT, b: TEXT }), []],
  ["a field", spec({ a: TEXT, b: TEXT }), spec({ a: TEXT }), ["spec.b v1"]],
  ["all of spec, once", spec({ a: TEXT }), objectOf({}), ["spec v1"]],
  ["a field of a field", spec({ a: objectOf({ b: TEXT }) }), spec({ a: objectOf({}) }), ["spec.a.b v1"]],
  [
    "a field of the items of a list of lists",
    spec({ a: { items: { items: objectOf({ b: TEXT }) } } }),
    spec({ a: { items: { items: objectOf({}) } } }),
    ["spec.a[][].b v1"],
  ],
  [
    "a field of the values of a map",
    spec({ a: { additionalProperties: objectOf({ b: TEXT }) } }),
    spec({ a: { additionalProperties: objectOf({}) } }),
    ["spec.a.*.b v1"],
  ],
  ["what a map takes", spec({ a: objectOf({ b: TEXT }) }), spec({ a: { additionalProperties: TEXT } }), []],
  ["what is kept unknown", spec({ a: TEXT }), spec({}, { "x-kubernetes-preserve-unknown-fields": true }), []],
  [
    "what is described below a field that keeps the unknown",
    spec({ a: objectOf({ b: TEXT }) }),
    spec({ a: objectOf({}) }, { "x-kubernetes-preserve-unknown-fields": true }),
    ["spec.a.b v1"],
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
    ["spec.pod.spec v1"],
  ],
  [
    "what every embedded object has, where it is none any more",
    spec({ pod: objectOf({}, { "x-kubernetes-embedded-resource": true }) }),
    spec({ pod: objectOf({}) }),
    ["spec.pod.apiVersion v1", "spec.pod.kind v1", "spec.pod.metadata v1"],
  ],
  ["what is kept unknown, and not any more", spec({}, OPEN), spec({ a: TEXT }), ["spec.* v1"]],
  [
    "what is kept unknown below a field",
    spec({}, OPEN),
    spec({ a: objectOf({}) }, OPEN),
    ["spec.a.* v1", "spec.*: null v1"],
  ],
  [
    "what is kept unknown in a list",
    spec({ a: { items: OPEN } }),
    spec({ a: { items: objectOf({}) } }),
    ["spec.a[].* v1"],
  ],
  [
    "what is kept unknown in the elements of a list that keeps it",
    spec({ a: { type: "array", items: objectOf({ b: TEXT }), ...OPEN } }),
    spec({ a: { type: "array", items: objectOf({}), ...OPEN } }),
    [],
  ],
  ["a map that becomes an object without fields", spec({ a: MAP }), spec({ a: objectOf({}) }), ["spec.a.* v1"]],
  ["a map that becomes an object with fields", spec({ a: MAP }), spec({ a: objectOf({ b: TEXT }) }), ["spec.a.* v1"]],
  [
    "what a field of an object lacks that was a map of objects",
    spec({ a: mapOf(objectOf({ c: TEXT })) }),
    spec({ a: objectOf({ b: objectOf({}) }, OPEN) }),
    ["spec.a.b.c v1"],
  ],
  [
    "objects and lists of a map of anything",
    spec({ a: mapOf(objectOf({ b: TEXT })) }),
    spec({ a: mapOf(true) }),
    ["spec.a.*.b v1"],
  ],
  [
    "fields of a map of anything",
    spec({ a: objectOf({ b: objectOf({ c: TEXT }), d: { items: objectOf({ e: TEXT }) } }) }),
    spec({ a: mapOf(true) }),
    ["spec.a.b.c v1", "spec.a.d[].e v1"],
  ],
  [
    "what is kept unknown in a map of anything",
    spec({ a: objectOf({}, OPEN) }),
    spec({ a: mapOf(true) }),
    ["spec.a.*.* v1"],
  ],
  ["no text of a map of anything", spec({ a: MAP }), spec({ a: mapOf(true) }), []],
  ["null", spec({ a: { ...TEXT, nullable: true }, b: TEXT }), spec({ a: TEXT, b: TEXT }), ["spec.a: null v1"]],
  ["null in a map", spec({ a: mapOf({ ...TEXT, nullable: true }) }), spec({ a: MAP }), ["spec.a.*: null v1"]],
  ["no null that stays", spec({ a: { ...TEXT, nullable: true } }), spec({ a: { ...TEXT, nullable: true } }), []],
  [
    "null that is kept unknown",
    spec({}, OPEN),
    spec({ a: TEXT, b: objectOf({ c: TEXT }) }, OPEN),
    ["spec.b.* v1", "spec.*: null v1"],
  ],
  ["null in a map of anything", spec({ a: mapOf(true) }), spec({ a: MAP }), ["spec.a.*: null v1"]],
  [
    "what the metadata of an object has that was kept unknown",
    spec({ pod: objectOf({}, OPEN) }),
    spec({ pod: objectOf({}, { ...EMBEDDED, ...OPEN }) }),
    ["spec.pod.metadata.* v1"],
  ],
  [
    "what the metadata of objects in a map and in a list has that were kept unknown",
    spec({ a: mapOf(objectOf({}, OPEN)), b: { type: "array", items: objectOf({}, OPEN) } }),
    spec({
      a: mapOf(objectOf({}, { ...EMBEDDED, ...OPEN })),
      b: { type: "array", items: objectOf({}, { ...EMBEDDED, ...OPEN }) },
    }),
    ["spec.a.*.metadata.* v1", "spec.b[].metadata.* v1"],
  ],
  [
    "null in a list that has a default for it",
    spec({ a: { type: "array", items: { ...TEXT, nullable: true } } }),
    spec({ a: { type: "array", items: { ...TEXT, default: "none" } } }),
    ["spec.a[]: null v1"],
  ],
  [
    "no null in a list that an API server refuses",
    spec({ a: { type: "array", items: { ...TEXT, nullable: true } } }),
    spec({ a: { type: "array", items: TEXT } }),
    [],
  ],
  [
    "what metadata had that becomes that of an object",
    spec({ pod: objectOf({ metadata: objectOf({ foo: TEXT }) }) }),
    spec({ pod: objectOf({}, EMBEDDED) }),
    ["spec.pod.metadata.* v1"],
  ],
  [
    "what the metadata of an embedded object has, where it is none any more",
    spec({ pod: objectOf({}, EMBEDDED) }),
    spec({ pod: objectOf({ apiVersion: TEXT, kind: TEXT, metadata: objectOf({}) }) }),
    ["spec.pod.metadata.* v1"],
  ],
  [
    "a field with a name that every JavaScript object has",
    spec({ constructor: TEXT }),
    spec({}),
    ["spec.constructor v1"],
  ],
  ["nothing of what both keep unknown", spec({ a: TEXT }, OPEN), spec({}, OPEN), []],
  [
    "nothing of metadata, whatever is said of it",
    objectOf({ metadata: objectOf({ name: TEXT }) }),
    objectOf({ metadata: objectOf({}) }),
    [],
  ],
];

for (const [name, known, target, expected] of cases) {
  await tap.test(`droppedFieldsOf(): ${name}`, async (t) => {
    t.same(dropped(known, target), expected);
  });
}

await tap.test("droppedFieldsOf() leaves objects to a webhook that converts them", async (t) => {
  const [known, target] = [spec({ a: TEXT }), spec({})];
  t.same(dropped(known, target), ["spec.a v1"]);
  t.same(dropped(known, target, { file: { strategy: "Webhook" } }), [], "the file has one");
  t.same(dropped(known, target, { live: { strategy: "Webhook" } }), [], "the migration before the file has one");
});
