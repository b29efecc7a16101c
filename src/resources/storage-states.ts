import { storageVersionHashOf } from "../api/crd.ts";
import { UNKNOWN_HASH } from "../api/migration.ts";
import { parseStorageState, type ReadStorageState } from "../api/parse-storage-state.ts";
import { isUnserved } from "../old/kube/absent.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { ApiError } from "../old/kube/errors.ts";
import type { Projection } from "../old/json/json-projection.ts";
import { listProjected } from "../old/kube/list-projected.ts";
import { STORAGE_STATES } from "../old/kube/resources.ts";

const PAGE_SIZE = 500;
const READ_FIELDS: Projection = {
  fields: { metadata: { fields: { name: "all", uid: "all", resourceVersion: "all" } }, status: "all" },
};

/**
 * The StorageStates of the cluster by the name of their resource; `undefined` where they are not served, or this user
 * may not list them.
 * @throws {ApiError}
 */
export async function readStorageStates(
  client: ApiClient,
  options: CallOptions = {},
): Promise<ReadonlyMap<string, ReadStorageState> | undefined> {
  const found = new Map<string, ReadStorageState>();
  try {
    const list = { limit: PAGE_SIZE, projection: READ_FIELDS, ...options };
    for (const item of (await listProjected(client.transport, STORAGE_STATES, list)).items) {
      const { object } = parseStorageState(item);
      if (object !== undefined) {
        found.set(object.metadata.name, object);
      }
    }
  } catch (error) {
    const isDenied = error instanceof ApiError && error.status === 403;
    if (isDenied || (await isUnserved(client.transport, STORAGE_STATES, error, options))) {
      return undefined;
    }
    throw error;
  }
  return found;
}

/** What a StorageState says of how the objects of a built-in resource are stored. */
export interface StoredEncoding {
  readonly state: "current" | "stale" | "unknown";
  /** Why it is not known. */
  readonly reason?: string;
  /**
   * The hashes of all versions that objects may be stored in, as far as they are known; missing without a StorageState.
   */
  readonly persisted?: readonly string[];
}

/** How a StorageState is judged. */
export interface JudgeOptions {
  /** The storageVersionHash that discovery shows now. */
  readonly hash: string | undefined;
  /** Milliseconds since the Unix epoch. */
  readonly now: number;
  /** Milliseconds after which a StorageState is too old to be trusted. */
  readonly heartbeatLimitMs: number;
}

/**
 * What a StorageState says. One whose trigger does not run any more says nothing: the storage version may have changed
 * there and back since.
 */
export function storedEncodingOf(state: ReadStorageState | undefined, options: JudgeOptions): StoredEncoding {
  const reason = doubtOf(state, options);
  const persisted = state?.status?.persistedStorageVersionHashes ?? [];
  if (reason !== undefined) {
    return { state: "unknown", reason, ...(persisted.length === 0 ? {} : { persisted }) };
  }
  return { persisted, state: persisted.length === 1 && persisted[0] === options.hash ? "current" : "stale" };
}

/** Why a StorageState may leave out versions that objects are stored in; `undefined` where it does not. */
function doubtOf(
  state: ReadStorageState | undefined,
  { hash, heartbeatLimitMs, now }: JudgeOptions,
): string | undefined {
  const current = state?.status?.currentStorageVersionHash;
  const heartbeat = state?.status?.lastHeartbeatTime ?? "";
  const isFresh = Math.abs(now - Date.parse(heartbeat)) <= heartbeatLimitMs;
  const reasons: readonly (readonly [boolean, string])[] = [
    [state === undefined, "it has no StorageState"],
    [current === undefined, "its StorageState was never filled, or cannot be read"],
    [!isFresh, `the heartbeat of its StorageState is too old: ${heartbeat}`],
    [
      current === UNKNOWN_HASH || current !== hash,
      "its StorageState and discovery do not show the same storageVersionHash",
    ],
  ];
  return reasons.find(([applies]) => applies)?.[1];
}

const VERSION_NAMES = ["v1", "v2", "v3"].flatMap((name) => [
  name,
  ...["beta", "alpha"].flatMap((level) => [1, 2, 3].map((number) => `${name}${level}${number}`)),
]);

/** What a storageVersionHash stands for: `v2` where it is a version of this kind in its group, else the hash. */
export function versionTextOf(
  hash: string,
  { group, kind }: { readonly group: string; readonly kind: string },
): string {
  // The API server makes the hash of group, version and kind; Events are stored in the core group whatever group serves
  // them.
  const isVersion = (version: string): boolean =>
    [group, ""].some((of) => storageVersionHashOf(of, version, kind) === hash);
  return VERSION_NAMES.find(isVersion) ?? hashTextOf(hash);
}

/** A storageVersionHash of a StorageState, in words. */
export function hashTextOf(hash: string): string {
  return hash === UNKNOWN_HASH ? "unknown" : `hash ${hash}`;
}
