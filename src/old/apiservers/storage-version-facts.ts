import { storageVersionHashOf } from "../../api/crd.ts";
import type { ObjectMeta } from "../../api/meta.ts";
import { resourceNameOf } from "../../api/migration.ts";
import type { Projection } from "../json/json-projection.ts";
import { metadataProjection } from "../kube/metadata-projection.ts";

/**
 * A StorageVersion as Kubernetes built it: the agreedEncodingVersion of the proposal "StorageVersion API for HA API servers"
 * is commonEncodingVersion.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/api/apiserverinternal/v1alpha1/types.go
 */
export interface StorageVersion {
  readonly metadata: ObjectMeta;
  readonly status?: {
    readonly commonEncodingVersion?: string;
    readonly storageVersions?: readonly { readonly apiServerID: string; readonly encodingVersion: string }[];
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
  };
}

/** What {@link storageVersionFactsOf} reads, and the name. */
export const STORAGE_VERSION_FIELDS: Projection = {
  fields: {
    metadata: metadataProjection(),
    status: {
      fields: {
        commonEncodingVersion: "all",
        storageVersions: { items: { fields: { apiServerID: "all", encodingVersion: "all" } } },
        conditions: { items: { fields: { type: "all", status: "all" } } },
      },
    },
  },
};

/** What matters of a StorageVersion. */
export interface StorageVersionFacts {
  /** `uid/resourceVersion`: it changes with everything that an API server reports. */
  readonly key: string;
  /** The version that all API servers encode with; missing where they do not say so, or not all alike. */
  readonly common?: string;
  readonly entries: readonly { readonly server: string; readonly encodingVersion: string }[];
}

/** Reads what matters of a StorageVersion. */
export function storageVersionFactsOf({ metadata, status }: StorageVersion): StorageVersionFacts {
  const { commonEncodingVersion = "" } = status ?? {};
  // A list may be null.
  const [storageVersions, conditions] = [status?.storageVersions ?? [], status?.conditions ?? []];
  const isEqual = conditions.some((condition) => condition.type === ALL_EQUAL && condition.status === "True");
  return {
    key: `${metadata.uid}/${metadata.resourceVersion}`,
    entries: storageVersions.map(({ apiServerID, encodingVersion }) => ({ server: apiServerID, encodingVersion })),
    ...(isEqual && commonEncodingVersion !== "" ? { common: commonEncodingVersion } : {}),
  };
}

/**
 * The same without the entries of API servers that are gone, as the user says: one of them keeps its entry while its
 * identity Lease lives, and may keep the others from a commonEncodingVersion.
 */
export function withoutEntriesOf(facts: StorageVersionFacts, servers: readonly string[]): StorageVersionFacts {
  const entries = facts.entries.filter(({ server }) => !servers.includes(server));
  if (entries.length === facts.entries.length) {
    return facts;
  }
  const [common, ...others] = new Set(entries.map(({ encodingVersion }) => encodingVersion));
  return { key: facts.key, entries, ...(common === undefined || others.length > 0 ? {} : { common }) };
}

const ALL_EQUAL = "AllEncodingVersionsEqual";

/** The name of the resource that a StorageVersion is about: it is called `<group>.<resource>`, or `core.<resource>`. */
export function resourceNameOfStorageVersion(name: string): string {
  const dot = name.lastIndexOf(".");
  const group = name.slice(0, Math.max(0, dot));
  return resourceNameOf({ group: group === "core" ? "" : group, resource: name.slice(dot + 1) });
}

/** The hash that discovery shows for objects of a kind that are encoded in this version, such as `apps/v1`. */
export function hashOfEncoding(encodingVersion: string, kind: string): string {
  const slash = encodingVersion.indexOf("/");
  return storageVersionHashOf(encodingVersion.slice(0, Math.max(0, slash)), encodingVersion.slice(slash + 1), kind);
}

/**
 * Why a StorageVersion does not show that all API servers encode alike; `undefined` where it does.
 * @param identities names of the live identity Leases; `undefined` where they cannot be read
 */
export function disagreementOfStorageVersion(
  { common, entries }: StorageVersionFacts,
  identities: readonly string[] | undefined,
): string | undefined {
  if (identities !== undefined) {
    const reporting = new Set(entries.map(({ server }) => server));
    const dead = [...reporting].filter((server) => !identities.includes(server));
    if (dead.length > 0) {
      return `its StorageVersion has an entry of ${dead.join(", ")}, which has no live identity Lease`;
    }
    const silent = identities.filter((server) => !reporting.has(server));
    if (silent.length > 0) {
      return `its StorageVersion has no entry of ${silent.join(", ")}`;
    }
  }
  return common === undefined ? "its StorageVersion has no commonEncodingVersion" : undefined;
}

/** Why a StorageVersion does not say what discovery shows; `undefined` where it does. */
export function disagreementWith(
  facts: StorageVersionFacts,
  shown: { readonly hash: string; readonly kind: string; readonly identities: readonly string[] | undefined },
): string | undefined {
  const reason = disagreementOfStorageVersion(facts, shown.identities);
  if (reason !== undefined || facts.common === undefined || shown.hash === "") {
    return reason;
  }
  return hashOfEncoding(facts.common, shown.kind) === shown.hash
    ? undefined
    : `its StorageVersion says "${facts.common}", and discovery shows storageVersionHash "${shown.hash}"`;
}
