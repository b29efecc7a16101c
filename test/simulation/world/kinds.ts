import { apiVersion } from "../../../src/kube/objects.ts";
import type { Encryption } from "../model/context.ts";
import { BUILT_INS, type BuiltIn, type Release, RELEASE_1_37 } from "../model/kinds.ts";
import type { KindPlan, Plan } from "../plan.ts";
import type { ServerBuild } from "./api-server.ts";

export const GROUP = "sim.example.com";

/** `plural.group` of a planned CRD. */
export function crdNameOf({ plural }: KindPlan): string {
  return `${plural}.${GROUP}`;
}

/** What users call a planned resource: `plural.group`, or the plural alone in the core group. */
export function resourceOf(kind: KindPlan): string {
  const { group } = shapeOf(kind);
  return group === "" ? kind.plural : `${kind.plural}.${group}`;
}

/** Its API group. */
export function groupOf(kind: KindPlan): string {
  return shapeOf(kind).group;
}

/** Where etcd has its objects. */
export function prefixOf(kind: KindPlan): string {
  return shapeOf(kind).prefix;
}

/** How the keys of those begin that users of the world made. */
export function objectsPrefixOf(kind: KindPlan): string {
  const { namespaced, prefix } = shapeOf(kind);
  return `${prefix}${namespaced ? "default/" : ""}${kind.plural}-`;
}

/** The path at which users create its objects. */
export function collectionOf(kind: KindPlan, version: string): string {
  const { group, namespaced } = shapeOf(kind);
  const root = group === "" ? `/api/${version}` : `/apis/${group}/${version}`;
  return `${root}/${namespaced ? "namespaces/default/" : ""}${kind.plural}`;
}

type Shape = Pick<BuiltIn, "group" | "kind" | "namespaced" | "prefix">;

/** @throws {RangeError} for a built-in resource that the model does not have. */
function shapeOf({ isBuiltIn = false, plural }: KindPlan): Shape {
  if (!isBuiltIn) {
    return { group: GROUP, kind: kindNameOf(plural), namespaced: true, prefix: `/registry/${GROUP}/${plural}/` };
  }
  const found = BUILT_INS.find(({ resource }) => resource === plural);
  if (found === undefined) throw new RangeError(`the model has no ${plural}`);
  return found;
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
export function objectOf(plan: KindPlan, version: string, index: number, value: number): object {
  const { group, kind, namespaced } = shapeOf(plan);
  const metadata = { name: `${plan.plural}-${index}`, labels: { value: String(value) } };
  return {
    apiVersion: apiVersion({ group, version }),
    kind,
    metadata: namespaced ? { ...metadata, namespace: "default" } : metadata,
    spec: kind === "Deployment" ? { value, template: { spec: { containers: [] } } } : { value },
  };
}

function kindNameOf(plural: string): string {
  return `${plural.charAt(0).toUpperCase()}${plural.slice(1, -1)}`;
}

/** The resources that a release before stored in another version, and in which. */
const OLD_STORAGE: Readonly<Record<string, string>> = {
  "deployments.apps": "v1beta2",
  "volumeattributesclasses.storage.k8s.io": "v1beta1",
};
const NO_IN_TREE = { "storageversionmigrations.storagemigration.k8s.io": [] };
const released = new Map<string, Release>();

/** The release of an API server: before or after its built-in resources moved to another storage version. */
export function releaseOf({ hasInTree = false }: Pick<Plan, "hasInTree">, which: "old" | "new"): Release {
  const name = `${which} ${hasInTree}`;
  let release = released.get(name);
  if (release === undefined) {
    release = {
      gitVersion: which === "old" ? "v1.36.3" : RELEASE_1_37.gitVersion,
      storageVersions: which === "old" ? OLD_STORAGE : {},
      servedVersions: hasInTree ? {} : NO_IN_TREE,
    };
    released.set(name, release);
  }
  return release;
}

/** What an API server encrypts the objects of a world with. Key 0 is plain text. */
export function encryptionOf({ kinds }: Pick<Plan, "kinds">, writes: number, reads: readonly number[]): Encryption {
  return { writes, reads: new Set(reads), resources: new Set(kinds.map(resourceOf)) };
}

/** How the API servers of a world are started. */
export function buildOf(plan: Plan): ServerBuild {
  const isOld = plan.kinds.some(({ isBuiltIn }) => isBuiltIn === true);
  return { release: releaseOf(plan, isOld ? "old" : "new"), encryption: encryptionOf(plan, 1, [0, 1]) };
}
