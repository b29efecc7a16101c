import { KsvmError } from "../../errors.ts";

/** A resource of the API: where its objects live. */
export interface Resource {
  /** Empty for the core group. */
  readonly group: string;
  readonly version: string;
  /** The plural, as in the path. */
  readonly resource: string;
}

/** `metav1.PartialObjectMetadata`: the metadata alone, in an answer that has no other field. */
export const ACCEPT_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/** `metav1.PartialObjectMetadataList`. */
export const ACCEPT_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/** RFC 6902. */
export const JSON_PATCH = "application/json-patch+json";
/** RFC 7386. */
export const MERGE_PATCH = "application/merge-patch+json";
/** Server-side apply. JSON is YAML. */
export const APPLY_PATCH = "application/apply-patch+yaml";

/** The path of a group and version, such as `/apis/apps/v1` or `/api/v1`. */
export function groupVersionPath(group: string, version: string): string {
  return group === "" ? `/api/${version}` : `/apis/${group}/${version}`;
}

/** `group/version`, as in `apiVersion`. */
export function apiVersionOf(group: string, version: string): string {
  return group === "" ? version : `${group}/${version}`;
}

/** The path of all objects of a resource, over all namespaces or in one. */
export function collectionPath({ group, version, resource }: Resource, namespace?: string): string {
  const scope = namespace === undefined ? "" : `/namespaces/${segmentOf(namespace)}`;
  return `${groupVersionPath(group, version)}${scope}/${resource}`;
}

/**
 * The path of one object; without a namespace, of a cluster-scoped one.
 * @throws {KsvmError} ResourceNotFound for a name that no object can have.
 */
export function objectPath(
  { group, version, resource }: Resource,
  object: { readonly name: string; readonly namespace?: string },
): string {
  const base = groupVersionPath(group, version);
  const scope = object.namespace === undefined ? "" : `/namespaces/${segmentOf(object.namespace)}`;
  return `${base}${scope}/${resource}/${segmentOf(object.name)}`;
}

/** No encoding keeps these two from leading to another path, and no object has such a name. */
function segmentOf(name: string): string {
  if (name === "." || name === "..") {
    throw new KsvmError(
      "ResourceNotFound",
      `Cannot ask for an object with the name "${name}": no object has that name`,
    );
  }
  return encodeURIComponent(name);
}

/** CustomResourceDefinitions, the version this project speaks. */
export const CRDS: Resource = { group: "apiextensions.k8s.io", version: "v1", resource: "customresourcedefinitions" };
export const LEASES: Resource = { group: "coordination.k8s.io", version: "v1", resource: "leases" };
export const POLICIES: Resource = {
  group: "admissionregistration.k8s.io",
  version: "v1",
  resource: "validatingadmissionpolicies",
};
export const POLICY_BINDINGS: Resource = { ...POLICIES, resource: "validatingadmissionpolicybindings" };
export const WEBHOOK_CONFIGURATIONS: Resource = { ...POLICIES, resource: "validatingwebhookconfigurations" };
/** The migration API of this project (src/api/migration.ts). */
export const MIGRATIONS: Resource = {
  group: "migration.k8s.io",
  version: "v1alpha1",
  resource: "storageversionmigrations",
};
export const STORAGE_STATES: Resource = { ...MIGRATIONS, resource: "storagestates" };
export const SECRETS: Resource = { group: "", version: "v1", resource: "secrets" };
export const EVENTS: Resource = { group: "", version: "v1", resource: "events" };
export const DEPLOYMENTS: Resource = { group: "apps", version: "v1", resource: "deployments" };
export const CLUSTER_ROLES: Resource = {
  group: "rbac.authorization.k8s.io",
  version: "v1",
  resource: "clusterroles",
};
/** What the API server serves itself, and which API servers it passes requests on to. */
export const API_SERVICES: Resource = { group: "apiregistration.k8s.io", version: "v1", resource: "apiservices" };
/** The StorageVersion API, which is alpha and rarely served. */
export const STORAGE_VERSIONS: Resource = {
  group: "internal.apiserver.k8s.io",
  version: "v1alpha1",
  resource: "storageversions",
};
