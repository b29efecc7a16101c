import type { Logger } from "pino";
import type { PartialObjectMetadata } from "../api/meta.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../api/names.ts";
import { type FreezeOwner, parseOwner } from "../api/owner.ts";
import type { Clock } from "../clock.ts";
import { KsvmError, messageOf } from "../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { CRDS } from "../kube/resources.ts";
import { unfreeze } from "../migrator/freeze.ts";
import { removePolicyGuard } from "../migrator/guard-install.ts";
import type { Retrier } from "../migrator/retrier.ts";
import { RunLease } from "../migrator/run-lease.ts";

/** What {@link sweepOrphans} needs. */
export interface OrphanSweepOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  readonly logger: Logger;
  readonly identity: string;
  readonly signal: AbortSignal;
  /** Whether a migration of this CRD will take its freeze over, or has it. */
  readonly isBusy: (crdName: string) => boolean;
  /** Whether the holder of a Lease is known to be dead. */
  readonly isDead: (holder: string) => boolean;
}

interface Orphan {
  readonly crdName: string;
  readonly owner: FreezeOwner;
}

const PAGE_SIZE = 500;

/**
 * Lifts every freeze of ours whose run is dead and that no migration will take over. A run is dead where its Lease can be
 * taken: nobody holds it, or its holder did not renew it while it was being watched. What does not work for one CRD keeps
 * no other from being looked at; foreign freezes are left alone.
 */
export async function sweepOrphans(options: OrphanSweepOptions): Promise<void> {
  const { isBusy, logger, signal } = options;
  for (const orphan of await findFrozen(options)) {
    const { crdName, owner } = orphan;
    if (!isBusy(crdName)) {
      try {
        await sweepOne(options, orphan);
        logger.info({ crd: crdName, owner }, "lifted the freeze that a dead run left behind");
      } catch (error) {
        signal.throwIfAborted();
        const isAlive = error instanceof KsvmError && error.code === "AlreadyMigrating";
        logger[isAlive ? "debug" : "warn"]({ crd: crdName, owner, reason: messageOf(error) }, "left a freeze in place");
      }
    }
  }
}

async function findFrozen({ client, retrier, signal }: OrphanSweepOptions): Promise<readonly Orphan[]> {
  const found: Orphan[] = [];
  let continueToken: string | undefined;
  do {
    const list = () => client.listMetadata(CRDS, { limit: PAGE_SIZE, continueToken, signal });
    const page = await retrier.run(list, signal);
    found.push(...page.items.flatMap(orphanOf));
    continueToken = page.metadata.continue === "" ? undefined : page.metadata.continue;
  } while (continueToken !== undefined);
  return found;
}

function orphanOf({ metadata: { annotations = {}, name } }: PartialObjectMetadata): readonly Orphan[] {
  const owner = parseOwner(annotations[OWNER_ANNOTATION]);
  return Object.hasOwn(annotations, MIGRATING_ANNOTATION) && owner !== undefined ? [{ crdName: name, owner }] : [];
}

async function sweepOne(options: OrphanSweepOptions, { crdName, owner }: Orphan): Promise<void> {
  const [namespace = "", name = ""] = owner.lease.split("/");
  const lease = await RunLease.acquire({ ...options, namespace, name });
  const keepCheckpoint = lease.checkpoint !== undefined;
  try {
    // A run that began meanwhile holds the Lease, so the freeze is still the dead one's, or gone.
    const fenced = { ...options, client: options.client.fencedBy(() => lease.confirm(options.signal)) };
    await unfreeze(fenced, crdName, owner);
    await removePolicyGuard(fenced, crdName, (found) => found.lease === owner.lease);
  } finally {
    await lease.release({ keepCheckpoint }, AbortSignal.timeout(RELEASE_TIMEOUT_MS));
  }
}

const RELEASE_TIMEOUT_MS = 10_000;
