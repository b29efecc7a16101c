import type { StorageVersionMigration } from "../api/migration.ts";
import { parseMigration } from "../api/parse-migration.ts";
import type { Parsed, Unreadable } from "../api/parse-meta.ts";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import type { ApiClient, KubeObject } from "../kube/client.ts";
import { collectionPath, MIGRATIONS } from "../kube/resources.ts";
import { watchObject } from "../kube/watch.ts";
import { LoopPace } from "../migrator/loop-pace.ts";
import { ToldOnce } from "../told-once.ts";

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
  /** Told once of each that cannot be read and is left out, and what is wrong with it. @default nobody is told */
  readonly onUnreadable?: (unreadable: Unreadable) => void;
  /** Told once of each whose status has parts that cannot be read and count as never written. @default nobody is told */
  readonly onIgnored?: (migration: StorageVersionMigration, paths: readonly string[]) => void;
}

interface MigrationList {
  readonly items?: readonly unknown[];
  readonly metadata?: { readonly resourceVersion?: string; readonly continue?: string };
}

/** They may have a hundred failures each. */
const PAGE_SIZE = 100;
/** Between two lists of all migrations, in milliseconds, whether one failed or the watch after it missed changes. */
const MIN_INTERVAL_MS = 2_000;

/** Lists all migrations and then tells of every change, until the signal is aborted. An outage is waited for. */
export async function* migrationChanges(options: MigrationFeedOptions): AsyncGenerator<MigrationChange, void> {
  const { clock, onError, signal } = options;
  const pace = new LoopPace({ clock, minMs: MIN_INTERVAL_MS });
  const reader = new Reader(options);
  while (!signal.aborted) {
    try {
      await pace.turn(signal);
      yield* listAndWatch(options, reader);
    } catch (error) {
      if (signal.aborted) {
        return;
      }
      onError(error);
    }
  }
}

async function* listAndWatch(feed: MigrationFeedOptions, reader: Reader): AsyncGenerator<MigrationChange, void> {
  const { client, clock, signal } = feed;
  const { items, resourceVersion } = await listAll(client, signal);
  yield { type: "listed", migrations: reader.readAll(items) };
  const options = { resourceVersion, signal, clock };
  for await (const event of watchObject<KubeObject>(client.transport, MIGRATIONS, options)) {
    if (event.type === "GAP") {
      return;
    }
    if (event.type !== "BOOKMARK") {
      yield event.type === "DELETED" ? reader.deleted(event.object) : reader.changed(event.object);
    }
  }
}

/** Tells migrations from what is none, and says once what is wrong with each. */
class Reader {
  readonly #options: MigrationFeedOptions;
  readonly #told = new ToldOnce();

  constructor(options: MigrationFeedOptions) {
    this.#options = options;
  }

  readAll(items: readonly unknown[]): readonly StorageVersionMigration[] {
    const parsed = items.map(parseMigration);
    this.#told.keepOnly(new Set(parsed.map(({ uid }) => uid)));
    return parsed.flatMap((one) => this.#take(one) ?? []);
  }

  /** One that can be read no more is as good as deleted: nothing is known of what its user wants. */
  changed(value: unknown): MigrationChange {
    const parsed = parseMigration(value);
    const migration = this.#take(parsed);
    return migration === undefined ? { type: "deleted", uid: parsed.uid } : { type: "changed", migration };
  }

  deleted(value: unknown): MigrationChange {
    const { uid } = parseMigration(value);
    this.#told.forget(uid);
    return { type: "deleted", uid };
  }

  #take({ object, ignored, uid, unreadable }: Parsed<StorageVersionMigration>): StorageVersionMigration | undefined {
    if (object === undefined) {
      this.#tell(uid, unreadable.problem, () => this.#options.onUnreadable?.(unreadable));
    } else if (ignored.length === 0) {
      this.#told.forget(uid);
    } else {
      this.#tell(uid, ignored.join(" "), () => this.#options.onIgnored?.(object, ignored));
    }
    return object;
  }

  #tell(uid: string, text: string, tell: () => void): void {
    if (this.#told.isNews(uid, text)) {
      tell();
    }
  }
}

/** @throws {KsvmError} ApiRequestFailed where an answer is no list: taken for an empty one, it would end every run. */
async function listAll(
  { transport }: ApiClient,
  signal: AbortSignal,
): Promise<{ readonly items: readonly unknown[]; readonly resourceVersion: string }> {
  const all: unknown[] = [];
  const path = collectionPath(MIGRATIONS);
  let token: string | undefined;
  for (;;) {
    const query = { limit: PAGE_SIZE, continue: token };
    const { body } = await transport.request<MigrationList | null>({ method: "GET", path, query, signal });
    const { items, metadata: { resourceVersion, continue: next = "" } = {} } = body ?? {};
    if (!Array.isArray(items) || resourceVersion === undefined) {
      throw new KsvmError("ApiRequestFailed", `Cannot list ${path}: the answer is no list`);
    }
    all.push(...(items as readonly unknown[]));
    if (next === "") {
      return { items: all, resourceVersion };
    }
    token = next;
  }
}
