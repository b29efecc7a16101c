import * as fc from "fast-check";
import tap from "tap";

import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../src/api/names.ts";
import {
  formatOwner,
  freezeOwnerOf,
  freezerOf,
  hasFreezeAnnotation,
  isSameRun,
  ownerAnnotationOf,
  parseOwner,
} from "../../src/api/owner.ts";
import { crdWith } from "./crd-with.ts";

const OWNER = { lease: "kube-system/ksvm-1", identity: "host_1", since: "2026-01-01T00:00:00.000Z" };

await tap.test("parseOwner() gives back what formatOwner() was given", (t) => {
  const owners = fc.record({ lease: fc.string(), identity: fc.string(), since: fc.string() });
  fc.assert(
    fc.property(owners, (owner) => {
      t.same(parseOwner(formatOwner(owner)), owner);
    }),
  );
  t.end();
});

const foreign: readonly (string | undefined)[] = [
  undefined,
  "",
  "true",
  "null",
  "[]",
  "{}",
  '"host"',
  "{",
  JSON.stringify({ ...OWNER, lease: undefined }),
  JSON.stringify({ ...OWNER, identity: 1 }),
  JSON.stringify({ ...OWNER, since: null }),
];

for (const value of foreign) {
  await tap.test(`parseOwner() is undefined when the annotation is ${value ?? "missing"}`, (t) => {
    t.equal(parseOwner(value), undefined);
    t.end();
  });
}

await tap.test("hasFreezeAnnotation() looks at the key, whatever its value", (t) => {
  for (const value of ["true", "false", ""]) {
    t.ok(hasFreezeAnnotation(crdWith({ metadata: { annotations: { [MIGRATING_ANNOTATION]: value } } })));
  }
  t.notOk(hasFreezeAnnotation(crdWith()));
  t.notOk(hasFreezeAnnotation(crdWith({ metadata: { annotations: { [OWNER_ANNOTATION]: "true" } } })));
  t.notOk(
    hasFreezeAnnotation(crdWith({ metadata: { annotations: Object.create({ [MIGRATING_ANNOTATION]: "true" }) } })),
  );
  t.end();
});

await tap.test("freezeOwnerOf() is the run that froze the CRD, ownerAnnotationOf() the one that is noted", (t) => {
  const left = crdWith({ metadata: { annotations: { [OWNER_ANNOTATION]: formatOwner(OWNER) } } });
  t.equal(freezeOwnerOf(left), undefined);
  t.same(ownerAnnotationOf(left), OWNER);
  t.same(freezeOwnerOf(crdWith({ metadata: frozenBy("true", OWNER) })), OWNER);
  t.equal(freezeOwnerOf(crdWith()), undefined);
  t.end();
});

function managedBy(...managers: readonly string[]) {
  const fieldsV1 = { "f:metadata": { "f:annotations": { ".": {}, [`f:${MIGRATING_ANNOTATION}`]: {} } } };
  const other = { manager: "kubectl", operation: "Update", fieldsV1: { "f:spec": {} } };
  return [other, { manager: "empty" }, ...managers.map((manager) => ({ manager, operation: "Update", fieldsV1 }))];
}

const RUN = { kind: "run", owner: OWNER };
const freezers: readonly (readonly [string, Parameters<typeof freezerOf>[0], unknown])[] = [
  ["nobody where the annotation is missing", { annotations: { [OWNER_ANNOTATION]: formatOwner(OWNER) } }, undefined],
  ["a run that wrote it", { ...frozenBy("true", OWNER), managedFields: managedBy("ksvm-freeze") }, RUN],
  ["a run beside others", { ...frozenBy("true", OWNER), managedFields: managedBy("argocd", "ksvm-freeze") }, RUN],
  [
    "a run where the API server merged its entry",
    { ...frozenBy("true", OWNER), managedFields: managedBy("ancient-changes") },
    RUN,
  ],
  ["a run where managedFields are empty", { ...frozenBy("true", OWNER), managedFields: [] }, RUN],
  ["a run where managedFields are missing", frozenBy("true", OWNER), RUN],
  [
    "a user who froze it after a dead run",
    { ...frozenBy("true", OWNER), managedFields: managedBy("kubectl-annotate") },
    { kind: "other", manager: "kubectl-annotate" },
  ],
  ["another client where the value is not ours", frozenBy("bob", OWNER), { kind: "other", manager: undefined }],
  ["another client where no owner is noted", frozenBy("true", undefined), { kind: "other", manager: undefined }],
];

function frozenBy(value: string, owner: typeof OWNER | undefined) {
  const noted = owner === undefined ? {} : { [OWNER_ANNOTATION]: formatOwner(owner) };
  return { annotations: { [MIGRATING_ANNOTATION]: value, ...noted } };
}

for (const [title, metadata, expected] of freezers) {
  await tap.test(`freezerOf() is ${title}`, (t) => {
    t.same(freezerOf(metadata), expected);
    t.end();
  });
}

await tap.test("isSameRun() compares Lease and identity, whichever the attempt", (t) => {
  t.ok(isSameRun(OWNER, { ...OWNER, since: "later" }));
  t.notOk(isSameRun(OWNER, { ...OWNER, identity: "host_2" }));
  t.notOk(isSameRun(OWNER, { ...OWNER, lease: "kube-system/ksvm-2" }));
  t.end();
});
