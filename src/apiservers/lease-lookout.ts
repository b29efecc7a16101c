import type { Clock } from "../clock.ts";
import type { ApiClient } from "../kube/client.ts";
import { identityLeases } from "./control-plane-objects.ts";
import type { SeenServers } from "./seen-servers.ts";

interface LookoutContext {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly seen: Pick<SeenServers, "looked">;
}

const LOOK_EVERY_MS = 15_000;
/** A request may itself end at an API server that hangs, in milliseconds: the next one takes another connection. */
const ANSWER_TIMEOUT_MS = 10_000;

/**
 * Looks at the identity Leases for as long as there is a run, whatever it waits for: a Lease, another migrator, a webhook. An API server that
 * stands still in this time, and goes on before API servers are looked for, shows in nothing then, and may have had a write of an old
 * version under way all the time.
 *
 * @returns what ends it
 */
export function lookOutForSilence(context: LookoutContext): () => Promise<void> {
  const ended = new AbortController();
  const looking = keepLooking(context, ended.signal);
  return async () => {
    ended.abort();
    await looking;
  };
}

async function keepLooking({ client, clock, seen }: LookoutContext, ended: AbortSignal): Promise<void> {
  while (!ended.aborted) {
    try {
      const within = AbortSignal.any([ended, clock.timeout(ANSWER_TIMEOUT_MS)]);
      seen.looked((await identityLeases(client, clock, within)) ?? []);
    } catch {
      // The run has the same failures, and says so.
    }
    await clock.sleep(LOOK_EVERY_MS, ended).catch(() => undefined);
  }
}
