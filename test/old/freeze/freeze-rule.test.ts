import * as fc from "fast-check";
import tap from "tap";
import type { CustomResourceDefinition } from "../../../src/api/crd.ts";
import { FREEZE_REASON, MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../../src/api/names.ts";
import { freezeVerdict, isFrozen } from "../../../src/old/freeze/freeze-rule.ts";
import { crdWith, type CrdTraits, FROZEN } from "./freeze-rule-crd.ts";
import { TEST_SEED } from "../../seed.ts";

const MIGRATING = [{ type: "StorageMigrating", status: "True" }];
const FLIPPED = { v1: false, v2: true };

const cases: readonly [name: string, before: CrdTraits, after: CrdTraits, allowed: boolean][] = [
  ["a storage change, not frozen", {}, { versions: FLIPPED }, true],
  ["a storage change, frozen", { annotations: FROZEN }, { annotations: FROZEN, versions: FLIPPED }, false],
  [
    "a storage change, the annotation empty",
    { annotations: { [MIGRATING_ANNOTATION]: "" } },
    { annotations: { [MIGRATING_ANNOTATION]: "" }, versions: FLIPPED },
    false,
  ],
  [
    'a storage change, the annotation "false"',
    { annotations: { [MIGRATING_ANNOTATION]: "false" } },
    { versions: FLIPPED },
    false,
  ],
  ["the annotation taken off with a storage change", { annotations: FROZEN }, { versions: FLIPPED }, false],
  [
    "all annotations taken off with a storage change",
    { annotations: FROZEN },
    { annotations: {}, versions: FLIPPED },
    false,
  ],
  ["the annotation taken off alone", { annotations: FROZEN }, {}, true],
  ["the annotation put on with a storage change", {}, { annotations: FROZEN, versions: FLIPPED }, true],
  ["the annotation put on alone", {}, { annotations: FROZEN }, true],
  ["another annotation and a storage change", { annotations: { a: "b" } }, { versions: FLIPPED }, true],
  ["the storage version renamed", { annotations: FROZEN }, { versions: { v3: true, v2: false } }, false],
  ["the storage version removed", { annotations: FROZEN }, { versions: { v2: true } }, false],
  ["a storage version added to the other", { annotations: FROZEN }, { versions: { v1: true, v2: true } }, false],
  ["no storage version left", { annotations: FROZEN }, { versions: { v1: false, v2: false } }, false],
  [
    "one of two storage versions lost",
    { annotations: FROZEN, versions: { v1: true, v2: true } },
    { versions: { v1: true, v2: false } },
    false,
  ],
  ["the versions reordered", { annotations: FROZEN }, { versions: { v2: false, v1: true } }, true],
  [
    "two storage versions reordered",
    { annotations: FROZEN, versions: { v1: true, v2: true } },
    { versions: { v2: true, v1: true } },
    true,
  ],
  ["a version added", { annotations: FROZEN }, { versions: { v1: true, v2: false, v3: false } }, true],
  ["a version removed that is not stored", { annotations: FROZEN }, { versions: { v1: true } }, true],
  ["a storage change under StorageMigrating True", { conditions: MIGRATING }, { versions: FLIPPED }, false],
  [
    "a storage change under StorageMigrating False",
    { conditions: [{ type: "StorageMigrating", status: "False" }] },
    { versions: FLIPPED },
    true,
  ],
  [
    "a storage change under StorageMigrating Unknown",
    { conditions: [{ type: "StorageMigrating", status: "Unknown" }] },
    { versions: FLIPPED },
    true,
  ],
  [
    "a storage change under another condition",
    { conditions: [{ type: "Established", status: "True" }] },
    { versions: FLIPPED },
    true,
  ],
  ["a storage change, conditions null", { conditions: null }, { versions: FLIPPED }, true],
  ["a storage change, StorageMigrating new", {}, { conditions: MIGRATING, versions: FLIPPED }, true],
];

for (const [name, before, after, allowed] of cases) {
  await tap.test(`freezeVerdict() ${allowed ? "allows" : "denies"}: ${name}`, (t) => {
    t.equal(freezeVerdict(crdWith(before), crdWith(after)).allowed, allowed);
    t.end();
  });
}

await tap.test("freezeVerdict() allows every other edit of a frozen CRD", (t) => {
  const before = crdWith({ annotations: FROZEN });
  const edits: readonly ((crd: CustomResourceDefinition) => unknown)[] = [
    (crd) => ({ ...crd, metadata: { ...crd.metadata, labels: { team: "a" } } }),
    (crd) => ({ ...crd, spec: { ...crd.spec, conversion: { strategy: "None" } } }),
    (crd) => ({ ...crd, spec: { ...crd.spec, versions: crd.spec.versions.map((v) => ({ ...v, served: false })) } }),
    (crd) => ({ ...crd, spec: { ...crd.spec, versions: crd.spec.versions.map((v) => ({ ...v, schema: {} })) } }),
    (crd) => ({ ...crd, status: { storedVersions: ["v2"] } }),
  ];
  for (const edit of edits) {
    t.same(freezeVerdict(before, edit(before) as CustomResourceDefinition), { allowed: true });
  }
  t.end();
});

const CANNOT =
  'StorageVersionFrozen: cannot change the storage version of CustomResourceDefinition "widgets.example.com" from';
const BY_ANNOTATION =
  `${CANNOT} "v1" to "v2" while its objects are being migrated; wait until the migration ends and takes the annotation ` +
  'ksvm.sigs.k8s.io/migrating off ("ksvm status widgets.example.com" shows how far it is, the annotation ' +
  "ksvm.sigs.k8s.io/migration-owner who migrates), or stop the migration, which then leaves status.storedVersions " +
  'unpruned, with "ksvm unfreeze widgets.example.com" or "kubectl annotate crd widgets.example.com ' +
  'ksvm.sigs.k8s.io/migrating-"';
const OWNER = { lease: "kube-system/ksvm-migrate.widgets", identity: "host-a1", since: "2026-01-01T00:00:00Z" };

await tap.test("freezeVerdict() says what is denied, why, and what to do, on one line", (t) => {
  t.same(freezeVerdict(crdWith({ annotations: FROZEN, conditions: MIGRATING }), crdWith({ versions: FLIPPED })), {
    allowed: false,
    mark: "annotation",
    owner: undefined,
    oldStorage: "v1",
    newStorage: "v2",
    message: BY_ANNOTATION,
  });
  t.same(freezeVerdict(crdWith({ conditions: MIGRATING }), crdWith({ versions: { v1: true, v2: true } })), {
    allowed: false,
    mark: "condition",
    owner: undefined,
    oldStorage: "v1",
    newStorage: "v1, v2",
    message:
      `${CANNOT} "v1" to "v1, v2" while its objects are being migrated; wait until the migration by ` +
      'kube-controller-manager ends and the condition StorageMigrating is no longer "True" ' +
      '("ksvm status widgets.example.com" shows both); if no migration explains it, take it ' +
      'out of status.conditions with "ksvm unfreeze widgets.example.com" or "kubectl edit crd widgets.example.com ' +
      '--subresource=status"',
  });
  t.end();
});

await tap.test("freezeVerdict() quotes of an owner annotation of any user one line, cut", (t) => {
  const wrote = { ...OWNER, identity: `a\n\u2028\u001b[31mb${"c".repeat(1_000)}` };
  const annotations = { ...FROZEN, [OWNER_ANNOTATION]: JSON.stringify(wrote) };
  const verdict = freezeVerdict(crdWith({ annotations }), crdWith({ versions: FLIPPED }));
  t.match(verdict, { message: /run "a \[31mbc{190,}", since/ });
  const message = "message" in verdict ? verdict.message : "";
  t.notOk(["\n", "\u2028", "\u001b", "c".repeat(201)].some((text) => message.includes(text)));
  t.end();
});

await tap.test("freezeVerdict() denies exactly when the old object is frozen and the sets differ", (t) => {
  const versions = fc.dictionary(fc.constantFrom("v1", "v2", "v1beta1", "v2alpha1"), fc.boolean(), {
    noNullPrototype: true,
  });
  const annotations = fc.option(
    fc.dictionary(fc.constantFrom(MIGRATING_ANNOTATION, "a", "__proto__"), fc.constantFrom("", "true", "false")),
    { nil: undefined },
  );
  const condition = fc.record({
    type: fc.constantFrom("StorageMigrating", "Established"),
    status: fc.constantFrom("True", "False", "Unknown"),
  });
  const conditions = fc.option(fc.array(condition, { maxLength: 3 }), { nil: undefined });
  const crd = fc.record({ versions, annotations, conditions });
  fc.assert(
    fc.property(crd, crd, (before, after) => {
      const marked = Object.keys(before.annotations ?? {}).includes(MIGRATING_ANNOTATION);
      const migrating = (before.conditions ?? []).some((c) => c.type === "StorageMigrating" && c.status === "True");
      const verdict = freezeVerdict(crdWith(before), crdWith(after));
      const [from, to] = [storageNames(before.versions), storageNames(after.versions)];
      const differ = [...from, ...to].some((name) => !from.has(name) || !to.has(name));
      return (
        isFrozen(crdWith(before)) === (marked || migrating) &&
        verdict.allowed === !((marked || migrating) && differ) &&
        (verdict.allowed || (verdict.message.startsWith(`${FREEZE_REASON}: `) && !verdict.message.includes("\n")))
      );
    }),
    { seed: TEST_SEED, numRuns: 2000 },
  );
  t.end();
});

function storageNames(versions: Readonly<Record<string, boolean>>): ReadonlySet<string> {
  return new Set(Object.keys(versions).filter((name) => versions[name]));
}
