import t from "tap";
import { crdProblem, pruneDoubt, storedVersionsOwner } from "../../src/migrator/crd-state.ts";
import type { Crd, ManagedFieldsEntry } from "../../src/kube/objects.ts";
import { crdLacking } from "../api/crd-lacking.ts";
import { type CrdTraits, crdWith } from "../api/crd-with.ts";

const CLEAN: CrdTraits = { versions: ["v1+"], storedVersions: ["v1"] };
const DELETED = { deletionTimestamp: "2026-01-01T00:00:00Z" };
const OBJECTS_FIRST = "customresourcecleanup.apiextensions.k8s.io";

function crdOf(traits: CrdTraits, ...conditions: readonly object[]): Crd {
  const crd = crdWith(traits);
  return { ...crd, status: { ...crd.status, conditions } } as unknown as Crd;
}

function condition(type: string, status: string, message: string): object {
  return { type, status, reason: "Why", message };
}

const CASES: readonly (readonly [name: string, crd: Crd, reason: RegExp, help: RegExp])[] = [
  [
    "being deleted, while objects keep it",
    crdOf(
      { ...CLEAN, metadata: { ...DELETED, finalizers: [OBJECTS_FIRST] } },
      condition("Terminating", "True", "could not confirm zero CustomResources remaining: timed out"),
    ),
    /^it is being deleted since 2026-01-01T00:00:00Z: could not confirm zero CustomResources remaining: timed out$/,
    /: kubectl get widgets\.example\.com -A -o custom-columns=.*FINALIZERS/,
  ],
  [
    "being deleted, while another program keeps it",
    crdOf({ ...CLEAN, metadata: { ...DELETED, finalizers: ["example.com/keep"] } }),
    /; it waits for example\.com\/keep$/,
    /: kubectl patch crd widgets\.example\.com --type=merge -p '{"metadata":{"finalizers":null}}'$/,
  ],
  [
    "without its version",
    crdOf({ versions: ["v1+"], storedVersions: ["v1alpha1", "v1"] }),
    /^status\.storedVersions lists v1alpha1, which spec\.versions lacks$/,
    /^ksvm doctor widgets\.example\.com --repair$/,
  ],
  [
    "with a name that another CRD has",
    crdOf(CLEAN, condition("NamesAccepted", "False", '"wd" is already in use')),
    /^its names are not accepted: "wd" is already in use$/,
    /group example\.com .*: kubectl get crds /,
  ],
  [
    "that serves no version",
    crdOf({ versions: ["v1-", "v2+-"] }),
    /^it serves no version$/,
    /^kubectl patch crd widgets\.example\.com --type=json -p '\[{"op":"replace","path":"\/spec\/versions\/1\/served","value":true}\]'$/,
  ],
  [
    "whose storage version is not served, and has another schema than the one that is",
    crdLacking(1) as unknown as Crd,
    /^its storage version v2 is not served, and v1 has another schema, so that each write could drop fields$/,
    /^serve v2 until it is migrated: kubectl patch .*\/spec\/versions\/1\/served/,
  ],
  [
    "whose schema is not structural",
    crdOf(CLEAN, condition("NonStructuralSchema", "True", "spec.versions[0].schema.openAPIV3Schema.type: Required")),
    /^its schema is not structural: spec\.versions\[0\]/,
    /: kubectl edit crd widgets\.example\.com$/,
  ],
  [
    "that preserves unknown fields",
    { ...crdOf(CLEAN), spec: { ...crdOf(CLEAN).spec, preserveUnknownFields: true } },
    /^spec\.preserveUnknownFields is true: .* drops once it is false$/,
    /ksvm check -f FILE names/,
  ],
];

for (const [name, crd, reason, help] of CASES) {
  await t.test(`crdProblem() names a CRD ${name}`, async (t) => {
    t.match(crdProblem(crd), { reason, help });
  });
}

await t.test("crdProblem() has nothing to say of a CRD that can be migrated", async (t) => {
  t.equal(crdProblem(crdOf(CLEAN, condition("NamesAccepted", "True", "no conflicts found"))), undefined);
  t.equal(crdProblem(crdOf({})), undefined, "it is stale");
  t.equal(crdProblem(crdLacking(0) as unknown as Crd), undefined, "the version that is served has the same schema");
  const webhook = { ...crdLacking(1).spec, conversion: { strategy: "Webhook" } };
  t.equal(crdProblem({ ...crdLacking(1), spec: webhook } as unknown as Crd), undefined, "a webhook keeps the fields");
  const removed = condition("Terminating", "False", "removed all instances");
  t.match(
    crdProblem(crdOf({ ...CLEAN, metadata: DELETED }, removed)),
    { reason: /^it is being deleted since \S+$/ },
    "what the condition said before is no cause",
  );
});

/** An entry of managedFields that owns storedVersions. */
function owner(manager: string, time = "2026-01-01T00:00:00Z"): ManagedFieldsEntry {
  return { manager, time, subresource: "status", fieldsV1: { "f:status": { "f:storedVersions": {} } } };
}

const IN_TREE = owner("storage-version-migrator-controller");
const OURS = owner("ksvm-freeze", "2025-01-01T00:00:00Z");

await t.test(
  "storedVersionsOwner() is ksvm until another client takes the field away, and nobody at first",
  async (t) => {
    const owned = (...managedFields: readonly ManagedFieldsEntry[]) =>
      storedVersionsOwner(crdOf({ metadata: { managedFields } }));
    t.equal(owned(), undefined);
    t.equal(owned({ ...IN_TREE, subresource: "" }), undefined);
    t.equal(owned({ ...IN_TREE, fieldsV1: { "f:status": { "f:conditions": {} } } }), undefined);
    t.equal(owned(IN_TREE, OURS), "ksvm-freeze");
    t.equal(owned(owner("a", "2025-01-01T00:00:00Z"), owner("b")), "b");
  },
);

const UPDATED = "The migration has succeeded and the stored versions have been updated";
const CHANGED =
  "The migration has succeeded but the stored versions have not been updated due to a generation mismatch";

await t.test("pruneDoubt() believes a success on an unchanged CRD, a prune of ksvm, and nothing else", async (t) => {
  const doubt = (state: object, managedFields: readonly ManagedFieldsEntry[] = [IN_TREE], stored = ["v2"]) =>
    pruneDoubt(
      crdOf(
        { storedVersions: stored, metadata: { managedFields } },
        { type: "StorageMigrating", status: "False", ...state },
      ),
    );
  const failed = { reason: "MigrationFailed" };
  const text = /^objects may be stored in v1, which storedVersions lacks: /;
  t.match(doubt(failed), text);
  t.match(doubt(failed, []), text, "the next migration of that migrator prunes and leaves no owner");
  t.match(doubt(failed, [owner("kubectl-patch")]), text);
  t.match(doubt({ status: "True", reason: "MigrationRunning" }), text);
  t.match(doubt({}), text, "a reason that is not known proves nothing");
  t.match(doubt({ reason: "MigrationSucceeded", message: CHANGED }), text);
  t.equal(doubt({ reason: "MigrationSucceeded", message: UPDATED }), undefined);
  t.equal(doubt(failed, [OURS]), undefined);
  t.equal(doubt(failed, [IN_TREE], ["v1", "v2"]), undefined, "every version is listed");
  t.equal(doubt({ type: "Established", status: "True" }), undefined);
  t.equal(pruneDoubt(crdOf({ storedVersions: ["v2"], metadata: { managedFields: [IN_TREE] } })), undefined);
});
