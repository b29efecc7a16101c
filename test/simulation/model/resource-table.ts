/** A built-in resource, as every release of the model has it. */
export interface BuiltIn {
  readonly group: string;
  readonly resource: string;
  readonly kind: string;
  readonly namespaced: boolean;
  /** Served, the preferred one first. The first one is stored, unless the release says otherwise. */
  readonly versions: readonly string[];
  /** Where etcd has its objects. */
  readonly prefix: string;
  /** @default false */
  readonly hasStatus?: boolean;
  /** Whether a change of anything but metadata and status counts `metadata.generation` up. @default false */
  readonly hasGeneration?: boolean;
  /** Group and version that it is stored in, where it is not one of its own. */
  readonly storedAs?: { readonly group: string; readonly version: string };
  /** The version that the storageVersionHash shows, where the model stores another one. */
  readonly hashedAs?: string;
  readonly shortNames?: readonly string[];
}

/** What an API server is, beside its state. */
export interface Release {
  /** Such as `v1.36.3`. */
  readonly gitVersion: string;
  /** The versions that built-in resources are stored in, by `resource.group`, where the table says otherwise. */
  readonly storageVersions: Readonly<Record<string, string>>;
  /** The versions that are served, by `resource.group`, where the table says otherwise; an empty list for none. */
  readonly servedVersions: Readonly<Record<string, readonly string[]>>;
}

const ADMISSION = { group: "admissionregistration.k8s.io", namespaced: false, versions: ["v1"] } as const;
const RBAC = { group: "rbac.authorization.k8s.io", versions: ["v1"] } as const;
const STORED_EVENT = { group: "", version: "v1" } as const;

/**
 * The resources that ksvm sends requests to, and some that it migrates. The prefixes are those of kube-apiserver 1.36.3.
 * `internal.apiserver.k8s.io` is served where a release names it.
 */
export const BUILT_INS: readonly BuiltIn[] = [
  { ...core("namespaces", "Namespace"), namespaced: false, hasStatus: true },
  { ...core("configmaps", "ConfigMap"), shortNames: ["cm"] },
  core("secrets", "Secret"),
  { ...core("services", "Service"), prefix: "/registry/services/specs/", hasStatus: true },
  { ...core("events", "Event"), shortNames: ["ev"] },
  {
    group: "events.k8s.io",
    resource: "events",
    kind: "Event",
    namespaced: true,
    versions: ["v1"],
    prefix: "/registry/events/",
    storedAs: STORED_EVENT,
    shortNames: ["ev"],
  },
  {
    group: "apps",
    resource: "deployments",
    kind: "Deployment",
    namespaced: true,
    versions: ["v1"],
    prefix: "/registry/deployments/",
    hasStatus: true,
    hasGeneration: true,
    shortNames: ["deploy"],
  },
  {
    group: "coordination.k8s.io",
    resource: "leases",
    kind: "Lease",
    namespaced: true,
    versions: ["v1"],
    prefix: "/registry/leases/",
  },
  {
    group: "discovery.k8s.io",
    resource: "endpointslices",
    kind: "EndpointSlice",
    namespaced: true,
    versions: ["v1"],
    prefix: "/registry/endpointslices/",
  },
  {
    ...ADMISSION,
    resource: "validatingwebhookconfigurations",
    kind: "ValidatingWebhookConfiguration",
    prefix: "/registry/validatingwebhookconfigurations/",
    hasGeneration: true,
  },
  {
    ...ADMISSION,
    resource: "mutatingwebhookconfigurations",
    kind: "MutatingWebhookConfiguration",
    prefix: "/registry/mutatingwebhookconfigurations/",
    hasGeneration: true,
  },
  {
    ...ADMISSION,
    resource: "validatingadmissionpolicies",
    kind: "ValidatingAdmissionPolicy",
    hasStatus: true,
    prefix: "/registry/validatingadmissionpolicies/",
    hasGeneration: true,
  },
  {
    ...ADMISSION,
    resource: "validatingadmissionpolicybindings",
    kind: "ValidatingAdmissionPolicyBinding",
    prefix: "/registry/validatingadmissionpolicybindings/",
    hasGeneration: true,
  },
  { ...RBAC, resource: "clusterroles", kind: "ClusterRole", namespaced: false, prefix: "/registry/clusterroles/" },
  {
    group: "apiregistration.k8s.io",
    resource: "apiservices",
    kind: "APIService",
    namespaced: false,
    versions: ["v1"],
    prefix: "/registry/apiregistration.k8s.io/apiservices/",
    hasStatus: true,
  },
  {
    group: "apiextensions.k8s.io",
    resource: "customresourcedefinitions",
    kind: "CustomResourceDefinition",
    namespaced: false,
    versions: ["v1"],
    hasStatus: true,
    hasGeneration: true,
    // They are stored as v1beta1, which the model spares itself: only its hash is seen.
    hashedAs: "v1beta1",
    shortNames: ["crd", "crds"],
    prefix: "/registry/apiextensions.k8s.io/customresourcedefinitions/",
  },
  {
    group: "storage.k8s.io",
    resource: "volumeattributesclasses",
    kind: "VolumeAttributesClass",
    namespaced: false,
    versions: ["v1", "v1beta1"],
    prefix: "/registry/volumeattributesclasses/",
    shortNames: ["vac"],
  },
  {
    group: "internal.apiserver.k8s.io",
    resource: "storageversions",
    kind: "StorageVersion",
    namespaced: false,
    versions: [],
    prefix: "/registry/storageversions/",
    hasStatus: true,
  },
  {
    group: "storagemigration.k8s.io",
    resource: "storageversionmigrations",
    kind: "StorageVersionMigration",
    namespaced: false,
    versions: [],
    prefix: "/registry/storageversionmigrations/",
    hasStatus: true,
  },
];

/** Kubernetes as the tests run it. */
export const RELEASE_1_36: Release = { gitVersion: "v1.36.3", storageVersions: {}, servedVersions: {} };

/** The same as it was before volumeattributesclasses moved to v1: its storageVersionHash is another one. */
export const RELEASE_1_33: Release = {
  gitVersion: "v1.33.0",
  storageVersions: { "volumeattributesclasses.storage.k8s.io": "v1beta1" },
  servedVersions: { "volumeattributesclasses.storage.k8s.io": ["v1beta1"] },
};

function core(resource: string, kind: string): BuiltIn {
  return { group: "", resource, kind, namespaced: true, versions: ["v1"], prefix: `/registry/${resource}/` };
}
