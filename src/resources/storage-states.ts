import { STORAGE_STATES, UNKNOWN_HASH } from "../api/migration.ts";
import { parseStorageState, type ReadStorageState } from "../api/parse-storage-state.ts";
import { storageVersionHash } from "../apiservers/converge.ts";
import type { Client } from "../kube/client.ts";
import { isForbidden, whose } from "../kube/errors.ts";

/**
 * The StorageStates of the cluster by the name of their resource; `undefined` where they are not served, or this user
 * may not list them.
 * @throws {ApiError}
 */
export async function readStorageStates(
  client: Client,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, ReadStorageState> | undefined> {
  try {
    const { items } = await client.list<unknown>(STORAGE_STATES, { signal });
    const states = items.flatMap((item) => parseStorageState(item).object ?? []);
    return new Map(states.map((state) => [state.metadata.name, state]));
  } catch (error) {
    if (isForbidden(error) || whose(error) === "gone") return undefined;
    throw error;
  }
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
    [group, ""].some((of) => storageVersionHash(of, version, kind) === hash);
  return VERSION_NAMES.find(isVersion) ?? hashTextOf(hash);
}

/** A storageVersionHash of a StorageState, in words. */
function hashTextOf(hash: string): string {
  return hash === UNKNOWN_HASH ? "unknown" : `hash ${hash}`;
}
