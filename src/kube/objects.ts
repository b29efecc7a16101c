import type {
  V1CustomResourceDefinitionSpec,
  V1CustomResourceDefinitionStatus,
  V1LeaseSpec,
} from "@kubernetes/client-node";

/** One entry of `metadata.managedFields`. Times are RFC 3339 texts, as in the answer. */
export interface ManagedFieldsEntry {
  readonly manager?: string;
  readonly operation?: string;
  readonly apiVersion?: string;
  readonly time?: string;
  readonly fieldsType?: string;
  readonly fieldsV1?: Readonly<Record<string, unknown>>;
  readonly subresource?: string;
}

/** The metadata of an object that an API server answered with. */
export interface ObjectMeta {
  readonly name: string;
  readonly namespace?: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly generation?: number;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
  readonly finalizers?: readonly string[];
  readonly managedFields?: readonly ManagedFieldsEntry[];
}

export interface KubeObject {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata: ObjectMeta;
}

/** An answer to a list. */
export interface KubeList<T> {
  readonly metadata: {
    readonly resourceVersion: string;
    readonly continue?: string;
    readonly remainingItemCount?: number;
  };
  readonly items: readonly T[];
}

export interface Crd extends KubeObject {
  readonly spec: V1CustomResourceDefinitionSpec;
  readonly status?: V1CustomResourceDefinitionStatus;
}

export interface Lease extends KubeObject {
  readonly spec?: V1LeaseSpec;
}

/** What a resource is called, in one of its versions. */
export interface Resource {
  /** Empty for the core group. */
  readonly group: string;
  readonly version: string;
  /** As in the path. */
  readonly plural: string;
}

export const CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
export const LEASES = "/apis/coordination.k8s.io/v1/namespaces";
export const POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
export const BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
export const WEBHOOK_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/** `metav1.PartialObjectMetadata`: an answer with the metadata alone. */
export const METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
export const METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

export const JSON_PATCH = "application/json-patch+json";
export const MERGE_PATCH = "application/merge-patch+json";
/** Server-side apply. JSON is YAML. */
export const APPLY_PATCH = "application/apply-patch+yaml";

/** The path of a group and version, such as `/apis/apps/v1` or `/api/v1`. */
export function groupVersionPath({ group, version }: Pick<Resource, "group" | "version">): string {
  return group === "" ? `/api/${version}` : `/apis/${group}/${version}`;
}

/** `group/version`, as in `apiVersion`. */
export function apiVersion({ group, version }: Pick<Resource, "group" | "version">): string {
  return group === "" ? version : `${group}/${version}`;
}

/** `plural.group`, as a CRD is called; a resource of the core group has no dot. */
export function resourceName({ group, plural }: Pick<Resource, "group" | "plural">): string {
  return group === "" ? plural : `${plural}.${group}`;
}

/** The path of all objects of a resource, over all namespaces or in one. */
export function collectionPath(resource: Resource, namespace?: string): string {
  const scope = namespace === undefined ? "" : `/namespaces/${encodeURIComponent(namespace)}`;
  return `${groupVersionPath(resource)}${scope}/${resource.plural}`;
}

/** The path of one object. */
export function objectPath(resource: Resource, { name, namespace }: Pick<ObjectMeta, "name" | "namespace">): string {
  return `${collectionPath(resource, namespace)}/${encodeURIComponent(name)}`;
}

/** The storage version of a CRD that an API server accepted: it has exactly one. */
export function storageVersion({ metadata, spec }: Pick<Crd, "metadata" | "spec">): string {
  const [version, ...others] = spec.versions.filter(({ storage }) => storage);
  if (version === undefined || others.length > 0) {
    throw new TypeError(`Cannot read the storage version of "${metadata.name}": expected exactly one`);
  }
  return version.name;
}

/** Whether `status.storedVersions` is the storage version alone: nothing is left to prune. */
export function isClean(crd: Crd): boolean {
  const stored = crd.status?.storedVersions ?? [];
  return stored.length === 1 && stored[0] === storageVersion(crd);
}

/** Whether a webhook converts between the versions, so that a conversion may move fields. */
export function hasConversionWebhook({ spec }: Pick<Crd, "spec">): boolean {
  return (spec.conversion?.strategy ?? "None") !== "None";
}

/**
 * Whether `a` is a later write than `b`. resourceVersions of one resource are integers that count up in etcd; where one
 * of them is none, as with some aggregated API servers, nothing follows.
 *
 * https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
 */
export function isLater(a: string, b: string): boolean {
  if (!/^\d+$/.test(a) || !/^\d+$/.test(b)) return false;
  return a.length === b.length ? a > b : a.length > b.length;
}
