import type { Clock } from "../../clock.ts";
import { SLOW_ANSWER_MS } from "./ask-all.ts";

interface Lookout {
  readonly clock: Clock;
  /** One look at the identity Leases. */
  readonly look: (signal: AbortSignal) => Promise<unknown>;
  /** Told where one may have stood still unseen: a look failed, or came late since this process itself stood still. */
  readonly onUnseen: () => void;
}

const LOOK_EVERY_MS = 15_000;
/** A request may itself end at an API server that hangs, in milliseconds: the next one takes another connection. */
const ANSWER_TIMEOUT_MS = 10_000;

/**
 * Looks at the identity Leases for as long as there is a run, whatever it waits for: a Lease, another migrator, a webhook. An API server that
 * stands still in this time, and goes on before API servers are looked for, shows in nothing then, and may have had a write of an old
 * version under way all the time. One that leaves before that was never seen. Where this process stands still as well, as with a machine whose
 * monotonic clock goes on in a suspension, no look shows what stood still with it: the next one comes late then, and that is told.
 *
 * @returns what ends it
 */
export function keepLooking(lookout: Lookout): () => Promise<void> {
  const ended = new AbortController();
  const looking = lookUntil(ended.signal, lookout);
  return async () => {
    ended.abort();
    await looking;
  };
}

async function lookUntil(ended: AbortSignal, { clock, look, onUnseen }: Lookout): Promise<void> {
  while (!ended.aborted) {
    try {
      await look(AbortSignal.any([ended, clock.timeout(ANSWER_TIMEOUT_MS)]));
    } catch {
      // The run has the same failures, and says so.
      if (!ended.aborted) {
        onUnseen();
      }
    }
    const sleptAt = clock.monotonic();
    await clock.sleep(LOOK_EVERY_MS, ended).catch(() => undefined);
    if (clock.monotonic() - sleptAt > LOOK_EVERY_MS + SLOW_ANSWER_MS) {
      onUnseen();
    }
  }
}
