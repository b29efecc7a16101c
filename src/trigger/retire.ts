import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import { whose } from "../kube/errors.ts";
import { type ApiClient, isConflict } from "../old/kube/client.ts";
import { CRDS, STORAGE_STATES } from "../old/kube/resources.ts";
import { readStates } from "./state-facts.ts";

/** What {@link retireStorageStates} needs. */
export interface RetireOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

const FIRST_PAUSE_MS = 5_000;
const LONGEST_PAUSE_MS = 60_000;

/**
 * Deletes the StorageStates that a trigger of ours kept, once it is switched off: no look keeps them true any more, and
 * an administrator would rely on their last value. It is tried until it succeeds or the signal is aborted.
 */
export async function retireStorageStates({ client, clock, logger, signal }: RetireOptions): Promise<void> {
  for (let pauseMs = FIRST_PAUSE_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    try {
      const deleted = await deleteAll(client, signal);
      if (deleted > 0) {
        logger.info({ deleted }, "Deleted the StorageStates: the trigger is off, and nothing keeps them true");
      }
      return;
    } catch (error) {
      if (signal.aborted) return;
      const reason = messageOf(error);
      logger.warn({ reason }, "Cannot delete the StorageStates of a trigger that is off; trying again");
    }
    await clock.sleep(pauseMs, signal).catch(() => undefined);
  }
}

async function deleteAll(client: ApiClient, signal: AbortSignal): Promise<number> {
  try {
    const ours = [...(await readStates(client, signal))].filter(([, { isOurs }]) => isOurs);
    for (const [name, { uid }] of ours) await retireStorageState(client, { name, uid }, signal);
    return ours.length;
  } catch (error) {
    // An API server that has just started does not serve the group yet. Only the CRD says that there is none.
    const name = `${STORAGE_STATES.resource}.${STORAGE_STATES.group}`;
    const isMissing = whose(error) === "gone" && (await client.findMetadata(CRDS, { name }, { signal })) === undefined;
    if (isMissing) return 0;
    throw error;
  }
}

/** Deletes one StorageState. One that was deleted and created again is another one, and stays. */
export async function retireStorageState(
  client: ApiClient,
  { name, uid }: { readonly name: string; readonly uid: string },
  signal: AbortSignal,
): Promise<void> {
  await client.delete(STORAGE_STATES, { name }, { preconditions: { uid }, signal }).catch((error: unknown) => {
    if (!isConflict(error)) throw error;
  });
}
