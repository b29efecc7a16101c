import type { Logger } from "pino";
import type { StorageVersionMigration } from "../api/migration.ts";
import {
  ATTEMPT_ANNOTATION,
  CREATED_BY_LABEL,
  HASH_ANNOTATION,
  PRIORITY_ANNOTATION,
  REENCRYPT_ANNOTATION,
} from "../api/names.ts";
import type { Parsed } from "../api/parse-meta.ts";
import { parseMigration } from "../api/parse-migration.ts";
import type { Clock } from "../clock.ts";
import { type Projection, prune } from "../old/json/json-projection.ts";
import type { ApiClient, KubeObject } from "../old/kube/client.ts";
import { FollowPace } from "../old/retry/follow-pace.ts";
import { listProjected } from "../old/kube/list-projected.ts";
import { MIGRATIONS } from "../old/kube/resources.ts";
import { type WatchEvent, watchObject } from "../old/kube/watch.ts";
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
  readonly client: ApiClient;
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

/** After so many milliseconds in which no watch told of anything and some failed, all are listed again: lists may be answered. */
const MAX_DEAF_MS = 50_000;
/** They may have a hundred failures each. */
const PAGE_SIZE = 100;

/**
 * The StorageVersionMigrations of a cluster for everything in this process that follows them: one list and one watch,
 * however many followers there are, and of each migration only the fields that any of them reads: {@link MIGRATION_FIELDS}. The feed itself keeps nothing.
 */
export class MigrationFeed {
  readonly #options: MigrationFeedOptions;
  readonly #pace: FollowPace;
  readonly #pulse: Pulse;
  readonly #followers = new Set<Follower>();
  readonly #told = new ToldOnce();
  #running: { readonly stop: AbortController; readonly ended: Promise<void> } | undefined;
  /** Ends the watch that is open, so that everything is listed again. */
  #round = new AbortController();
  #isListWanted = false;

  constructor(options: MigrationFeedOptions) {
    this.#options = options;
    this.#pulse = options.pulse ?? NO_PULSE;
    const costOfList = "no migration begins, and none is seen to end, until this user may list them";
    const cost = "changes are noticed up to a minute late, and each look lists all of them";
    this.#pace = new FollowPace({ ...options, what: "StorageVersionMigrations", cost, costOfList });
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
        // A follower that has just come waits for no interval: there are few, and each comes once.
        if (!this.#isListWanted) {
          await this.#pace.turn(signal);
        }
        await this.#listAndWatch(signal);
      } catch (error) {
        if (!signal.aborted) {
          this.#pace.failed(error);
        }
      }
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
    const list = { limit: PAGE_SIZE, projection: MIGRATION_FIELDS, signal };
    const { items, resourceVersion } = await listProjected(client.transport, MIGRATIONS, list);
    this.#pulse.beat();
    followers.forEach((follower) => (follower.isListed = true));
    this.#tell(followers, {
      type: "listed",
      migrations: this.#readAll(items),
    });
    const onOpen = (): void => this.#pace.opened();
    const { heard, onFailure } = this.#patience(ownRound);
    const watch = { resourceVersion, signal: round, clock, onOpen, onFailure };
    for await (const event of watchObject<KubeObject>(client.transport, MIGRATIONS, watch)) {
      this.#pulse.beat();
      heard(event);
      this.#tellOf(event);
    }
  }

  /** Ends the round once watches have failed for long and none of them told of anything. */
  #patience(round: AbortController) {
    const { clock } = this.#options;
    let deafSince: number | undefined;
    const heard = ({ type }: WatchEvent<KubeObject>): void => {
      deafSince = undefined;
      if (type !== "GAP") {
        this.#pace.heard();
      }
    };
    const onFailure = (error: unknown): void => {
      this.#pace.failed(error);
      deafSince ??= clock.monotonic();
      if (clock.monotonic() - deafSince >= MAX_DEAF_MS) {
        round.abort();
      }
    };
    return { heard, onFailure };
  }

  #tellOf(event: WatchEvent<KubeObject>): void {
    if (event.type === "GAP" || event.type === "BOOKMARK") {
      return;
    }
    // Those that came since the list are told with the one that they wait for.
    const followers = [...this.#followers].filter(({ isListed }) => isListed);
    const parsed = parseMigration(prune(event.object, MIGRATION_FIELDS));
    const migration = event.type === "DELETED" ? undefined : this.#take(parsed);
    if (event.type === "DELETED") {
      this.#told.forget(parsed.uid);
    }
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

  #readAll(items: readonly unknown[]): readonly StorageVersionMigration[] {
    const parsed = items.map(parseMigration);
    this.#told.keepOnly(new Set(parsed.map(({ uid }) => uid)));
    return parsed.flatMap((one) => this.#take(one) ?? []);
  }

  /** What is wrong with one is said once. One that a user deleted is gone for all who follow, whatever finalizer keeps it. */
  #take({ object, ignored, uid, unreadable }: Parsed<StorageVersionMigration>): StorageVersionMigration | undefined {
    const { logger } = this.#options;
    if (object === undefined) {
      const { name: migration, problem } = unreadable;
      if (this.#told.isNews(uid, problem)) {
        logger.warn({ migration, problem }, "Left a StorageVersionMigration out: it cannot be read");
      }
    } else if (ignored.length === 0) {
      this.#told.forget(uid);
    } else if (this.#told.isNews(uid, ignored.join(" "))) {
      const migration = object.metadata.name;
      logger.warn({ migration, paths: ignored }, "Parts of a status cannot be read and count as never written");
    }
    return object === undefined || isDeleted(object) ? undefined : object;
  }
}

const ANNOTATIONS = [ATTEMPT_ANNOTATION, HASH_ANNOTATION, PRIORITY_ANNOTATION, REENCRYPT_ANNOTATION] as const;

/**
 * Characters of an annotation, beyond which it counts as absent: then a migration proves nothing. Those that the trigger
 * writes are shorter, and everybody who may create migrations may write a quarter of a megabyte into each.
 */
const MAX_ANNOTATION_LENGTH = 1_024;

/** Of what is read for people alone. This program writes no longer one. */
const TEXT: Projection = { maxLength: 4_096 };

/**
 * What is read of a StorageVersionMigration by those that follow all of them: some hundred bytes of an object that may be a
 * megabyte with its managedFields, its failures and the annotations of others. The rest is there where one is read by its name.
 */
export const MIGRATION_FIELDS: Projection = fields({
  metadata: fields({
    name: "all",
    uid: "all",
    resourceVersion: "all",
    generation: "all",
    creationTimestamp: "all",
    deletionTimestamp: "all",
    labels: fields({ [CREATED_BY_LABEL]: "all" }),
    annotations: fields(Object.fromEntries(ANNOTATIONS.map((name) => [name, { maxLength: MAX_ANNOTATION_LENGTH }]))),
  }),
  spec: fields({
    resource: fields({ group: "all", version: "all", resource: "all" }),
    suspend: "all",
    ttlSecondsAfterFinished: "all",
  }),
  status: fields({
    observedGeneration: "all",
    conditions: {
      items: fields({ type: "all", status: "all", reason: TEXT, message: TEXT, lastUpdateTime: "all" }),
    },
    crd: { maxLength: MAX_ANNOTATION_LENGTH },
    progress: { maxLength: MAX_ANNOTATION_LENGTH },
    completionTime: "all",
  }),
});

function fields(of: Readonly<Record<string, Projection>>): Projection {
  return { fields: of };
}
