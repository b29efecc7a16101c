import { keepCertificates } from "../certs/keep-certificates.ts";
import { messageOf } from "../errors.ts";
import type { LeaderElector } from "../old/lease/leader-election.ts";
import { ApiServerFinder } from "../old/apiservers/api-server-finder.ts";
import { keepLooking } from "../old/apiservers/lease-lookout.ts";
import type { SeenServers } from "../old/apiservers/seen-servers.ts";
import { Retrier } from "../old/retry/retrier.ts";
import type { Waker } from "../old/retry/waker.ts";
import type { MigrationFeed } from "../migrations/migration-feed.ts";
import { type FreezeSink, observeMigration } from "./observe-migration.ts";
import type { Loop } from "../observability/loops.ts";
import { ResourceSeries } from "../observability/resource-series.ts";
import { observeTrigger } from "./observe-trigger.ts";
import { observePacing, observeRetries } from "./observe-requests.ts";
import { retireStorageStates } from "../trigger/retire.ts";
import type { CrdSights } from "../trigger/crd-sights.ts";
import { Trigger } from "../trigger/trigger.ts";
import { MigrationController } from "./migration-controller.ts";
import type { RunObserver } from "./migration-jobs.ts";
import type { MachineParts } from "./machine-parts.ts";
import type { ReplicaLoops } from "./replica-loops.ts";
import type { ReplicaOptions } from "./replica-options.ts";
import { runFactory } from "./run-factory.ts";

/** What a {@link LeaderPart} needs. */
export interface LeaderPartOptions extends ReplicaOptions {
  readonly leadership: LeaderElector;
  readonly feed: Pick<MigrationFeed, "follow">;
  readonly loops: Pick<ReplicaLoops, "add">;
  readonly freezes: FreezeSink;
  /** Woken where the Secret has lost its certificates. */
  readonly lost: Waker;
  /** What this replica saw of the API servers, also before it led or while it did not. */
  readonly seen: SeenServers;
  /** What this replica saw of CRDs, also when it led before. */
  readonly sights: CrdSights;
  /** @default those of this machine */
  readonly machine?: Pick<MachineParts, "certificates">;
}

/** What one replica does at a time: it migrates, decides what is to be migrated, and keeps the certificates. */
export class LeaderPart {
  readonly #options: LeaderPartOptions;
  readonly #series: ResourceSeries;

  constructor(options: LeaderPartOptions) {
    this.#options = options;
    this.#series = new ResourceSeries(options.metrics);
  }

  /**
   * Leads until the signal is aborted; then every run ends cleanly. A part that fails takes the others with it: the Lease is
   * given up when all of them have ended, not before.
   */
  async run(leading: AbortSignal): Promise<void> {
    const failed = new AbortController();
    const signal = AbortSignal.any([leading, failed.signal]);
    const { clock, logger, metrics, seen, settings } = this.#options;
    const { maxIdleMs, webhookWaitMs } = settings.runs;
    const { convergenceTimeoutMs, shutdownDelayMs = 0 } = settings.runs.options;
    const onRetry = (error: unknown, delayMs: number): void =>
      logger.debug({ reason: messageOf(error), delayMs }, "Trying again");
    const retrier = new Retrier({ clock, random: Math.random, maxIdleMs, webhookWaitMs, onRetry });
    const finder = new ApiServerFinder({
      ...this.#options,
      retrier,
      endpoints: settings.runs.apiserverEndpoints,
      ignored: settings.runs.ignoredApiservers,
      strict: settings.runs.strict ?? false,
      shutdownDelayMs,
      timeoutMs: convergenceTimeoutMs,
      onLag: (server, reason) => logger.info({ server, reason }, "Waiting for an API server"),
    });
    // What the leader before saw, or a controller before a restart, this one does not know, and goes on with its runs at once.
    seen.tookOver();
    // A migration that is suspended, or waits for Kubernetes' own migrator, has no run that would look.
    const endLookout = keepLooking({
      clock,
      look: (within) => finder.glance(within),
      onUnseen: () => seen.silent(),
    });
    try {
      const parts = [
        this.#migrate(signal),
        this.#trigger(finder, signal),
        this.#keepCertificates(finder, { retrier, signal }),
      ];
      await Promise.allSettled(
        parts.map((part) =>
          part.catch((error: unknown) => {
            failed.abort(error);
          }),
        ),
      );
      failed.signal.throwIfAborted();
    } finally {
      metrics.migrations.reset();
      metrics.waiting.reset();
      await endLookout();
      await finder.close();
    }
  }

