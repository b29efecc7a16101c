import { UNKNOWN_HASH } from "../api/migration.ts";
import type { ReadStorageState } from "../api/parse-storage-state.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { hashTextOf, readStorageStates } from "../resources/storage-states.ts";

/** A resource of which not everything is stored alike. Field names are those of `ksvm status -o json`. */
export interface StorageLine {
  readonly resource: string;
  /** The hashes of the versions that objects may be stored in by its StorageState; `unknown` stands for any. */
  readonly storedVersions: readonly string[];
  /** The hash of what API servers store now by its StorageState; `unknown` where they do not agree. */
  readonly storageVersion: string;
  /** When the trigger looked last, RFC 3339. */
  readonly lookedAt?: string;
}

/**
 * The resources whose StorageState lists several versions, or whose API servers disagree by it.
 * @throws {ApiError}
 */
export async function readStorageLines(client: ApiClient, options: CallOptions = {}): Promise<readonly StorageLine[]> {
  const states = await readStorageStates(client, options);
  const lines = [...(states ?? [])].flatMap(([resource, state]) => stateLine(resource, state));
  return lines.toSorted((a, b) => a.resource.localeCompare(b.resource));
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
