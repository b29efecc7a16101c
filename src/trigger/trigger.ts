import type { Logger } from "pino";
import type { ApiServerOptions } from "../apiservers/find.ts";
import { type CrdMode, HEARTBEAT_LIMIT_MS } from "../api/migration.ts";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import { CRDS, type KubeObject, METADATA } from "../kube/objects.ts";
import { watch as watchObjects } from "../kube/watch.ts";
import type { MigrationFeed } from "../migrations/migration-feed.ts";
import { FailureLog } from "../observability/failure-log.ts";
import { NO_PULSE, type Pulse } from "../pulse.ts";
import { apply, type ApplyContext, forget } from "./apply.ts";
import { CrdReader } from "./crd-facts.ts";
import { type Decision, decide } from "./decide.ts";
import { MigrationIndex } from "./migration-facts.ts";
import type { Situation } from "./next-status.ts";
import { type BuiltIns, type Observed, observeBuiltIns, observeCrd } from "./observe.ts";
import { retireStorageState } from "./retire.ts";
import { readState, readStates, type StateFacts } from "./state-facts.ts";
import { lookedOf, NO_WATCH, type TriggerWatch } from "./trigger-watch.ts";

/**
 * Milliseconds between two looks at everything, by default: less than half of the limit, so that one look that fails,
 * and one that takes its time, do not yet make a StorageState stale.
 */
export const DEFAULT_INTERVAL_MS = 240_000;
/**
 * The shortest interval that may be chosen, in milliseconds: reading all of discovery more often is a load of its own.
 */
export const MIN_INTERVAL_MS = 1_000;
/** The longest interval that may be chosen, in milliseconds: half of the limit, and not all of that. */
export const MAX_INTERVAL_MS = HEARTBEAT_LIMIT_MS / 2 - 1_000;

/** What a {@link Trigger} needs. */
export interface TriggerOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly feed: Pick<MigrationFeed, "follow">;
  readonly apiServers: ApiServerOptions;
  /** What migrations do with a CRD. @default "manage" */
  readonly crdMode?: CrdMode;
  /** Milliseconds between two looks at everything (`--trigger-interval`). @default DEFAULT_INTERVAL_MS */
  readonly intervalMs?: number;
  /** Groups that are left out; the core group is the empty name. */
  readonly excludedGroups: readonly string[];
  /** Names of the only resources that a user wants migrated. @default all of them */
  readonly onlyResources?: readonly string[] | undefined;
  /** Told after each look at everything which resources are gone. @default none */
  readonly onPoll?: (isGone: (name: string) => boolean) => void;
  /** Beats with every look, and while there is nothing to look at. @default none */
  readonly pulse?: Pulse;
  /** Watches it, for metrics. @default none */
  readonly watch?: TriggerWatch;
}

/** Milliseconds between two looks at everything where one failed, or API servers do not agree. */
const RETRY_MS = 10_000;
/** Between two looks at one resource, in milliseconds: what changes all the time leaves time for the others. */
const SAME_INTERVAL_MS = 200;
/** Milliseconds before another look at a resource after one that failed; twice as long each time. */
const FIRST_BACKOFF_MS = 1_000;
const LAST_BACKOFF_MS = 60_000;
/** Groups of Kubernetes itself: of a resource that one release no longer serves, objects may be left in etcd. */
const KUBERNETES_GROUP = /^[^.]*$|(^|\.)k8s\.io$/;

/**
 * Creates StorageVersionMigrations where objects may be stored in another version than the current one, and keeps
 * StorageStates, as in the proposals "Storage migration triggering controller" and "StorageVersion API for HA API
 * servers". One runs at a time: who leads.
 *
 * It looks at everything at each interval, and in between at each CRD that changes and at each resource whose
 * migrations do. A look that fails, as where an API server cannot be asked, is not counted: the next one tries again.
 */
export class Trigger {
  readonly #options: TriggerOptions;
  readonly #crds: CrdReader;
  readonly #migrations = new MigrationIndex();
  readonly #failures: FailureLog;
  /** On the monotonic clock, as all that is due. */
  #pollAt = Number.NEGATIVE_INFINITY;
  readonly #due = new Map<string, number>();
  /** When each resource was last looked at by itself, since the last look at everything. */
  readonly #lookedAt = new Map<string, number>();
  /** Ends the wait for what is due. */
  #pause = new AbortController();
  /** Ends the watch of CRDs. */
  #crdWatch = new AbortController();
  /** What there is to look after. */
  #known = new Set<string>();
  /** What the last look at everything showed of resources that have no CRD; nothing where it failed. */
  #builtIns: { readonly at: number; readonly observed: ReadonlyMap<string, Observed> } = { at: 0, observed: new Map() };
  /** How many looks at a resource have failed, one after the other. */
  readonly #failed = new Map<string, number>();
  /** What was logged of a resource last. */
  readonly #told = new Map<string, string>();
  #toldLeftOut = "[]";
  #toldUnavailable = "[]";

