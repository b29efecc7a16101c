import { type CrdVersion, type CustomResourceDefinition, storageVersionOf } from "../crd.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";

export const GROUP = "example.com";
export const OLD = "v1alpha1";
export const NEW = "v1";
export const NAMESPACE = "default";

const CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

export const crdName = (plural: string): string => `${plural}.${GROUP}`;
export const crdPath = (plural: string): string => `${CRDS_PATH}/${crdName(plural)}`;
export const objectsPath = (plural: string, version: string): string =>
  `/apis/${GROUP}/${version}/namespaces/${NAMESPACE}/${plural}`;
export const apiVersion = (version: string): string => `${GROUP}/${version}`;

/** A request that creates a CRD which serves both versions and stores the old one. */
export function newCrd(kind: string): { readonly path: string; readonly body: unknown } {
  const singular = kind.toLowerCase();
  const plural = `${singular}s`;
  const body = {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: crdName(plural) },
    spec: {
      group: GROUP,
      scope: "Namespaced",
      names: { plural, singular, kind, listKind: `${kind}List` },
      versions: [OLD, NEW].map((name) => ({ name, served: true, storage: name === OLD, schema: SCHEMA })),
    },
  };
  return { path: CRDS_PATH, body };
}

const SCHEMA = {
  openAPIV3Schema: {
    type: "object",
    properties: {
      spec: { type: "object", properties: { size: { type: "integer" }, text: { type: "string" } } },
    },
  },
};

/** A merge patch that makes a version the storage version. */
export function storageChange(crd: CustomResourceDefinition, storage: string): unknown {
  return { spec: { versions: versionsStoring(crd, storage) } };
}

/** A merge patch that drops the old version from the CRD. */
export function withoutOldVersion(crd: CustomResourceDefinition): unknown {
  return { spec: { versions: crd.spec.versions.filter(({ name }) => name !== OLD) } };
}

/**
 * A JSON patch that makes the other version the storage version of a frozen CRD.
 *
 * It begins with a test that the CRD is frozen: as soon as ksvm has lifted the freeze the change would be allowed, and
 * an attempt that is a moment late would spoil what the demo shows next. The API server repeats the test on the very
 * object that it would replace, so there is no gap.
 * @param liftsFreeze whether it takes the annotation off in the same update
 */
export function storageChangeWhileFrozen(crd: CustomResourceDefinition, liftsFreeze: boolean): unknown {
  const annotation = `/metadata/annotations/${MIGRATING.replaceAll("~", "~0").replaceAll("/", "~1")}`;
  const storage = storageVersionOf(crd) === NEW ? OLD : NEW;
  return [
    { op: "test", path: annotation, value: "true" },
    ...(liftsFreeze ? [{ op: "remove", path: annotation }] : []),
    { op: "replace", path: "/spec/versions", value: versionsStoring(crd, storage) },
  ];
}

function versionsStoring(crd: CustomResourceDefinition, storage: string): readonly CrdVersion[] {
  return crd.spec.versions.map((version) => ({ ...version, storage: version.name === storage }));
}
