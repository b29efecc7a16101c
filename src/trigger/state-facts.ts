import { STORAGE_STATES } from "../api/migration.ts";
import { CRD_ANNOTATION, MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import { parseStorageState, type ReadStorageState } from "../api/parse-storage-state.ts";
import type { Client } from "../kube/client.ts";
import { type CrdRecord, parseCrdRecord } from "./crd-facts.ts";

/** What is stored of a resource's StorageState. */
export interface StateFacts {
  readonly uid: string;
  readonly resourceVersion: string;
  readonly persisted: readonly string[];
  /** Empty where the status was never written. */
  readonly current: string;
  /** Milliseconds since the Unix epoch; NaN where there was none. */
  readonly heartbeat: number;
  readonly crd: CrdRecord | undefined;
  /** Whether a trigger of this program made it. */
  readonly isOurs: boolean;
}

/** Reads what matters of a StorageState. A status that cannot be read counts as never written, and is written again. */
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

/** All StorageStates by name. */
export async function readStates(client: Client, signal: AbortSignal): Promise<ReadonlyMap<string, StateFacts>> {
  const { items } = await client.list<unknown>(STORAGE_STATES, { signal });
  const states = items.flatMap((item) => parseStorageState(item).object ?? []);
  return new Map(states.map((state) => [state.metadata.name, stateFactsOf(state)]));
}

/** One StorageState; `undefined` where there is none. */
export async function readState(client: Client, name: string, signal: AbortSignal): Promise<StateFacts | undefined> {
  const found = await client.find<unknown>(`${STORAGE_STATES}/${encodeURIComponent(name)}`, { signal });
  const { object } = parseStorageState(found);
  return object && stateFactsOf(object);
}