  constructor(options: TriggerOptions) {
    this.#options = options;
    this.#crds = new CrdReader(options.client);
    this.#failures = new FailureLog({
      ...options,
      failing: "Cannot look at every resource; trying again",
      working: "Looking at every resource again",
    });
  }

  /** Works until the signal is aborted, and ends promptly then. Failures are logged and tried again. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, feed, pulse = NO_PULSE, watch = NO_WATCH } = this.#options;
    watch.polled(clock.now());
    const over = new AbortController();
    const running = AbortSignal.any([signal, over.signal]);
    const listed = Promise.withResolvers<void>();
    const following = feed.follow((change) => {
      // Users may create migrations of thousands of resources that do not exist.
      for (const name of this.#migrations.apply(change).filter((one) => this.#known.has(one))) this.#lookSoon(name);
      if (change.type === "listed") listed.resolve();
    }, running);
    try {
      // Nothing is decided before it is known which migrations there are. What cannot be listed, a restart does not
      // bring.
      pulse.rest();
      await Promise.race([listed.promise, following]);
      while (!signal.aborted) await this.#step(running);
    } finally {
      over.abort();
      await following;
    }
  }

  async #step(signal: AbortSignal): Promise<void> {
    const { clock, pulse = NO_PULSE } = this.#options;
    const now = clock.monotonic();
    pulse.beat();
    if (now >= this.#pollAt) return this.#poll(signal);
    let next: { readonly name: string; readonly at: number } | undefined;
    for (const [name, at] of this.#due) {
      if (next === undefined || at < next.at) next = { name, at };
    }
    if (next !== undefined && next.at <= now) {
      const { name } = next;
      this.#due.delete(name);
      this.#lookedAt.set(name, now);
      return this.#attempt(name, () => this.#look(name, signal), signal);
    }
    const pauseMs = Math.min(this.#pollAt, next?.at ?? this.#pollAt) - now;
    pulse.pause(pauseMs);
    this.#pause = new AbortController();
    await clock.sleep(pauseMs, AbortSignal.any([signal, this.#pause.signal])).catch(() => undefined);
  }

  #lookSoon(name: string, delayMs = 0): void {
    const last = this.#lookedAt.get(name) ?? Number.NEGATIVE_INFINITY;
    const at = Math.max(this.#options.clock.monotonic() + delayMs, last + SAME_INTERVAL_MS);
    if (at < (this.#due.get(name) ?? Number.POSITIVE_INFINITY)) this.#due.set(name, at);
    this.#pause.abort();
  }

  async #poll(signal: AbortSignal): Promise<void> {
    const { clock, intervalMs = DEFAULT_INTERVAL_MS, watch = NO_WATCH } = this.#options;
    this.#pollAt = clock.monotonic() + intervalMs;
    this.#lookedAt.clear();
    let doAgree = false;
    try {
      doAgree = await this.#lookAtAll(signal);
      this.#failures.worked();
    } catch (error) {
      if (signal.aborted) return;
      this.#builtIns = { at: 0, observed: new Map() };
      this.#failures.failed(error);
      watch.retried("discovery");
    }
    if (!doAgree) this.#pollAt = clock.monotonic() + Math.min(intervalMs, RETRY_MS);
  }

  /** @returns whether API servers agree on all resources */
  async #lookAtAll(signal: AbortSignal): Promise<boolean> {
    const { apiServers, client, clock, onPoll, watch = NO_WATCH } = this.#options;
    const migrations = this.#migrations.byResource();
    const now = await this.#serverTime(signal);
    const states = await readStates(client, signal);
    const look = (observed: Observed): Promise<void> => {
      const { name } = observed;
      const situation = {
        observed,
        observedAt: now,
        now,
        state: states.get(name),
        migrations: migrations.get(name) ?? [],
      };
      return this.#attempt(name, () => this.#reconcile(situation, signal), signal);
    };

    // CRDs first: nothing about them has to be asked of every API server.
    const { crds, resourceVersion } = await this.#crds.all(signal);
    this.#crdWatch.abort();
    this.#crdWatch = new AbortController();
    void this.#followCrds(resourceVersion, AbortSignal.any([signal, this.#crdWatch.signal]));
    const isOff = (name: string): boolean => !this.#isWanted(name) || crds.get(name)?.isOptedOut === true;
    const custom = [...crds.values()].filter(({ name }) => !isOff(name)).flatMap((crd) => observeCrd(crd) ?? []);
    this.#known = new Set([...custom.map(({ name }) => name), ...this.#builtIns.observed.keys()]);
    for (const observed of custom) await look(observed);

    const builtIns = await observeBuiltIns(
      client,
      apiServers,
      {
        // One that has just come or gone is looked at next.
        isCrd: (name) => crds.has(name) || this.#due.has(name),
        isWanted: (name) => this.#isWanted(name),
      },
      signal,
    );
    this.#builtIns = { at: now, observed: new Map(builtIns.observed.map((one) => [one.name, one])) };
    this.#known = new Set([...custom, ...builtIns.observed].map(({ name }) => name));
    this.#logLeftOut(builtIns);
    watch.polled(clock.now(), this.#known);
    onPoll?.(builtIns.isGone);
    for (const observed of builtIns.observed) await look(observed);

    for (const [name, state] of states) {
      if (isOff(name)) {
        await this.#attempt(name, () => this.#retire(name, state, signal), signal);
      } else if (!this.#known.has(name) && !crds.has(name) && isOrphan(name, state, builtIns)) {
        await this.#attempt(name, () => this.#forget(name, state, migrations.get(name) ?? [], signal), signal);
      }
    }
    return builtIns.observed.every(({ agreed }) => agreed !== undefined);
  }

  /** Looks at one resource now: at its CRD, or at what the last look at everything showed of it. */
  async #look(name: string, signal: AbortSignal): Promise<void> {
    const { client } = this.#options;
    const migrations = this.#migrations.of(name);
    const now = await this.#serverTime(signal);
    // Read before the CRD, so that the write fails if anybody writes in between.
    const state = await readState(client, name, signal);
    const crd = name.includes(".") ? await this.#crds.find(name, signal) : undefined;
    if (!this.#isWanted(name) || crd?.isOptedOut === true) {
      if (state !== undefined) await this.#retire(name, state, signal);
      return;
    }
    const observed = crd === undefined ? this.#builtIns.observed.get(name) : observeCrd(crd);
    if (observed !== undefined) {
      this.#known.add(name);
      const observedAt = crd === undefined ? this.#builtIns.at : now;
      await this.#reconcile({ observed, observedAt, now, state, migrations }, signal);
    } else if (crd === undefined && state?.crd !== undefined) {
      await this.#forget(name, state, migrations, signal);
    }
  }

  async #reconcile(seen: Omit<Situation, "crdMode">, signal: AbortSignal): Promise<void> {
    const { crdMode = "manage", watch = NO_WATCH } = this.#options;
    const situation: Situation = { ...seen, crdMode };
    const { name } = seen.observed;
    const decision = decide(situation);
    await apply(this.#context(signal), situation, decision);
    this.#logDecision(name, decision);
    watch.looked(name, lookedOf(situation, decision));
    if ((decision.create?.attempt ?? 0) > 1) watch.retried("migration");
    if (decision.lookAgainMs !== undefined) this.#lookSoon(name, decision.lookAgainMs);
  }

  /** Nothing looks after the resource any more, and the last value of its StorageState would be believed. */
  async #retire(name: string, { uid }: StateFacts, signal: AbortSignal): Promise<void> {
    const { client, logger, watch = NO_WATCH } = this.#options;
    await retireStorageState(client, { name, uid }, signal);
    watch.looked(name, undefined);
    logger.info({ resource: name }, "Deleted a StorageState: the trigger is off for this resource");
  }

  /** The resource is gone, and its objects with it. */
  async #forget(name: string, state: StateFacts, migrations: Situation["migrations"], signal: AbortSignal) {
    const { logger, watch = NO_WATCH } = this.#options;
    await forget(this.#context(signal), name, state, migrations);
    watch.looked(name, undefined);
    logger.info({ resource: name }, "Deleted a StorageState: the resource is gone");
  }

  #context(signal: AbortSignal): ApplyContext {
    const { client, intervalMs = DEFAULT_INTERVAL_MS } = this.#options;
    // Looks between two polls write no heartbeat by themselves.
    return { client, index: this.#migrations, heartbeatMs: intervalMs / 2, signal };
  }

  async #attempt(name: string, work: () => Promise<void>, signal: AbortSignal): Promise<void> {
    const { logger, pulse = NO_PULSE, watch = NO_WATCH } = this.#options;
    pulse.beat();
    try {
      await work();
      this.#failed.delete(name);
    } catch (error) {
      if (signal.aborted) return;
      const failures = (this.#failed.get(name) ?? 0) + 1;
      this.#failed.set(name, failures);
      watch.retried("look");
      if (whose(error) === "conflict" && failures === 1) {
        // Another client wrote in between, or the feed is late.
        this.#lookSoon(name);
        return;
      }
      const isNews = this.#told.get(name) !== messageOf(error);
      this.#told.set(name, messageOf(error));
      logger[isNews ? "warn" : "debug"]({ err: error, resource: name }, "Cannot look after a resource; trying again");
      this.#lookSoon(name, Math.min(LAST_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** (failures - 1)));
    }
  }

  /** Has each CRD looked at that changes, until the next look at everything begins another watch. */
  async #followCrds(resourceVersion: string, signal: AbortSignal): Promise<void> {
    const { client, logger } = this.#options;
    try {
      const options = { resourceVersion, accept: METADATA, signal };
      for await (const event of watchObjects<KubeObject>(client, CRDS, options)) {
        if (event.type === "GAP") {
          this.#pollAt = Number.NEGATIVE_INFINITY;
          this.#pause.abort();
        } else if ("object" in event && this.#isWanted(event.object.metadata.name)) {
          this.#lookSoon(event.object.metadata.name);
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      const effect = "the trigger sees their changes with its next look at every resource";
      logger.warn({ reason: messageOf(error), effect }, "Cannot watch CustomResourceDefinitions");
    }
  }

  #isWanted(name: string): boolean {
    const { excludedGroups, onlyResources } = this.#options;
    return !excludedGroups.includes(groupOf(name)) && onlyResources?.includes(name) !== false;
  }

  /**
   * The time that replicas share: a heartbeat is written by one of them and judged by the next. The clock of a replica
   * that was wrong would make it look fresh, however long no replica looked.
   */
  async #serverTime(signal: AbortSignal): Promise<number> {
    const { client, clock } = this.#options;
    const { date } = await client.request("GET", "/version", { signal });
    // Every API server sends its time. Where a proxy takes it away, this clock is all there is.
    return date ?? clock.now();
  }

  /** Logs what is left out, once for as long as it stays the same. */
  #logLeftOut({ leftOut, observed, unavailable }: BuiltIns): void {
    const { logger } = this.#options;
    logger.debug({ resources: observed.length, leftOut: leftOut.length }, "Read discovery");
    // There are about a hundred subresources, which are no loss.
    const resources = leftOut.filter(({ resource }) => !resource.includes("/"));
    if (JSON.stringify(resources) !== this.#toldLeftOut) {
      this.#toldLeftOut = JSON.stringify(resources);
      const subresources = leftOut.length - resources.length;
      logger.info(
        { resources, subresources },
        resources.length > 0 ? "Left resources out" : "No resource is left out any more",
      );
    }
    if (JSON.stringify(unavailable) !== this.#toldUnavailable) {
      this.#toldUnavailable = JSON.stringify(unavailable);
      if (unavailable.length > 0) {
        logger.warn({ unavailable }, "API servers do not show every group; StorageStates of the others are kept up");
      } else {
        logger.info("API servers show every group again");
      }
    }
  }

  /** Logs what was done about a resource, and a reason to wait that is new. */
  #logDecision(resource: string, { cause, create, remove, status, waiting }: Decision): void {
    const { logger } = this.#options;
    if (status !== undefined) logger.info({ resource, cause, ...status }, "Wrote a StorageState");
    if (remove.length > 0) {
      logger.info({ resource, cause, migrations: remove.map(({ name }) => name) }, "Deleted migrations");
    }
    if (create !== undefined) {
      logger.info({ resource, cause, hash: create.hash, attempt: create.attempt }, "Created a migration");
    }
    if (waiting !== undefined && waiting !== this.#told.get(resource)) {
      logger.warn({ resource, reason: waiting }, "A migration waits");
    }
    if (waiting === undefined) this.#told.delete(resource);
    else this.#told.set(resource, waiting);
  }
}

/**
 * Whether a StorageState is of a CRD that was deleted, and its objects with it. One that remembers no CRD, as where the
 * annotation was lost before the CRD was, is one of these where the trigger made it and its group is not one of
 * Kubernetes.
 */
function isOrphan(name: string, state: StateFacts, { isGone }: BuiltIns): boolean {
  return state.crd !== undefined || (state.isOurs && !KUBERNETES_GROUP.test(groupOf(name)) && isGone(name));
}

function groupOf(name: string): string {
  return name.split(".").slice(1).join(".");
}
