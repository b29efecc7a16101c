import type { Logger } from "pino";
import { MIGRATION_GROUP, STORAGE_STATES } from "../api/migration.ts";
import { messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import { CRDS, type KubeObject, METADATA } from "../kube/objects.ts";
import { readStates } from "./state-facts.ts";

const FIRST_PAUSE_MS = 5_000;
const LONGEST_PAUSE_MS = 60_000;

/**
 * Deletes the StorageStates that a trigger of ours kept, once it is switched off: no look keeps them true any more, and
 * an administrator would rely on their last value. It is tried until it succeeds or the signal is aborted.
 */
export async function retireStorageStates(client: Client, logger: Logger, signal: AbortSignal): Promise<void> {
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
    await client.clock.sleep(pauseMs, signal).catch(() => undefined);
  }
}

async function deleteAll(client: Client, signal: AbortSignal): Promise<number> {
  try {
    const ours = [...(await readStates(client, signal))].filter(([, { isOurs }]) => isOurs);
    for (const [name, { uid }] of ours) await retireStorageState(client, { name, uid }, signal);
    return ours.length;
  } catch (error) {
    // An API server that has just started does not serve the group yet. Only the CRD says that there is none.
    if (whose(error) !== "gone") throw error;
    const path = `${CRDS}/storagestates.${MIGRATION_GROUP}`;
    if ((await client.find<KubeObject>(path, { accept: METADATA, signal })) === undefined) return 0;
    throw error;
  }
}

/** Deletes one StorageState. One that was deleted and created again is another one, and stays. */
export async function retireStorageState(
  client: Client,
  { name, uid }: { readonly name: string; readonly uid: string },
  signal: AbortSignal,
): Promise<void> {
  const path = `${STORAGE_STATES}/${encodeURIComponent(name)}`;
  await client.delete(path, { preconditions: { uid }, signal }).catch((error: unknown) => {
    if (whose(error) !== "conflict") throw error;
  });
}
