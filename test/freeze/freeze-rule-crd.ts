import type { CustomResourceDefinition } from "../crd.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";

/** What matters of a CRD in a test of the freeze rule. */
export interface CrdTraits {
  /** Name of each version and whether it is a storage version. @default `{ v1: true, v2: false }` */
  readonly versions?: Readonly<Record<string, boolean>>;
  /** @default none */
  readonly annotations?: Readonly<Record<string, string>> | undefined;
}

/** The annotation that freezes. */
export const FROZEN = { [MIGRATING]: "true" };

/** A CRD with these traits, as the API server would send it. */
export function crdWith(traits: CrdTraits = {}): CustomResourceDefinition {
  const { versions = { v1: true, v2: false }, annotations } = traits;
  const crd: unknown = {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: {
      name: "widgets.example.com",
      uid: "2f1c",
      resourceVersion: "7",
      ...(annotations === undefined ? {} : { annotations }),
    },
    spec: {
      group: "example.com",
      scope: "Namespaced",
      names: { plural: "widgets", kind: "Widget" },
      versions: Object.entries(versions).map(([name, storage]) => ({ name, served: true, storage })),
    },
    status: { storedVersions: ["v1"] },
  };
  return crd as CustomResourceDefinition;
}

/** An AdmissionReview about an update from one CRD to another. */
export function reviewOf(oldObject: unknown, object: unknown, uid = "705ab4f5"): Record<string, unknown> {
  return {
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    request: { uid, operation: "UPDATE", name: "widgets.example.com", object, oldObject },
  };
}
