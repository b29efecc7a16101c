import { Writable } from "node:stream";
import type { Test } from "tap";
import { pino } from "pino";
import {
  type MigrationConditionType,
  type MigrationStatus,
  resourceNameOf,
  type StorageState,
  type StorageVersionMigration,
  type CrdMode,
} from "../../src/api/migration.ts";
import { type CustomResourceDefinition, specKeyOf } from "../../src/api/crd.ts";
import { type Clock, systemClock } from "../../src/clock.ts";
import { CRDS, MERGE_PATCH, MIGRATIONS, STORAGE_STATES } from "../../src/kube/resources.ts";
import { MigrationFeed } from "../../src/migrations/migration-feed.ts";
import { ApiServerFinder } from "../../src/apiservers/api-server-finder.ts";
import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import type { SharedClock } from "../../src/kube/server-clock.ts";
import { Trigger } from "../../src/trigger/trigger.ts";
import { type Cluster, eventually } from "./cluster.ts";

/** The clock of this machine, and some time later. */
export function clockAhead(ms: number): Clock {
  return { ...systemClock, now: () => systemClock.now() + ms };
}

/** Takes the clock for the API server's, as if that were some time later. */
export function sharedBy(clock: Clock): SharedClock {
  return { now: () => clock.now(), refresh: () => Promise.resolve() };
}

/** How a test's trigger differs from the real one. */
export interface HarnessOptions {
  readonly clock?: Clock;
  /** @default the API server's clock */
  readonly sharedClock?: SharedClock;
  /** @default true */
  readonly crdMode?: CrdMode;
  readonly intervalMs?: number;
  readonly excludedGroups?: readonly string[];
  readonly endpoints?: readonly string[];
  /** Whose rights it has. @default "admin" */
  readonly user?: string;
}

/** A trigger that runs in this process. */
export interface RunningTrigger {
  readonly trigger: Trigger;
  /** Every log line. */
  readonly lines: readonly Record<string, unknown>[];
  /** Waits until discovery was read as a whole, and everything in it was looked after. */
  settled(): Promise<void>;
  stop(): Promise<void>;
}

/** Starts a trigger; it ends with the test. */
export function startTrigger(t: Test, cluster: Cluster, options: HarnessOptions = {}): RunningTrigger {
  const {
    clock = systemClock,
    endpoints,
    excludedGroups = [],
    intervalMs,
    crdMode,
    sharedClock,
    user = "admin",
  } = options;
  const abort = new AbortController();
  const lines: Record<string, unknown>[] = [];
  const destination = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(JSON.parse(chunk.toString()) as Record<string, unknown>);
      done();
    },
  });
  const client = cluster.clientFor(user);
  const finder = new ApiServerFinder({
    client,
    clock: systemClock,
    seen: new SeenServers(systemClock),
    retrier: new Retrier({ clock: systemClock, random: Math.random }),
    endpoints,
    strict: false,
    timeoutMs: 5_000,
    onLag: () => undefined,
  });
  const logger = pino({ level: "debug", base: null }, destination);
  const trigger = new Trigger({
    client,
    clock,
    feed: new MigrationFeed({ client, clock: systemClock, logger }),
    excludedGroups,
    findApiServers: (signal) => finder.find(signal),
    logger,
    ...(intervalMs === undefined ? {} : { intervalMs }),
    ...(crdMode === undefined ? {} : { crdMode }),
    ...(sharedClock === undefined ? {} : { sharedClock }),
  });
  const ended = trigger.run(abort.signal);
  let stopped: Promise<void> | undefined;
  const stop = (): Promise<void> =>
    (stopped ??= (async () => {
      abort.abort(new Error("the test is over"));
      await ended;
      await Promise.all([finder.close(), client.transport.close()]);
    })());
  t.teardown(stop);
  const settled = (): Promise<void> =>
    eventually(async () => trigger.isIdle, "the trigger has looked after everything", 60_000);
  return { trigger, lines, settled, stop };
}

/** What a cluster has of the migration API. */
export class MigrationApi {
  readonly #cluster: Cluster;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  state(name: string): Promise<StorageState | undefined> {
    return this.#cluster.api.find<StorageState>(STORAGE_STATES, { name });
  }

  states(): Promise<readonly StorageState[]> {
    return this.#cluster.api.list<StorageState>(STORAGE_STATES);
  }

  /** The status of a StorageState without its heartbeat. */
  async hashes(name: string): Promise<{ persisted: readonly string[]; current: string } | undefined> {
    const status = (await this.state(name))?.status;
    return (
      status && {
        persisted: status.persistedStorageVersionHashes ?? [],
        current: status.currentStorageVersionHash ?? "",
      }
    );
  }

  /** The migrations of a resource, or all, the oldest first. */
  async migrations(name?: string): Promise<readonly StorageVersionMigration[]> {
    const all = await this.#cluster.api.list<StorageVersionMigration>(MIGRATIONS);
    return all
      .filter(({ spec }) => name === undefined || resourceNameOf(spec.resource) === name)
      .toSorted((a, b) => Number(a.metadata.resourceVersion) - Number(b.metadata.resourceVersion));
  }

  /** Waits for a migration of the resource that is not among `before`. */
  async nextMigration(name: string, before: readonly StorageVersionMigration[] = []): Promise<StorageVersionMigration> {
    const known = new Set(before.map(({ metadata }) => metadata.uid));
    let found: StorageVersionMigration | undefined;
    await eventually(async () => {
      found = (await this.migrations(name)).find(({ metadata }) => !known.has(metadata.uid));
      return found !== undefined;
    }, `there is a new migration of ${name}`);
    return found as StorageVersionMigration;
  }

  /**
   * Writes a condition, as the migration controller does, which does not run in these tests. With Succeeded come the
   * spec that the CRD has now and, unless another one is given, the reason `Migrated`.
   */
  async setCondition(
    { metadata: { name }, spec }: StorageVersionMigration,
    type: MigrationConditionType,
    options: { readonly reason?: string; readonly at?: number } = {},
  ): Promise<void> {
    const lastUpdateTime = new Date(options.at ?? Date.now()).toISOString();
    const given = options.reason ?? (type === "Succeeded" ? "Migrated" : undefined);
    const reason = given === undefined ? {} : { reason: given };
    const crd = type === "Succeeded" ? await this.#specOf(resourceNameOf(spec.resource)) : {};
    const body = { status: { conditions: [{ type, status: "True", lastUpdateTime, ...reason }], ...crd } };
    await this.#cluster.api.patch(MIGRATIONS, { name }, { type: MERGE_PATCH, body }, { subresource: "status" });
  }

  async #specOf(name: string): Promise<Pick<MigrationStatus, "crd">> {
    const crd = await this.#cluster.api.find<CustomResourceDefinition>(CRDS, { name });
    return crd === undefined ? {} : { crd: specKeyOf(crd.metadata) };
  }

  /** Lets every migration that has not ended succeed, as if the migration controller had run them. */
  async completeAll(): Promise<void> {
    for (const migration of await this.migrations()) {
      if ((migration.status?.conditions ?? []).every(({ type }) => type === "Running")) {
        await this.setCondition(migration, "Succeeded");
      }
    }
  }

  /** Waits until the StorageState says what it should. */
  async waitForHashes(name: string, expected: { persisted: readonly string[]; current: string }): Promise<void> {
    await eventually(
      async () => JSON.stringify(await this.hashes(name)) === JSON.stringify(expected),
      `the StorageState of ${name} has ${JSON.stringify(expected)}`,
    );
  }
}
