import { type CustomResourceDefinition, storageVersionHashOf } from "../../crd.ts";
import { apiVersion } from "../../../src/kube/objects.ts";
import { type EtcdEntry, type Fields, isSame } from "./etcd.ts";

/** What a path of the API names. */
export interface ResourcePath {
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
  readonly subresource?: string | undefined;
}

/** What paths name that were asked for lately: checks and API servers ask for the same ones again and again. */
const paths = new Map<string, ResourcePath | undefined>();
const MAX_KNOWN = 1_000;

/** A path that names a resource or an object; `undefined` for any other one. */
export function resourcePathOf(path: string): ResourcePath | undefined {
  let found = paths.get(path);
  if (found === undefined && !paths.has(path)) {
    if (paths.size >= MAX_KNOWN) paths.clear();
    paths.set(path, (found = parsed(path)));
  }
  return found;
}

function parsed(path: string): ResourcePath | undefined {
  const [, root, ...rest] = path.split("/");
  if (root === "api") return partsOf("", rest);
  return root === "apis" ? partsOf(rest[0] ?? "", rest.slice(1)) : undefined;
}

function partsOf(group: string, [version, ...rest]: readonly string[]): ResourcePath | undefined {
  if (version === undefined || rest.length === 0) return undefined;
  const parts = rest.map((part) => (part.includes("%") ? decodeURIComponent(part) : part));
  const [first = "", second, third, fourth, fifth] = parts;
  if (first !== "namespaces" || third === undefined || third === "status") {
    return { group, version, resource: first, name: second, subresource: third };
  }
  return { group, version, namespace: second, resource: third, name: fourth, subresource: fifth };
}

/** The group that a path is in, empty for the core group; `undefined` for a path of no group. */
export function groupOf(path: string): string | undefined {
  const [, root, group] = path.split("/");
  return root === "api" ? "" : root === "apis" ? group : undefined;
}

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
  /** The version that the storageVersionHash shows, where the model stores another one. */
  readonly hashedAs?: string;
  readonly shortNames?: readonly string[];
}

/** What an API server is, beside its state. */
export interface Release {
  /** Such as `v1.37.2`. */
  readonly gitVersion: string;
  /** The versions that built-in resources are stored in, by `resource.group`, where the table says otherwise. */
  readonly storageVersions: Readonly<Record<string, string>>;
  /** The versions that are served, by `resource.group`, where the table says otherwise; an empty list for none. */
  readonly servedVersions: Readonly<Record<string, readonly string[]>>;
}

const V1 = ["v1"];
const ADMISSION = "admissionregistration.k8s.io";

const CLUSTER_WIDE = { namespaced: false, hasGeneration: true };
const STATUS_ALONE = { namespaced: false, hasStatus: true };

/**
 * The resources that ksvm sends requests to, and some that it migrates, with the prefixes of kube-apiserver 1.37.
 * `internal.apiserver.k8s.io` is served where a release names it.
 */
