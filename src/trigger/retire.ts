import type { Logger } from "pino";
import { MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import { parseStorageState } from "../api/parse-storage-state.ts";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import { isNotFound } from "../old/kube/absent.ts";
import { type ApiClient, isConflict } from "../old/kube/client.ts";
import type { Projection } from "../old/json/json-projection.ts";
import { listProjected } from "../old/kube/list-projected.ts";
import { CRDS, STORAGE_STATES } from "../old/kube/resources.ts";
import { metadataProjection } from "../old/kube/metadata-projection.ts";
import { LoopPace } from "../old/retry/loop-pace.ts";

/** What {@link retireStorageStates} needs. */
export interface RetireOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

const CRD_NAME = `${STORAGE_STATES.resource}.${STORAGE_STATES.group}`;
const PAGE_SIZE = 500;
const OWNED_FIELDS: Projection = {
  fields: {
    metadata: metadataProjection({ labels: { fields: { [MANAGED_BY_LABEL]: "all" } } }),
  },
};
const FIRST_RETRY_MS = 5_000;
const LAST_RETRY_MS = 60_000;

/**
 * Deletes the StorageStates that a trigger of ours kept, once it is switched off: no look keeps them true any more, and an
 * administrator would rely on their last value. It is tried until it succeeds or the signal is aborted.
 */
export async function retireStorageStates({ client, clock, logger, signal }: RetireOptions): Promise<void> {
  const pace = new LoopPace({ clock, minMs: FIRST_RETRY_MS, maxMs: LAST_RETRY_MS });
  while (!signal.aborted) {
    try {
      await pace.turn(signal);
      const deleted = await deleteAll(client, signal);
      if (deleted > 0) {
        logger.info({ deleted }, "Deleted the StorageStates: the trigger is off, and nothing keeps them true");
      }
      return;
    } catch (error) {
      if (!signal.aborted) {
        logger.warn(
          { reason: messageOf(error) },
          "Cannot delete the StorageStates of a trigger that is off; trying again",
        );
      }
    }
  }
}

async function deleteAll(client: ApiClient, signal: AbortSignal): Promise<number> {
  let deleted = 0;
  try {
    const list = { limit: PAGE_SIZE, projection: OWNED_FIELDS, signal };
    const { items } = await listProjected(client.transport, STORAGE_STATES, list);
    const states = items.flatMap((value) => parseStorageState(value).object ?? []);
    for (const { metadata } of states.filter((state) => state.metadata.labels?.[MANAGED_BY_LABEL] === MANAGED_BY)) {
      await retireStorageState(client, metadata, signal);
      deleted++;
    }
  } catch (error) {
    // An API server that just started, or was just told of the CRD, does not list its group yet: only the CRD itself says that
    // there is none, and so no object of it.
    if (!isNotFound(error) || (await client.findMetadata(CRDS, { name: CRD_NAME }, { signal })) !== undefined) {
      throw error;
    }
  }
  return deleted;
}

/**
 * Deletes one StorageState.
 * @throws {ApiError | TransportError}
 */
export async function retireStorageState(
  client: ApiClient,
  { name, uid }: { readonly name: string; readonly uid: string },
  signal: AbortSignal,
): Promise<void> {
  try {
    await client.delete(STORAGE_STATES, { name }, { preconditions: { uid }, signal });
  } catch (error) {
    // It was deleted and created again: it is another one.
    if (!isConflict(error)) {
      throw error;
    }
  }
}
