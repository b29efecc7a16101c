import tap from "tap";
import { SimEtcd } from "../model/etcd.ts";
import type { ModelObject } from "../model/model-object.ts";
import { UnchangedObjectsCheck, WEBHOOK_ANNOTATION } from "./unchanged-objects-check.ts";

const KEY = "/registry/sim.example.com/widgets/default/a";
const CRD_KEY = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.sim.example.com";
const OBJECT: ModelObject = {
  apiVersion: "sim.example.com/v1alpha1",
  kind: "Widget",
  metadata: { name: "a", uid: "1", generation: 1, labels: { a: "b" } },
  spec: { value: 1 },
};
const CRD: ModelObject = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "widgets.sim.example.com", uid: "2", generation: 1, annotations: { other: "annotation" } },
  spec: { versions: [] },
  status: { storedVersions: ["v1alpha1", "v1"], conditions: [{ type: "Established", status: "True" }] },
};

/** What the check says of a write by ksvm that makes `after` of `before`. */
function judged(before: ModelObject | undefined, after: ModelObject | undefined, key = KEY): string | undefined {
  const etcd = new SimEtcd();
  let violation: string | undefined;
  let isByKsvm = false;
  new UnchangedObjectsCheck({
    report: (said) => (violation = said),
    isByKsvm: () => isByKsvm,
    isObject: (name) => name.startsWith("/registry/sim.example.com/"),
    isCrd: (name) => name.endsWith(".sim.example.com"),
    isMissing: (apiVersion) => apiVersion === "sim.example.com/v0",
  }).follow(etcd);
  const found = before && etcd.put(key, { object: before }, 0);
  isByKsvm = true;
  if (after === undefined) etcd.delete(key, found?.modRevision ?? 0);
  else etcd.put(key, { object: after }, found?.modRevision ?? 0);
  return violation;
}

const withMeta = (metadata: object): ModelObject => ({ ...OBJECT, metadata: { ...OBJECT.metadata, ...metadata } });
const managedBy = (...managedFields: readonly object[]): ModelObject => withMeta({ managedFields });

await tap.test("a write of another version is what ksvm is for", async (t) => {
  t.equal(judged(OBJECT, { ...OBJECT, apiVersion: "sim.example.com/v1" }), undefined);
  t.equal(judged(OBJECT, OBJECT), undefined);
});

await tap.test("what users see of an object stays", async (t) => {
  t.match(judged(OBJECT, { ...OBJECT, spec: { value: 2 } }), /changed spec/);
  t.match(judged(OBJECT, withMeta({ generation: 2 })), /changed generation/);
  t.match(judged(OBJECT, withMeta({ labels: {} })), /changed labels/);
  t.match(judged(OBJECT, withMeta({ annotations: { a: "b" } })), /changed annotations/);
  t.match(
    judged(OBJECT, withMeta({ managedFields: [{ manager: "ksvm-rewrite", operation: "Apply" }] })),
    /adds ksvm-rewrite/,
  );
});

await tap.test(
  "managedFields stay, unless an entry names a version that is gone, also where a webhook changed the object",
  async (t) => {
    const entry = {
      manager: "kubectl",
      operation: "Update",
      apiVersion: "sim.example.com/v1",
      fieldsType: "FieldsV1",
      fieldsV1: { "f:spec": { "f:value": {} } },
    } as const;
    const old = { ...entry, manager: "helm", apiVersion: "sim.example.com/v0" };
    t.equal(judged(managedBy(entry), managedBy(entry)), undefined);
    t.equal(judged(managedBy(entry, old), managedBy(old, entry)), undefined, "their order says nothing");
    t.match(judged(managedBy(entry), OBJECT), /removes kubectl Update/);
    t.match(
      judged(managedBy(entry), managedBy({ ...entry, fieldsV1: {} })),
      /changes the fields or the time of kubectl/,
    );
    t.match(
      judged(managedBy(entry), managedBy({ ...entry, time: "2026-01-01T00:00:00Z" })),
      /changes the fields or the time of kubectl/,
    );
    t.match(judged(managedBy(entry, old), managedBy(entry)), /removes helm/, "they are lost as a whole, or not at all");
    t.equal(judged(managedBy(entry, old), OBJECT), undefined);
    const mutated = { spec: { value: 1, mutated: 7 } };
    t.equal(judged(managedBy(entry), { ...managedBy(entry), ...mutated }), undefined);
    t.match(judged(managedBy(entry), { ...OBJECT, ...mutated }), /removes kubectl Update/);
  },
);

await tap.test("no object is created or deleted", async (t) => {
  t.match(judged(undefined, OBJECT), /created/);
  t.match(judged(OBJECT, undefined), /deleted/);
});

await tap.test("what a webhook makes of an object is not ksvm's", async (t) => {
  const mutated = {
    ...withMeta({ generation: 2, annotations: { [`${WEBHOOK_ANNOTATION}a`]: "1" } }),
    spec: { value: 1, mutated: 7 },
  };
  t.equal(judged(OBJECT, mutated), undefined);
  t.match(judged(OBJECT, { ...mutated, spec: { value: 2, mutated: 7 } }), /changed spec/);
});

await tap.test("of a CRD it changes its own annotations, storedVersions and one condition", async (t) => {
  const annotations = { "ksvm.sigs.k8s.io/migrating": "true", other: "annotation" };
  const frozen = { ...CRD, metadata: { ...CRD.metadata, annotations } };
  t.equal(judged(CRD, frozen, CRD_KEY), undefined);
  t.equal(
    judged(CRD, { ...CRD, status: { ...(CRD["status"] as object), storedVersions: ["v1"] } }, CRD_KEY),
    undefined,
  );
  t.match(judged(CRD, { ...CRD, metadata: { ...CRD.metadata, annotations: {} } }, CRD_KEY), /changed other/);
  t.match(judged(CRD, { ...CRD, spec: { versions: [1] } }, CRD_KEY), /changed spec/);
  t.match(judged(CRD, { ...CRD, status: { storedVersions: ["v1"], conditions: null } }, CRD_KEY), /changed conditions/);
});
