import type { EncryptionEvidence } from "../../old/apiservers/encryption-evidence.ts";
import type { RunContext } from "../../old/migrator/run-context.ts";
import { runUntilDone } from "../../old/migrator/run-until-done.ts";
import { watchingArrivals } from "../../old/migrator/watch-arrivals.ts";

/** What a look at the end found: with what API servers encrypt, to be compared with what they showed at the end of each resource. */
export interface LastLook {
  readonly configHash: string;
  readonly fingerprint: string;
}

/** In place of the fingerprint of a look during which an API server came or went: no resource has that. */
const CAME_SINCE = "came since";

/**
 * Looks once more at how API servers encrypt, after the last resource. An API server that cannot be asked, and a watch that lags behind, are waited for as in
 * a run, for as long.
 * @param what what was re-encrypted, for messages
 * @throws as {@link runUntilDone} and {@link EncryptionEvidence.look}.
 */
export function lookAtLast(
  context: RunContext,
  encryption: Pick<EncryptionEvidence, "look">,
  what: string,
): Promise<LastLook> {
  return watchingArrivals(context, (watched) =>
    runUntilDone({
      context: watched,
      name: what,
      attempt: (attempt) => lookOnce(attempt, encryption, what),
      // It holds no freeze and has no limit by which an attempt would end for others.
      probe: async () => undefined,
    }),
  );
}

async function lookOnce(
  context: RunContext,
  encryption: Pick<EncryptionEvidence, "look">,
  what: string,
): Promise<LastLook> {
  const { arrivals } = context;
  // What came and went by now is counted by the look.
  await arrivals.catchUp(context);
  const found = await encryption.look(context, what);
  // One that joins during the look may be gone again before it is asked.
  await arrivals.catchUp(context);
  return arrivals.count === found.arrivals ? found : { ...found, fingerprint: CAME_SINCE };
}
