import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import { freezerOf, unfreezeLeftBehind } from "../freeze/freeze.ts";
import type { Client } from "../kube/client.ts";
import { type Crd, CRDS, type KubeList, METADATA_LIST } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";

/** What {@link liftLeftFreezes} needs. */
export interface FreezeOptions {
  readonly client: Client;
  /** What it waits by. */
  readonly clock: Clock;
  readonly logger: Logger;
  /** Told of the CRDs that ksvm has frozen, each time that all CRDs were looked at. */
  readonly onFrozen: (crdNames: ReadonlySet<string>) => void;
}

const EVERY_MS = 60_000;
const PAGE_SIZE = 100;

/**
 * Lifts every freeze whose run is dead, again and again, until the signal is aborted. Freezes of other clients are left
 * alone, and so are those of runs that live. What does not work for one CRD keeps no other from being looked at.
 */
export async function liftLeftFreezes(options: FreezeOptions, signal: AbortSignal): Promise<void> {
  const { client, clock, logger, onFrozen } = options;
  /** By CRD: why its freeze stays, which is said once. */
  let told = new Map<string, string>();
  while (!signal.aborted) {
    try {
      const frozen = await findFrozen(client, signal);
      onFrozen(new Set(frozen.map(({ metadata }) => metadata.name)));
      const left = new Map<string, string>();
      const lift = async (crd: Crd): Promise<void> => {
        const { name } = crd.metadata;
        try {
          if (await unfreezeLeftBehind(client, crd, signal)) {
            logger.info({ crd: name, owner: freezerOf(crd.metadata) }, "Lifted the freeze that a dead run left behind");
          }
        } catch (error) {
          if (signal.aborted) return;
          const reason = messageOf(error);
          left.set(name, reason);
          const level = told.get(name) === reason ? "debug" : "warn";
          logger[level]({ crd: name, owner: freezerOf(crd.metadata), reason }, "Left a freeze in place");
        }
      };
      await Promise.all(frozen.map(lift));
      told = left;
    } catch (error) {
      if (!signal.aborted) {
        logger.warn({ reason: messageOf(error) }, "Cannot look for freezes of dead runs; trying again later");
      }
    }
    await clock.sleep(EVERY_MS, signal).catch(() => undefined);
  }
}

/** The CRDs that a run of this program froze. */
async function findFrozen(client: Client, signal: AbortSignal): Promise<readonly Crd[]> {
  const frozen: Crd[] = [];
  let token: string | undefined;
  do {
    const query = { limit: PAGE_SIZE, continue: token };
    const list = (): Promise<KubeList<Crd>> => client.list<Crd>(CRDS, { query, accept: METADATA_LIST, signal });
    const { items, metadata } = await retry(client, list, { signal });
    frozen.push(...items.filter(({ metadata: found }) => typeof freezerOf(found) === "object"));
    token = metadata.continue || undefined;
  } while (token !== undefined);
  return frozen;
}
