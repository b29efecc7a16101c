import * as fc from "fast-check";
import tap from "tap";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../src/api/names.ts";
import { besideHelm, helmMarksOf, isOurs, managedByOf } from "../../src/api/ours.ts";
import {
  formatOwner,
  freezeOwnerOf,
  freezerOf,
  hasFreezeAnnotation,
  isSameRun,
  ownerAnnotationOf,
  parseOwner,
} from "../../src/api/owner.ts";
import { leaseNameOf } from "../../src/old/lease/lease-acquire.ts";
import { runLeaseOf } from "../../src/old/lease/run-lease-ref.ts";
import { crdWith } from "./crd-with.ts";
import { TEST_SEED } from "../seed.ts";

const OWNER = { lease: "kube-system/ksvm-1", identity: "host_1", since: "2026-01-01T00:00:00.000Z" };

await tap.test("parseOwner() gives back what formatOwner() was given", (t) => {
  const owners = fc.record({ lease: fc.string(), identity: fc.string(), since: fc.string() });
  fc.assert(
    fc.property(owners, (owner) => {
      t.same(parseOwner(formatOwner(owner)), owner);
    }),
    { seed: TEST_SEED },
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

const CRD = "widgets.example.com";
const name = leaseNameOf(CRD);
const ownerOf = (lease: string) => ({ lease, identity: "host_1", since: "2026-01-01T00:00:00Z" });

await tap.test("runLeaseOf() takes the Lease of a run of this installation, and of a command-line run", (t) => {
  t.same(runLeaseOf(CRD, ownerOf(`ours/${name}`), "ours"), { namespace: "ours", name });
  t.same(runLeaseOf(CRD, ownerOf(`kube-system/${name}`), "ours"), { namespace: "kube-system", name });
  t.end();
});

await tap.test("runLeaseOf() does not trust an annotation that names", (t) => {
  const forged = {
    "the leader's own Lease": "ours/ksvm-controller",
    "the Lease of a part of Kubernetes": "kube-system/kube-controller-manager",
    "the Lease of a run on another CRD": `ours/${leaseNameOf("gadgets.example.com")}`,
    "another namespace": `theirs/${name}`,
    "no namespace": name,
    "an empty namespace": `/${name}`,
    "more than a namespace": `ours/${name}/x`,
    nothing: "",
  };
  for (const [title, lease] of Object.entries(forged)) {
    t.equal(runLeaseOf(CRD, ownerOf(lease), "ours"), undefined, title);
  }
  t.end();
});

const BY = "app.kubernetes.io/managed-by";
const OF_CHART = { [BY]: "Helm", "app.kubernetes.io/part-of": "ksvm" };
const OF_OTHER_CHART = { [BY]: "Helm", "app.kubernetes.io/name": "widgets" };

await tap.test("an object is ours by its label, and where Helm installed it as a part of ksvm", async (t) => {
  t.ok(isOurs({ [BY]: "ksvm" }));
  t.ok(isOurs(OF_CHART));
  t.ok(isOurs({ [BY]: "Helm", "app.kubernetes.io/name": "ksvm" }));
  for (const labels of [undefined, {}, { [BY]: "Helm" }, OF_OTHER_CHART, { "app.kubernetes.io/name": "ksvm" }]) {
    t.notOk(isOurs(labels), JSON.stringify(labels));
  }
});

await tap.test("what Helm installed keeps the name of Helm in its label", async (t) => {
  t.equal(managedByOf(OF_CHART), "Helm");
  for (const labels of [undefined, {}, OF_OTHER_CHART, { [BY]: "ksvm" }]) t.equal(managedByOf(labels), "ksvm");
  const wanted = { metadata: { name: "one", labels: { [BY]: "ksvm", other: "x" } }, spec: {} };
  const annotations = { "meta.helm.sh/release-name": "a", other: "y" };
  t.same(besideHelm(wanted, { metadata: { labels: OF_CHART, annotations } }), {
    metadata: {
      name: "one",
      labels: { ...OF_CHART, other: "x" },
      annotations: { "meta.helm.sh/release-name": "a" },
    },
    spec: {},
  });
  for (const live of [undefined, { metadata: {} }, { metadata: { labels: OF_OTHER_CHART } }]) {
    t.equal(besideHelm(wanted, live), wanted);
  }
  const unlabeled: { readonly metadata: { readonly labels?: Record<string, string> } } = { metadata: {} };
  t.equal(besideHelm(unlabeled, { metadata: { labels: OF_CHART } }), unlabeled);
});

await tap.test(
  "what takes the place of an object of our chart has the marks by which Helm knows its release",
  async (t) => {
    const annotations = { "meta.helm.sh/release-name": "a", "meta.helm.sh/release-namespace": "b", other: "c" };
    t.same(helmMarksOf({ labels: { ...OF_CHART, other: "d" }, annotations }), {
      labels: OF_CHART,
      annotations: { "meta.helm.sh/release-name": "a", "meta.helm.sh/release-namespace": "b" },
    });
    const none = { labels: {}, annotations: {} };
    for (const labels of [{}, OF_OTHER_CHART, { [BY]: "ksvm" }]) t.same(helmMarksOf({ labels, annotations }), none);
    t.same(helmMarksOf({}), none);
  },
);