  async #migrate(signal: AbortSignal): Promise<void> {
    const { client, clock, metrics, seen, settings } = this.#options;
    const openRun = runFactory({
      ...settings.runs,
      client,
      clock,
      seen,
      onRetry: observeRetries(metrics),
      onWait: observePacing(metrics),
      onLimit: (resource, limit) => metrics.inFlightLimit.set({ resource }, limit),
    });
    const controller = new MigrationController({
      ...this.#options,
      openRun,
      freezes: settings.runs.options.crdMode === "manage",
      maxConcurrent: settings.concurrentMigrations,
      finishedLimit: settings.finishedMigrationsLimit,
      observe: (resource) => this.#observe(resource),
      onStates: (states, waiting) => {
        metrics.waiting.reset();
        waiting.forEach((count, reason) => metrics.waiting.set({ reason }, count));
        for (const [state, count] of Object.entries(states)) {
          metrics.migrations.set({ state }, count);
        }
      },
    });
    await seen.arrivals.throughout(() => controller.run(signal));
  }

  #observe(resource: string): RunObserver {
    const { freezes, loops, metrics } = this.#options;
    const observer = observeMigration(metrics, resource, { freezes, series: this.#series });
    const loop = loops.add("migrations");
    loop.beat();
    return {
      pulse: loop,
      event: (event) => {
        loop.beat();
        observer.event(event);
      },
      completed: observer.completed,
      end: () => {
        loop.end();
        observer.end();
      },
    };
  }

  async #trigger(finder: ApiServerFinder, signal: AbortSignal): Promise<void> {
    const { clock, feed, leadership, logger, loops, metrics, seen, settings, sights } = this.#options;
    const client = this.#options.client.fencedBy(() => Promise.resolve(leadership.assertLeading()));
    if (settings.trigger === undefined) {
      await retireStorageStates({ client, clock, logger, signal });
    } else {
      const findApiServers = (within: AbortSignal) => finder.find(within);
      const { crdMode } = settings.runs.options;
      const onPoll = (isGone: (name: string) => boolean): void => this.#series.dropGone(isGone);
      // The run that comes of it begins when the last one has followed, with a write under way perhaps.
      const disagreed = (name: string): void => seen.noting(name).onLag();
      const watch = { ...observeTrigger(metrics), disagreed };
      const shared = { client, clock, feed, logger, findApiServers, crdMode, onPoll, sights, watch };
      const options = { ...shared, ...settings.trigger };
      const run = (pulse: Loop): Promise<void> => {
        const trigger = new Trigger({ ...options, pulse });
        // One of another release writes built-in resources otherwise, and may be gone by the next look at the whole of discovery.
        seen.onJoin = () => trigger.pollSoon();
        return trigger.run(signal).finally(watch.end);
      };
      await loops.add("trigger").keep(run, signal);
      seen.onJoin = undefined;
    }
  }

  async #keepCertificates(
    finder: ApiServerFinder,
    { retrier, signal }: { readonly retrier: Retrier; readonly signal: AbortSignal },
  ): Promise<void> {
    const { client, logger, loops, lost, machine, settings } = this.#options;
    if (settings.runs.options.crdMode === "manage" && settings.webhook.certificates === "own") {
      const findApiServers = (within: AbortSignal) => finder.find(within);
      const tools = machine?.certificates ?? {};
      const options = { ...tools, settings: settings.certificates, client, logger, findApiServers, lost, signal };
      await loops.add("certificates").keep((loop) => {
        const waiting = retrier.with({ onRetry: (_, delayMs) => loop.pause(delayMs) });
        return keepCertificates({ ...options, clock: loop.clock, retrier: waiting });
      }, signal);
    }
  }
}
