import { isReadable, type StorageVersionMigration } from "../api/migration.ts";
import type { Clock } from "../clock.ts";
import type { ApiClient } from "../kube/client.ts";
import { collectionPath, MIGRATIONS } from "../kube/resources.ts";
import { watchObject } from "../kube/watch.ts";
import { LoopPace } from "../migrator/loop-pace.ts";

/** What became of the migrations of a cluster. */
export type MigrationChange =
  /** All there are. */
  | { readonly type: "listed"; readonly migrations: readonly StorageVersionMigration[] }
  | { readonly type: "changed"; readonly migration: StorageVersionMigration }
  | { readonly type: "deleted"; readonly uid: string };

/** What a feed needs. */
export interface MigrationFeedOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Told why it cannot list or watch; it tries again. */
  readonly onError: (error: unknown) => void;
  /** Told of one that does not say what it migrates, which is left out. @default nobody is told */
  readonly onUnreadable?: (name: string) => void;
}

interface MigrationList {
  readonly items: readonly StorageVersionMigration[];
  readonly metadata: { readonly resourceVersion: string; readonly continue?: string };
}

/** They may have a hundred failures each. */
const PAGE_SIZE = 100;
/** Between two lists of all migrations, in milliseconds, whether one failed or the watch after it missed changes. */
const MIN_INTERVAL_MS = 2_000;

/** Lists all migrations and then tells of every change, until the signal is aborted. An outage is waited for. */
export async function* migrationChanges(options: MigrationFeedOptions): AsyncGenerator<MigrationChange, void> {
  const { clock, onError, signal } = options;
  const pace = new LoopPace({ clock, minMs: MIN_INTERVAL_MS });
  while (!signal.aborted) {
    try {
      await pace.turn(signal);
      yield* listAndWatch(options);
    } catch (error) {
      if (signal.aborted) {
        return;
      }
      onError(error);
    }
  }
}

async function* listAndWatch(feed: MigrationFeedOptions): AsyncGenerator<MigrationChange, void> {
  const { client, clock, onUnreadable, signal } = feed;
  const isToBeTold = (migration: StorageVersionMigration): boolean => {
    const isFit = isReadable(migration);
    if (!isFit) {
      onUnreadable?.(migration.metadata.name);
    }
    return isFit;
  };
  const { migrations: all, resourceVersion } = await listAll(client, signal);
  const migrations = all.filter(isToBeTold);
  yield { type: "listed", migrations };
  const options = { resourceVersion, signal, clock };
  for await (const event of watchObject<StorageVersionMigration>(client.transport, MIGRATIONS, options)) {
    if (event.type === "GAP") {
      return;
    }
    if (event.type === "DELETED") {
      yield { type: "deleted", uid: event.object.metadata.uid };
    } else if (event.type !== "BOOKMARK" && isToBeTold(event.object)) {
      yield { type: "changed", migration: event.object };
    }
  }
}

async function listAll(
  { transport }: ApiClient,
  signal: AbortSignal,
): Promise<{ readonly migrations: readonly StorageVersionMigration[]; readonly resourceVersion: string }> {
  const migrations: StorageVersionMigration[] = [];
  let page: MigrationList | undefined;
  do {
    const query = { limit: PAGE_SIZE, continue: page?.metadata.continue };
    const path = collectionPath(MIGRATIONS);
    ({ body: page } = await transport.request<MigrationList>({ method: "GET", path, query, signal }));
    migrations.push(...page.items);
  } while (page.metadata.continue !== undefined && page.metadata.continue !== "");
  return { migrations, resourceVersion: page.metadata.resourceVersion };
}
