import type { Test } from "tap";
import { systemClock } from "../../src/clock.ts";
import { type ApiClient, isConflict, type KubeObject } from "../../src/kube/client.ts";
import { APPLY_PATCH, MERGE_PATCH, type Resource } from "../../src/kube/resources.ts";
import { isAsWanted } from "../../src/kube/drift.ts";
import { KEEPER_FIELD_MANAGER, type WantedObject } from "../../src/webhook/object-writer.ts";

/** From one look to the next, in milliseconds: versions before the first generation did not slow down. */
const INTERVAL_MS = 100;

/**
 * A stand-in for a replica of a version before the first generation, whose code is no longer here: it restores what it wants over
 * anything else, as {@link KEEPER_FIELD_MANAGER}, up to ten times a second, and knows of no stamp.
 * @returns what ends it
 */
export function startEarlierKeeper(
  t: Test,
  api: ApiClient,
  [resource, wanted]: readonly [Resource, WantedObject],
): () => Promise<void> {
  const stop = new AbortController();
  const { name } = wanted.metadata;
  const look = async (): Promise<void> => {
    const live = await api.find<KubeObject>(resource, { name });
    if (live !== undefined && isAsWanted(live, wanted)) return;
    const options = { fieldManager: KEEPER_FIELD_MANAGER, force: true };
    const applied = await api.patch<KubeObject>(resource, { name }, { type: APPLY_PATCH, body: wanted }, options);
    if (!isAsWanted(applied, wanted)) {
      const { metadata: _, ...rest } = wanted;
      const body = { ...rest, metadata: { resourceVersion: applied.metadata.resourceVersion } };
      await api.patch(resource, { name }, { type: MERGE_PATCH, body }, { fieldManager: KEEPER_FIELD_MANAGER });
    }
  };
  const running = (async () => {
    while (!stop.signal.aborted) {
      await look().catch((error: unknown) => {
        if (!isConflict(error)) throw error;
      });
      await systemClock.sleep(INTERVAL_MS);
    }
  })();
  const end = async (): Promise<void> => {
    stop.abort();
    await running;
  };
  t.teardown(end);
  return end;
}
