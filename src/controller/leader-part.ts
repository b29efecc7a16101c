import { keepCertificates } from "../certs/keep-certificates.ts";
import { Client } from "../kube/client.ts";
import type { Send } from "../kube/http.ts";
import type { MigrationFeed } from "../migrations/migration-feed.ts";
import type { ResourceSeries } from "../observability/resource-series.ts";
import { retireStorageStates } from "../trigger/retire.ts";
import { Trigger } from "../trigger/trigger.ts";
import type { Waker } from "../waker.ts";
import type { LeaderElector } from "./leader-election.ts";
import { MigrationController } from "./migration-controller.ts";
import { type MigrationObserver, observeMigration, observeTrigger } from "./observe.ts";
import { type MachineParts, type ReplicaLoops, type ReplicaOptions, together } from "./replica.ts";

/** What {@link lead} needs. */
export interface LeaderOptions extends ReplicaOptions {
  readonly leadership: LeaderElector;
  readonly feed: Pick<MigrationFeed, "follow">;
  readonly loops: Pick<ReplicaLoops, "add">;
  readonly series: ResourceSeries;
  /** Woken where the Secret has lost its certificates. */
  readonly lost: Waker;
  readonly machine: Pick<MachineParts, "certificates">;
}

/**
 * What one replica does at a time, until the signal is aborted: it migrates, decides what is to be migrated, and keeps the
 * certificates. Every run ends cleanly then. The Lease is given up when all of that has ended, not before.
 */
export async function lead(options: LeaderOptions, leading: AbortSignal): Promise<void> {
  const { metrics } = options;
  try {
    await together(leading, [
      (signal) => migrateAll(options, signal),
      (signal) => trigger(options, signal),
      (signal) => certificates(options, signal),
    ]);
  } finally {
    metrics.migrations.reset();
    metrics.waiting.reset();
    metrics.freezeStarted.reset();
  }
}

function migrateAll(options: LeaderOptions, signal: AbortSignal): Promise<void> {
  const { clock, loops, metrics, series, settings } = options;
  const freezes = new Set<string>();
  const observe = (resource: string): MigrationObserver => {
    const loop = loops.add("migrations");
    return observeMigration(metrics, resource, { freezes, loop, now: () => clock.now(), series });
  };
  const controller = new MigrationController({
    ...options,
    runs: settings.runs,
    maxConcurrent: settings.concurrentMigrations,
    finishedLimit: settings.finishedMigrationsLimit,
    observe,
    onStates: (states, waiting) => {
      metrics.waiting.reset();
      for (const [reason, count] of waiting) metrics.waiting.set({ reason }, count);
      for (const [state, count] of Object.entries(states)) metrics.migrations.set({ state }, count);
    },
    onSweep: (isFrozen) => {
      // What a run could not lift, another one may have lifted since, or a user.
      for (const resource of [...freezes].filter((name) => !isFrozen(name))) {
        freezes.delete(resource);
        metrics.freezeStarted.remove({ resource });
      }
    },
  });
  return controller.run(signal);
}

async function trigger(options: LeaderOptions, signal: AbortSignal): Promise<void> {
  const { clock, feed, leadership, logger, loops, metrics, series, settings } = options;
  const { address, random, send } = options.client;
  // Nothing is written once this replica may not lead any more.
  const fenced: Send = async (request) => {
    if (request.method !== "GET") leadership.assertLeading();
    return send(request);
  };
  const client = new Client({ address, clock: options.client.clock, random, send: fenced });
  if (settings.trigger === undefined) {
    await retireStorageStates(client, logger, signal);
    return;
  }
  const { crdMode, endpoints, ignored } = settings.runs;
  const watch = observeTrigger(metrics);
  const shared = { client, clock, feed, logger, watch, apiServers: { endpoints, ignored }, ...settings.trigger };
  const onPoll = (isGone: (name: string) => boolean): void => series.dropGone(isGone);
  await loops.add("trigger").keep(async (pulse) => {
    const running = new Trigger({ ...shared, ...(crdMode === undefined ? {} : { crdMode }), onPoll, pulse });
    await running.run(signal).finally(watch.end);
  }, signal);
}

async function certificates(options: LeaderOptions, signal: AbortSignal): Promise<void> {
  const { client, logger, loops, lost, machine, settings } = options;
  const { crdMode, endpoints, ignored } = settings.runs;
  if (crdMode === "rewrite" || settings.webhook.certificates !== "own") return;
  const shared = { ...machine.certificates, settings: settings.certificates, client, logger, lost, signal };
  await loops
    .add("certificates")
    .keep(({ clock }) => keepCertificates({ ...shared, apiServers: { endpoints, ignored }, clock }), signal);
}