export const BUILT_INS: readonly BuiltIn[] = [
  builtIn("", "namespaces", "Namespace", { namespaced: false, hasStatus: true }),
  builtIn("", "configmaps", "ConfigMap", { shortNames: ["cm"] }),
  builtIn("", "secrets", "Secret"),
  builtIn("", "services", "Service", { prefix: "/registry/services/specs/", hasStatus: true }),
  builtIn("", "events", "Event", { shortNames: ["ev"] }),
  builtIn("apps", "deployments", "Deployment", { hasStatus: true, hasGeneration: true, shortNames: ["deploy"] }),
  builtIn("coordination.k8s.io", "leases", "Lease"),
  builtIn("discovery.k8s.io", "endpointslices", "EndpointSlice"),
  builtIn(ADMISSION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", CLUSTER_WIDE),
  builtIn(ADMISSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", CLUSTER_WIDE),
  builtIn(ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", { ...CLUSTER_WIDE, hasStatus: true }),
  builtIn(ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", CLUSTER_WIDE),
  builtIn("apiregistration.k8s.io", "apiservices", "APIService", {
    namespaced: false,
    prefix: "/registry/apiregistration.k8s.io/apiservices/",
    hasStatus: true,
  }),
  builtIn("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", {
    ...CLUSTER_WIDE,
    hasStatus: true,
    // They are stored as v1beta1, which the model spares itself: only its hash is seen.
    hashedAs: "v1beta1",
    shortNames: ["crd", "crds"],
    prefix: "/registry/apiextensions.k8s.io/customresourcedefinitions/",
  }),
  builtIn("storage.k8s.io", "volumeattributesclasses", "VolumeAttributesClass", {
    namespaced: false,
    versions: ["v1", "v1beta1"],
    shortNames: ["vac"],
  }),
  builtIn("internal.apiserver.k8s.io", "storageversions", "StorageVersion", { versions: [], ...STATUS_ALONE }),
  builtIn("storagemigration.k8s.io", "storageversionmigrations", "StorageVersionMigration", STATUS_ALONE),
];

/** Kubernetes as the tests run it. */
export const RELEASE_1_37: Release = { gitVersion: "v1.37.2", storageVersions: {}, servedVersions: {} };

function builtIn(group: string, resource: string, kind: string, more: Partial<BuiltIn> = {}): BuiltIn {
  return { group, resource, kind, namespaced: true, versions: V1, prefix: `/registry/${resource}/`, ...more };
}

/** The built-in resources that a release serves, by {@link kindKey}. */
export function builtInKinds(release: Release): ReadonlyMap<string, ServedKind> {
  let kinds = known.get(release);
  if (kinds === undefined) {
    kinds = new Map(BUILT_INS.flatMap((builtIn) => kindsOf(builtIn, release).map((kind) => [kindKey(kind), kind])));
    known.set(release, kinds);
  }
  return kinds;
}

const known = new WeakMap<Release, ReadonlyMap<string, ServedKind>>();

/** Whether a release has a group by itself. */
export function isBuiltInGroup(release: Release, group: string | undefined): boolean {
  return [...builtInKinds(release).values()].some((kind) => kind.group === group);
}

function kindsOf(builtIn: BuiltIn, release: Release): readonly ServedKind[] {
  const { group, kind, resource, hasStatus = false, hasGeneration = false } = builtIn;
  const name = group === "" ? resource : `${resource}.${group}`;
  const versions = release.servedVersions[name] ?? builtIn.versions;
  const stored = release.storageVersions[name] ?? versions[0] ?? "";
  return versions.map((version) => ({
    group,
    version,
    resource,
    kind,
    hasStatus,
    hasGeneration,
    apiVersion: apiVersion({ group, version }),
    listKind: `${kind}List`,
    singular: kind.toLowerCase(),
    shortNames: builtIn.shortNames,
    namespaced: builtIn.namespaced,
    prefix: builtIn.prefix,
    storedApiVersion: apiVersion({ group, version: stored }),
    storageVersionHash: storageVersionHashOf(group, builtIn.hashedAs ?? stored, kind),
  }));
}

/** One version of a resource, as one API server serves it at one moment: what a request is bound to. */
export interface ServedKind {
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  /** In the version that is served. */
  readonly apiVersion: string;
  readonly kind: string;
  readonly listKind: string;
  readonly singular: string;
  readonly shortNames?: readonly string[] | undefined;
  readonly namespaced: boolean;
  readonly hasStatus: boolean;
  readonly hasGeneration: boolean;
  /** What its fields have by default. */
  readonly defaults?: Fields | undefined;
  /** Where etcd has its objects. */
  readonly prefix: string;
  /** What the API server writes. */
  readonly storedApiVersion: string;
  /** As discovery shows it; empty where it shows none. */
  readonly storageVersionHash: string;
  /** Of a custom resource. */
  readonly crd?: CrdStorage;
}

/** Whether an object that is stored in a version can be read. Built-in resources know every version there was. */
export function isDecodable({ crd, group }: ServedKind, stored: string): boolean {
  return crd === undefined || crd.facts.versions.some(({ name }) => apiVersion({ group, version: name }) === stored);
}

/** What an API server reads from a CRD. */
interface CrdFacts {
  readonly name: string;
  readonly uid: string;
  readonly group: string;
  readonly namespaced: boolean;
  readonly versions: readonly CrdVersionFacts[];
  readonly storageVersion: string;
  readonly names: CrdNames;
  readonly isEstablished: boolean;
  readonly isTerminating: boolean;
  readonly spec: unknown;
  /** What every version serves. */
  readonly kinds: ReadonlyMap<string, Omit<ServedKind, "crd">>;
}

/** One of `spec.versions`. */
interface CrdVersionFacts {
  readonly name: string;
  readonly served: boolean;
  readonly hasStatus: boolean;
  readonly defaults: Fields | undefined;
}

/** `spec.names`. */
export interface CrdNames {
  readonly plural: string;
  readonly singular: string;
  readonly kind: string;
  readonly listKind: string;
  readonly shortNames?: readonly string[];
}

/** The handler of a custom resource in one API server. Another spec gets another one, with a watch cache of its own. */
export interface CrdStorage {
  readonly facts: CrdFacts;
  /** The revision that its watch cache began with. */
  readonly since: number;
}

/** What a path names. */
export function kindKey({ group, resource, version }: Pick<ServedKind, "group" | "version" | "resource">): string {
  return `${group}/${version}/${resource}`;
}

/** Where etcd has the CRDs. */
export const CRD_PREFIX = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/** What one part of one API server knows of the CRDs. It follows when it is told to. */
export class CrdRegistry {
  readonly #byName = new Map<string, CrdStorage>();
  /** Which revision of a CRD was taken last: it never goes back to an earlier one. */
  readonly #followed = new Map<string, number>();
  /** What discovery answers about these CRDs, by path: it is as it was until one of them changes. */
  readonly answers = new Map<string, string>();

  /** By `plural.group`. */
  get(name: string): CrdStorage | undefined {
    return this.#byName.get(name);
  }

  all(): Iterable<CrdStorage> {
    return this.#byName.values();
  }

  /** Whether it has yet to take a CRD as it was at a revision. */
  isBehind(name: string, revision: number): boolean {
    return (this.#followed.get(name) ?? 0) < revision;
  }

  /**
   * Takes a CRD as it was at a revision, `undefined` where it was gone.
   * @param entry what etcd had then
   * @param now the revision that etcd is at
   * @returns the handler that is no longer used, whose watches end
   */
  follow(
    name: string,
    entry: EtcdEntry | undefined,
    { revision, now }: { readonly revision: number; readonly now: number },
  ): CrdStorage | undefined {
    this.#followed.set(name, revision);
    const before = this.#byName.get(name);
    if (entry === undefined) {
      this.#byName.delete(name);
      this.answers.clear();
      return before;
    }
    const facts = crdFactsOf(entry);
    if (before?.facts === facts) return undefined;
    const isKept = before !== undefined && before.facts.uid === facts.uid && isSame(before.facts.spec, facts.spec);
    this.#byName.set(name, isKept ? { ...before, facts } : { facts, since: now });
    this.answers.clear();
    return isKept ? undefined : before;
  }
}

const factsOfEntries = new WeakMap<EtcdEntry, CrdFacts>();

/** Read once for all API servers. */
export function crdFactsOf(entry: EtcdEntry): CrdFacts {
  let facts = factsOfEntries.get(entry);
  if (facts === undefined) {
    facts = readFacts(entry.object as unknown as CustomResourceDefinition);
    factsOfEntries.set(entry, facts);
  }
  return facts;
}

function readFacts({ metadata, spec, status }: CustomResourceDefinition): CrdFacts {
  const names = spec.names as unknown as CrdNames;
  const versions = spec.versions.map(({ name, schema, served, subresources }) => ({
    name,
    served,
    defaults: defaultsOf(schema),
    hasStatus: (subresources as { status?: unknown } | undefined)?.status !== undefined,
  }));
  const isTrue = (type: string): boolean =>
    (status?.conditions ?? []).some((condition) => condition.type === type && condition.status === "True");
  const facts = {
    name: metadata.name,
    uid: metadata.uid,
    group: spec.group,
    names,
    versions,
    spec,
    namespaced: spec.scope === "Namespaced",
    storageVersion: spec.versions.find(({ storage }) => storage)?.name ?? "",
    isEstablished: isTrue("Established") || isTrue("NamesAccepted"),
    isTerminating: isTrue("Terminating"),
  };
  return { ...facts, kinds: new Map(versions.map((version) => [version.name, kindOf(facts, version)])) };
}

/** Of the fields at the top of a schema: no CRD here has a default below that. */
function defaultsOf(schema: unknown): Fields | undefined {
  type Properties = Readonly<Record<string, { readonly default?: unknown }>>;
  const { openAPIV3Schema } = (schema ?? {}) as { readonly openAPIV3Schema?: { readonly properties?: Properties } };
  const fields = Object.entries(openAPIV3Schema?.properties ?? {}).filter(([, field]) => field.default !== undefined);
  return fields.length === 0 ? undefined : Object.fromEntries(fields.map(([name, field]) => [name, field.default]));
}

/** Whether clients can use the version that objects are stored in. */
function isStorageServed({ storageVersion, versions }: Pick<CrdFacts, "storageVersion" | "versions">): boolean {
  return versions.some(({ name, served }) => name === storageVersion && served);
}

function kindOf(
  facts: Omit<CrdFacts, "kinds">,
  { defaults, hasStatus, name }: CrdVersionFacts,
): Omit<ServedKind, "crd"> {
  const { group, names, namespaced, storageVersion } = facts;
  return {
    group,
    version: name,
    resource: names.plural,
    kind: names.kind,
    listKind: names.listKind,
    namespaced,
    hasStatus,
    defaults,
    singular: names.singular,
    shortNames: names.shortNames,
    apiVersion: apiVersion({ group, version: name }),
    hasGeneration: true,
    prefix: `/registry/${group}/${names.plural}/`,
    storedApiVersion: apiVersion({ group, version: storageVersion }),
    // Discovery goes through the served versions, and takes the hash of the one that is the storage version.
    storageVersionHash: isStorageServed(facts) ? storageVersionHashOf(group, storageVersion, names.kind) : "",
  };
}
