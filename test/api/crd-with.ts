import type { CustomResourceDefinition } from "../crd.ts";
import type { ObjectMeta } from "../../src/api/meta.ts";

/** What matters of a CRD in a test. */
export interface CrdTraits {
  /** `name`, with `+` behind it for the storage version and `-` for one that is not served. @default `["v1", "v2+"]` */
  readonly versions?: readonly string[];
  /** `undefined` leaves it out. @default `["v1", "v2"]` */
  readonly storedVersions?: readonly string[] | undefined;
  /** @default none, which is `None` */
  readonly conversion?: CustomResourceDefinition["spec"]["conversion"];
  /** Laid over the metadata. */
  readonly metadata?: Partial<ObjectMeta>;
}

/** A CRD with these traits, as the API server would send it. */
export function crdWith(traits: CrdTraits = {}): CustomResourceDefinition {
  const { conversion, versions = ["v1", "v2+"], metadata = {} } = traits;
  const storedVersions = "storedVersions" in traits ? traits.storedVersions : ["v1", "v2"];
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: "widgets.example.com", uid: "uid-1", resourceVersion: "100", generation: 3, ...metadata },
    spec: {
      group: "example.com",
      scope: "Namespaced",
      names: { plural: "widgets", kind: "Widget" },
      ...(conversion === undefined ? {} : { conversion }),
      versions: versions.map((text) => ({
        name: text.replaceAll(/[+-]/g, ""),
        served: !text.includes("-"),
        storage: text.includes("+"),
      })),
    },
    ...(storedVersions === undefined ? {} : { status: { storedVersions } }),
  };
}
