import { CRD_ANNOTATION } from "../api/names.ts";
import type { ReadStorageState } from "../api/parse-storage-state.ts";
import { parseCrdRecord } from "./crd-facts.ts";
import type { StateFacts } from "./next-status.ts";

/** Reads what matters of a StorageState. */
export function stateFactsOf({ metadata, status }: ReadStorageState): StateFacts {
  return {
    uid: metadata.uid,
    resourceVersion: metadata.resourceVersion,
    persisted: status?.persistedStorageVersionHashes ?? [],
    current: status?.currentStorageVersionHash ?? "",
    heartbeat: Date.parse(status?.lastHeartbeatTime ?? ""),
    crd: parseCrdRecord(metadata.annotations?.[CRD_ANNOTATION]),
  };
}
