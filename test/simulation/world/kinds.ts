import type { KindPlan } from "../plan.ts";

export const GROUP = "sim.example.com";

/** `plural.group` of a planned CRD. */
export function crdNameOf({ plural }: KindPlan): string {
  return `${plural}.${GROUP}`;
}

/** The CRD of a plan, with a storage version. */
export function crdOf({ plural, versions }: KindPlan, storage: string): object {
  const kind = kindNameOf(plural);
  const schema = { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } };
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${plural}.${GROUP}` },
    spec: {
      group: GROUP,
      names: { plural, singular: kind.toLowerCase(), kind, listKind: `${kind}List` },
      scope: "Namespaced",
      versions: versionsOf(versions, storage).map((version) => ({ ...version, schema })),
    },
  };
}

/** The versions of a CRD, one of which is the storage version. */
export function versionsOf(versions: readonly string[], storage: string) {
  return versions.map((name) => ({ name, served: true, storage: name === storage }));
}

/** One object of it, as a user sends it. */
export function objectOf({ plural }: KindPlan, version: string, index: number, value: number): object {
  return {
    apiVersion: `${GROUP}/${version}`,
    kind: kindNameOf(plural),
    metadata: { name: `${plural}-${index}`, namespace: "default", labels: { value: String(value) } },
    spec: { value },
  };
}

function kindNameOf(plural: string): string {
  return `${plural.charAt(0).toUpperCase()}${plural.slice(1, -1)}`;
}
