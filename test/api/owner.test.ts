import * as fc from "fast-check";
import tap from "tap";

import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../src/api/names.ts";
import { formatOwner, freezeOwnerOf, hasFreezeAnnotation, parseOwner } from "../../src/api/owner.ts";
import { crdWith } from "./crd-fixture.ts";

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

await tap.test("hasFreezeAnnotation() goes by the key, whatever its value", (t) => {
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

await tap.test("freezeOwnerOf() reads the owner annotation", (t) => {
  t.same(freezeOwnerOf(crdWith({ metadata: { annotations: { [OWNER_ANNOTATION]: formatOwner(OWNER) } } })), OWNER);
  t.equal(freezeOwnerOf(crdWith()), undefined);
  t.end();
});
