import { CRD_ANNOTATION, MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import type { ReadStorageState } from "../api/parse-storage-state.ts";
import { MAX_RECORD_LENGTH, parseCrdRecord } from "./crd-facts.ts";
import type { Projection } from "../old/json/json-projection.ts";
import { metadataProjection } from "../old/kube/metadata-projection.ts";
import type { StateFacts } from "./next-status.ts";

/**
 * What is read of each StorageState where all of them are listed: fifty may be larger than an answer may be, for their
 * managedFields and the annotations of others.
 */
export const STATE_FIELDS: Projection = {
  fields: {
    metadata: metadataProjection({
      labels: { fields: { [MANAGED_BY_LABEL]: "all" } },
      annotations: { fields: { [CRD_ANNOTATION]: { maxLength: MAX_RECORD_LENGTH } } },
    }),
    status: {
      fields: { persistedStorageVersionHashes: "all", currentStorageVersionHash: "all", lastHeartbeatTime: "all" },
    },
  },
};

/** Reads what matters of a StorageState. */
export function stateFactsOf({ metadata, status }: ReadStorageState): StateFacts {
  return {
    uid: metadata.uid,
    resourceVersion: metadata.resourceVersion,
    persisted: status?.persistedStorageVersionHashes ?? [],
    current: status?.currentStorageVersionHash ?? "",
    heartbeat: Date.parse(status?.lastHeartbeatTime ?? ""),
    isOurs: metadata.labels?.[MANAGED_BY_LABEL] === MANAGED_BY,
    crd: parseCrdRecord(metadata.annotations?.[CRD_ANNOTATION]),
  };
}
