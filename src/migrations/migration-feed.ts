import type { Logger } from "pino";
import { MIGRATIONS, type StorageVersionMigration } from "../api/migration.ts";
import type { Parsed } from "../api/parse-meta.ts";
import { parseMigration } from "../api/parse-migration.ts";
import type { Clock } from "../clock.ts";
import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import type { KubeList, KubeObject } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { watch, type WatchEvent } from "../kube/watch.ts";
import { FailureLog } from "../observability/failure-log.ts";
import { NO_PULSE, type Pulse } from "../pulse.ts";
import { ToldOnce } from "../told-once.ts";
import { isDeleted } from "./read-migration.ts";

/** What became of the migrations of a cluster. */
export type MigrationChange =
  /** All of them are about to be listed: what is written from here on may be newer than the list. */
  | { readonly type: "listing" }
  /** All there are. It replaces everything: after a restore of etcd their resourceVersions are lower than those known. */
  | { readonly type: "listed"; readonly migrations: readonly StorageVersionMigration[] }
  | { readonly type: "changed"; readonly migration: StorageVersionMigration }
  | { readonly type: "deleted"; readonly uid: string };

/** What a {@link MigrationFeed} needs. */
export interface MigrationFeedOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  /** By which the one loop of the feed shows that it is alive. @default none */
  readonly pulse?: Pulse;
}

interface Follower {
  readonly onChange: (change: MigrationChange) => void;
  /** Told of changes only once it knows what they change. */
  isListed: boolean;
}

/** They may have a hundred failures each. */
const PAGE_SIZE = 100;
/** All are listed again this often, in milliseconds, whatever the watch tells or does not tell. */
const RELIST_MS = 900_000;
/** Between two lists, in milliseconds: an outage ends any moment, a missing right or CRD does not. */
const FIRST_PAUSE_MS = 2_000;
const LONGEST_PAUSE_MS = 10_000;
const LONGEST_PAUSE_UNSERVED_MS = 60_000;

/**
 * The StorageVersionMigrations of a cluster for everything in this process that follows them: one list and one watch,
 * however many followers there are. The feed itself keeps nothing.
 */
export class MigrationFeed {
  readonly #options: MigrationFeedOptions;
  readonly #failures: FailureLog;
  readonly #pulse: Pulse;
  readonly #followers = new Set<Follower>();
  readonly #told = new ToldOnce();
  #running: { readonly stop: AbortController; readonly ended: Promise<void> } | undefined;
  /** Ends the watch that is open, so that everything is listed again. */
  #round = new AbortController();
  #isListWanted = false;
  #pauseMs = FIRST_PAUSE_MS;

