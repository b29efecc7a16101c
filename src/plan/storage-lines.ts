import { UNKNOWN_HASH } from "../api/migration.ts";
import type { ReadStorageState } from "../api/parse-storage-state.ts";
import {
  resourceNameOfStorageVersion,
  STORAGE_VERSION_FIELDS,
  type StorageVersion,
  storageVersionFactsOf,
} from "../old/apiservers/storage-version-facts.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { preferredVersions } from "../old/kube/discovery.ts";
import { listProjected } from "../old/kube/list-projected.ts";
import { STORAGE_VERSIONS } from "../old/kube/resources.ts";
import { unlessForbidden } from "../old/kube/unless-forbidden.ts";
import { hashTextOf, readStorageStates } from "../resources/storage-states.ts";

/** A resource of which not everything is stored alike. Field names are those of `ksvm status -o json`. */
export interface StorageLine {
  readonly resource: string;
  /** The hashes of the versions that objects may be stored in by its StorageState; `unknown` stands for any. */
  readonly storedVersions?: readonly string[];
  /** The hash of what API servers store now by its StorageState; `unknown` where they do not agree. */
  readonly storageVersion?: string;
  /** When the trigger looked last, RFC 3339. */
  readonly lookedAt?: string;
  /** What each API server stores by its StorageVersion; missing where they agree. */
  readonly servers?: readonly { readonly server: string; readonly version: string }[];
}

const PAGE_SIZE = 500;

/**
 * The resources whose StorageState lists several versions, or whose API servers disagree by a StorageState or a StorageVersion.
 * @param onUnknown told what this user may not see
 * @throws {ApiError | TransportError}
 */
export async function readStorageLines(
  client: ApiClient,
  onUnknown: (what: string) => void,
  options: CallOptions = {},
): Promise<readonly StorageLine[]> {
  const [states, versions] = await Promise.all([
    readStorageStates(client, options),
    readStorageVersions(client, onUnknown, options),
  ]);
  const byState = [...(states ?? [])].flatMap(([resource, state]) => stateLine(resource, state));
  return joined([...byState, ...versions.flatMap(serversLine)]);
}

async function readStorageVersions(
  client: ApiClient,
  onUnknown: (what: string) => void,
  options: CallOptions,
): Promise<readonly StorageVersion[]> {
  const { group, version } = STORAGE_VERSIONS;
  const groups = await preferredVersions(client.transport, options);
  if (!groups.some((served) => served.group === group && served.versions.includes(version))) {
    return [];
  }
  const list = { limit: PAGE_SIZE, projection: STORAGE_VERSION_FIELDS, ...options };
  const found = await unlessForbidden(() => listProjected(client.transport, STORAGE_VERSIONS, list));
  if (found === undefined) {
    onUnknown("whether API servers disagree: this user may not list StorageVersions");
  }
  return (found?.items ?? []) as readonly StorageVersion[];
}

/** The line of a StorageState that lists several versions, or none that is agreed on. */
export function stateLine(resource: string, { status }: Pick<ReadStorageState, "status">): readonly StorageLine[] {
  const {
    currentStorageVersionHash: current,
    lastHeartbeatTime,
    persistedStorageVersionHashes: persisted,
  } = status ?? {};
  if (current === undefined || persisted === undefined) {
    return [];
  }
  if (persisted.length === 1 && persisted[0] === current && current !== UNKNOWN_HASH) {
    return [];
  }
  return [
    {
      resource,
      storedVersions: persisted.map(hashTextOf),
      storageVersion: hashTextOf(current),
      ...(lastHeartbeatTime === undefined ? {} : { lookedAt: lastHeartbeatTime }),
    },
  ];
}

/** The line of a StorageVersion whose API servers store in several versions. */
export function serversLine(storageVersion: StorageVersion): readonly StorageLine[] {
  const { entries } = storageVersionFactsOf(storageVersion);
  if (new Set(entries.map(({ encodingVersion }) => encodingVersion)).size <= 1) {
    return [];
  }
  const servers = entries.map(({ encodingVersion, server }) => ({ server, version: encodingVersion }));
  return [{ resource: resourceNameOfStorageVersion(storageVersion.metadata.name), servers }];
}

function joined(lines: readonly StorageLine[]): readonly StorageLine[] {
  const byResource = new Map<string, StorageLine>();
  for (const line of lines) {
    byResource.set(line.resource, { ...byResource.get(line.resource), ...line });
  }
  return [...byResource.values()].toSorted((a, b) => a.resource.localeCompare(b.resource));
}
