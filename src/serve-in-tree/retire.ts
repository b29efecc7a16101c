import { CREATED_BY_IN_TREE, CREATED_BY_LABEL } from "../api/names.ts";
import { parseMigration } from "../api/parse-migration.ts";
import { messageOf } from "../errors.ts";
import { listProjected } from "../kube/list-projected.ts";
import { MIGRATIONS } from "../kube/resources.ts";
import { MIGRATION_FIELDS } from "../migrations/migration-fields.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import { Companions } from "./companions.ts";
import { patientRetrier, ServedMigrations, type ServedMigrationsOptions } from "./served-migrations.ts";
import { markedCrds } from "./storage-migrating.ts";

/** Between two tries, in milliseconds: at first, and at most. */
const MIN_INTERVAL_MS = 5_000;
const MAX_INTERVAL_MS = 60_000;
const PAGE_SIZE = 100;

/** What {@link retireInTree} needs. */
export interface RetireOptions extends Pick<ServedMigrationsOptions, "client" | "clock" | "logger" | "signal"> {
  /** Looks at every CRD, also where no migration of ours is left. @default false */
  readonly isThorough?: boolean;
}

/**
 * Takes back what serving left, once nothing serves: migrations of ours that are not over, and conditions StorageMigrating of ours that
 * are True. It is tried until it succeeds or the signal is aborted.
 */
export async function retireInTree(options: RetireOptions): Promise<void> {
  const { clock, logger, signal } = options;
  const pace = new LoopPace({ clock, minMs: MIN_INTERVAL_MS, maxMs: MAX_INTERVAL_MS });
  while (!signal.aborted) {
    try {
      await pace.turn(signal);
      await retireOnce(options);
      return;
    } catch (error) {
      if (!signal.aborted) {
        logger.warn(
          { reason: messageOf(error) },
          "Cannot take back what serving in-tree migrations left; trying again",
        );
      }
    }
  }
}

async function retireOnce({ client, clock, isThorough = false, logger, signal }: RetireOptions): Promise<void> {
  const labelSelector = `${CREATED_BY_LABEL}=${CREATED_BY_IN_TREE}`;
  const { items: some } = await client.listMetadata(MIGRATIONS, { labelSelector, limit: 1, signal });
  if (some.length === 0 && !isThorough) {
    return;
  }
  const companions = new Companions();
  const list = { limit: PAGE_SIZE, projection: MIGRATION_FIELDS, signal };
  const { items } = await listProjected(client.transport, MIGRATIONS, list);
  companions.apply({ type: "listed", migrations: items.flatMap((item) => parseMigration(item).object ?? []) });
  const context = { client, clock, logger, retrier: patientRetrier(clock), resource: MIGRATIONS, signal };
  const served = new ServedMigrations(context, await markedCrds(context));
  const unfinished = [...companions.byName].filter(([, { state }]) => state !== "Succeeded" && state !== "Failed");
  if (await served.advance([], new Map(unfinished))) {
    throw new Error("Cannot delete a migration, or write the condition of a CRD, as the log says");
  }
}