  constructor(options: MigrationFeedOptions) {
    this.#options = options;
    this.#pulse = options.pulse ?? NO_PULSE;
    this.#failures = new FailureLog({
      ...options,
      failing: "Cannot list and watch StorageVersionMigrations, so none begins; trying again",
      working: "Listing and watching StorageVersionMigrations again",
    });
  }

  /**
   * Tells of all migrations and then of every change, until the signal is aborted. The first list is as new as this call:
   * who follows since this replica leads sees whatever the leader before it wrote. An outage is waited for.
   */
  async follow(onChange: (change: MigrationChange) => void, signal: AbortSignal): Promise<void> {
    if (signal.aborted) {
      return;
    }
    const aborted = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => aborted.resolve(), { once: true });
    const follower = { onChange, isListed: false };
    this.#followers.add(follower);
    this.#isListWanted = true;
    this.#round.abort();
    this.#running ??= this.#start();
    await aborted.promise;
    this.#followers.delete(follower);
    if (this.#followers.size === 0) {
      const running = this.#running;
      this.#running = undefined;
      running.stop.abort();
      await running.ended;
    }
  }

  #start() {
    const stop = new AbortController();
    return { stop, ended: this.#run(stop.signal) };
  }

  async #run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      this.#pulse.beat();
      try {
        await this.#listAndWatch(signal);
      } catch (error) {
        if (signal.aborted) break;
        this.#failures.failed(error);
        const isUnserved = whose(error) === "rights" || whose(error) === "gone";
        const longestMs = isUnserved ? LONGEST_PAUSE_UNSERVED_MS : LONGEST_PAUSE_MS;
        this.#pauseMs = Math.min(2 * this.#pauseMs, longestMs);
      }
      // A follower that has just come waits for no interval: there are few, and each comes once.
      const wait = AbortSignal.any([signal, this.#round.signal]);
      if (!this.#isListWanted) await this.#options.clock.sleep(this.#pauseMs, wait).catch(() => undefined);
    }
    this.#pulse.rest();
  }

  async #listAndWatch(signal: AbortSignal): Promise<void> {
    const { client, clock } = this.#options;
    // Those that begin to follow at the same moment have one list together.
    await Promise.resolve();
    this.#isListWanted = false;
    const ownRound = new AbortController();
    this.#round = ownRound;
    const round = AbortSignal.any([signal, ownRound.signal]);
    const followers = [...this.#followers];
    this.#tell(followers, { type: "listing" });
    const { migrations, resourceVersion } = await this.#list(signal);
    this.#pulse.beat();
    followers.forEach((follower) => (follower.isListed = true));
    this.#tell(followers, { type: "listed", migrations });
    const cancel = clock.timer(RELIST_MS, () => ownRound.abort());
    try {
      for await (const event of watch<KubeObject>(client, MIGRATIONS, { resourceVersion, signal: round })) {
        this.#pulse.beat();
        if (event.type === "GAP") return;
        this.#failures.worked();
        this.#pauseMs = FIRST_PAUSE_MS;
        if (event.type !== "BOOKMARK") this.#tellOf(event);
      }
    } finally {
      cancel();
    }
  }

  async #list(signal: AbortSignal) {
    const { client } = this.#options;
    const migrations: StorageVersionMigration[] = [];
    const uids = new Set<string>();
    let resourceVersion = "";
    let token: string | undefined;
    do {
      const query = { limit: PAGE_SIZE, continue: token };
      const listPage = (): Promise<KubeList<unknown>> => client.list(MIGRATIONS, { query, signal });
      const { items, metadata } = await retry(client, listPage, { signal });
      for (const parsed of items.map(parseMigration)) {
        uids.add(parsed.uid);
        migrations.push(...this.#take(parsed));
      }
      resourceVersion = metadata.resourceVersion;
      token = metadata.continue || undefined;
    } while (token !== undefined);
    this.#told.keepOnly(uids);
    return { migrations, resourceVersion };
  }

  #tellOf(event: Exclude<WatchEvent<KubeObject>, { type: "GAP" | "BOOKMARK" }>): void {
    // Those that came since the list are told with the one that they wait for.
    const followers = [...this.#followers].filter(({ isListed }) => isListed);
    const parsed = parseMigration(event.object);
    const [migration] = event.type === "DELETED" ? [] : this.#take(parsed);
    if (event.type === "DELETED") this.#told.forget(parsed.uid);
    // One that can be read no more is as good as deleted: nothing is known of what its user wants.
    this.#tell(
      followers,
      migration === undefined ? { type: "deleted", uid: parsed.uid } : { type: "changed", migration },
    );
  }

  /** One that a follower cannot take keeps no other from being told, nor any other follower. */
  #tell(followers: readonly Follower[], change: MigrationChange): void {
    for (const follower of followers) {
      try {
        if (this.#followers.has(follower)) {
          follower.onChange(change);
        }
      } catch (error) {
        this.#options.logger.error(
          { err: error, change: change.type },
          "Cannot take in a change of StorageVersionMigrations",
        );
      }
    }
  }

  /** What is wrong with one is said once. One that a user deleted is gone for all who follow, whatever finalizer keeps it. */
  #take({ object, ignored, uid, unreadable }: Parsed<StorageVersionMigration>): readonly StorageVersionMigration[] {
    const { logger } = this.#options;
    if (object === undefined) {
      const { name: migration, problem } = unreadable;
      if (this.#told.isNews(uid, problem)) {
        logger.warn({ migration, problem }, "Left a StorageVersionMigration out: it cannot be read");
      }
      return [];
    }
    if (ignored.length === 0) {
      this.#told.forget(uid);
    } else if (this.#told.isNews(uid, ignored.join(" "))) {
      const migration = object.metadata.name;
      logger.warn({ migration, paths: ignored }, "Parts of a status cannot be read and count as never written");
    }
    if (isDeleted(object)) return [];
    // There may be twenty thousand, and nobody who follows all of them reads their failures.
    const { failures: _, ...status } = object.status ?? {};
    return [object.status === undefined ? object : { ...object, status }];
  }
}
