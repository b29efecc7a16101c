import { isAbsent, objectIn, textIn, timeIn } from "./json-fields.ts";
import { MIGRATION_API_VERSION, type StorageState } from "./migration.ts";
import { metaIn, type Parsed, unreadable } from "./parse-meta.ts";

/** A StorageState as it is read: nothing depends on its spec, since its name says the same. */
export type ReadStorageState = Pick<StorageState, "apiVersion" | "kind" | "metadata" | "status">;

/** Far more than a hash has. As in our CRD. */
const MAX_HASH_LENGTH = 256;
/** Far more hashes than a resource had versions. As in our CRD. */
export const MAX_HASHES = 500;

/**
 * Reads a StorageState that came from an API server. Its list of hashes says which versions objects may be stored in,
 * so that one entry left out would lose data: a status that cannot be read as a whole, or whose list is missing, empty
 * or longer than our CRD takes, counts as never written.
 */
export function parseStorageState(value: unknown): Parsed<ReadStorageState> {
  const fields = objectIn(value) ?? {};
  const metadata = metaIn(fields["metadata"]);
  if (metadata === undefined) {
    return unreadable(value, "metadata has no valid name, uid and resourceVersion");
  }
  const status = statusIn(fields["status"]);
  const object = {
    apiVersion: MIGRATION_API_VERSION,
    kind: "StorageState",
    metadata,
    ...(status === undefined ? {} : { status }),
  };
  return { uid: metadata.uid, object, ignored: status !== undefined || isAbsent(fields["status"]) ? [] : ["status"] };
}

function statusIn(value: unknown): StorageState["status"] | undefined {
  const fields = objectIn(value) ?? {};
  const persisted = hashesIn(fields["persistedStorageVersionHashes"]);
  const current = fields["currentStorageVersionHash"];
  const heartbeat = fields["lastHeartbeatTime"];
  if (persisted === undefined || !isHash(current) || (!isAbsent(heartbeat) && textIn(heartbeat) === undefined)) {
    return undefined;
  }
  // A time that cannot be read is no heartbeat: the state is too old then.
  const lastHeartbeatTime = timeIn(heartbeat);
  return {
    persistedStorageVersionHashes: persisted,
    currentStorageVersionHash: current,
    ...(lastHeartbeatTime === undefined ? {} : { lastHeartbeatTime }),
  };
}

function hashesIn(value: unknown): readonly string[] | undefined {
  const isBounded = Array.isArray(value) && value.length > 0 && value.length <= MAX_HASHES;
  return isBounded && value.every(isHash) ? value : undefined;
}

function isHash(value: unknown): value is string {
  return typeof value === "string" && value !== "" && value.length <= MAX_HASH_LENGTH;
}
