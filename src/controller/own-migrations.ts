import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { ownMigrationsByCrd } from "../migrations/crd-owner.ts";
import { Retrier } from "../retry/retrier.ts";
import { FailureLog } from "../observability/failure-log.ts";

/** What {@link ownMigrations} needs. */
export interface OwnMigrationsOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
  readonly signal: AbortSignal;
}

/**
 * Gives the migrations that a ClusterRole owns to the CRD, once: an earlier version created them so, and a user may replace
 * the role. An outage is waited for, and logged while it lasts.
 */
export async function ownMigrations({ client, clock, logger, random, signal }: OwnMigrationsOptions): Promise<void> {
  const failures = new FailureLog({
    clock,
    logger,
    failing: "Cannot see whether a ClusterRole owns migrations; trying again",
    working: "Reading the owners of migrations again",
  });
  const onRetry = (error: unknown): void => failures.failed(error);
  const retrier = new Retrier({ clock, random, maxIdleMs: Number.POSITIVE_INFINITY, onRetry });
  try {
    const { changed, refused } = await ownMigrationsByCrd({ client, clock, retrier, signal });
    failures.worked();
    if (changed > 0) {
      logger.info({ changed }, "Made the CRD the owner of migrations that a ClusterRole owned");
    }
    if (refused.length > 0) {
      logger.warn({ refused }, "Cannot make the CRD the owner of some migrations that a ClusterRole owns");
    }
  } catch (error) {
    if (!signal.aborted) {
      logger.warn({ reason: messageOf(error) }, "Cannot see whether a ClusterRole owns migrations");
    }
  }
}
