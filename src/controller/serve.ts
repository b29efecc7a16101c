import { CONTROLLER_LEASE, hasCondition, resourceNameOf, type StorageVersionMigration } from "../api/migration.ts";
import { type CertificateTools, ensureCertificates } from "../certs/ensure.ts";
import type { Clock } from "../clock.ts";
import { type MigrationChange, MigrationFeed } from "../migrations/migration-feed.ts";
import { FailureLog } from "../observability/failure-log.ts";
import { ResourceSeries } from "../observability/resource-series.ts";
import { Waker } from "../waker.ts";
import { removeWebhook } from "../webhook/configuration-keeper.ts";
import { LeaderElector } from "./leader-election.ts";
import { lead, type LeaderOptions } from "./leader-part.ts";
import { MACHINE_PARTS, type MachineParts, replicaLoops, type ReplicaOptions, together } from "./replica.ts";

// Commands load this when they begin to serve: the others do not need Fastify, prom-client and node-forge.
export { Metrics } from "../observability/metrics.ts";
export { measured } from "./observe.ts";

/** What {@link serve} needs. */
export interface ServeOptions extends ReplicaOptions {
  /** Ends the server. */
  readonly signal: AbortSignal;
  /** @default those of this machine */
  readonly machine?: MachineParts;
}

/**
 * One replica of the installed system, until the signal is aborted: every replica serves the webhook, one migrates. Then
 * runs end cleanly, the Lease is given up, and the webhook answers until no API server sends it a review.
 *
 * @throws {KsvmError} ListenFailed where an address cannot be had.
 */
export async function serve(options: ServeOptions): Promise<void> {
  const { clock, identity, logger, machine = MACHINE_PARTS, metrics, settings } = options;
  const loops = replicaLoops(clock);
  const feed = new MigrationFeed({ ...options, pulse: loops.add("migration-watch") });
  const progress = new ProgressIndex();
  /** Woken where this replica sees that the Secret has lost its certificates. */
  const lost = new Waker();
  // Nothing is frozen where storedVersions are not managed.
  const webhook =
    settings.runs.crdMode === "rewrite"
      ? undefined
      : machine.openWebhook({
          ...options,
          loops,
          lost,
          progressOf: (crdName) => progress.of(crdName),
          issue: (signal) => issueForNames(options, machine.certificates, signal),
        });
  const shutdown = { name: "shutdown", check: () => (options.signal.aborted ? "shutting down" : undefined) };
  metrics.leader.set(0);
  const health = await machine.startHealth({
    ...settings.health,
    liveness: loops.checks(),
    readiness: webhook === undefined ? [shutdown] : [{ name: "webhook", check: () => webhook.ready() }, shutdown],
    registry: metrics.registry,
    logger,
  });
  logger.info({ url: health.url, identity }, "Started a replica");
  const leader = { ...options, feed, loops, series: new ResourceSeries(metrics), lost, machine };
  try {
    await together(options.signal, [
      (signal) => loops.add("election").keep(({ clock: waits }) => compete(leader, waits, signal), signal),
      (signal) =>
        loops.add("progress").keep((loop) => {
          // It waits for the feed, which is a loop of its own.
          loop.rest();
          return feed.follow((change) => progress.apply(change), signal);
        }, signal),
      (signal) => webhook?.run(signal) ?? removeWebhook({ ...options, signal }),
    ]);
  } finally {
    await health.close();
    logger.info("Stopped");
  }
}

/** Leads whenever no other replica does. @param clock what the election waits by */
function compete(options: Omit<LeaderOptions, "leadership">, clock: Clock, signal: AbortSignal): Promise<void> {
  const { client, identity, logger, metrics, settings } = options;
  const failures = new FailureLog({
    clock,
    logger,
    failing: "Cannot take or renew the Lease of the leader",
    working: "The Lease of the leader can be read and written again",
  });
  const leadership = new LeaderElector({
    client,
    clock,
    namespace: settings.namespace,
    name: CONTROLLER_LEASE,
    identity,
    onError: (error) => failures.failed(error),
    onAnswer: () => failures.worked(),
  });
  const onChange = (isLeading: boolean): void => {
    metrics.leader.set(isLeading ? 1 : 0);
    logger.info({ identity }, isLeading ? "Started leading: this replica migrates" : "Stopped leading");
  };
  return leadership.run(signal, (leading) => lead({ ...options, leadership }, leading), onChange);
}

/** How long an API server is waited for, in milliseconds. */
const ISSUE_PATIENCE_MS = 30_000;

/** Takes the steps that are due, but none that needs every API server: the leader goes on with a rotation. */
function issueForNames(
  { client, clock, logger, settings }: ReplicaOptions,
  tools: CertificateTools | undefined,
  signal: AbortSignal,
): Promise<unknown> {
  const limits = { patienceMs: ISSUE_PATIENCE_MS, signal };
  return ensureCertificates({ ...tools, ...limits, settings: settings.certificates, client, clock, logger });
}

/** How far the migrations that are under way are, for the words of a denial. Every replica denies, one migrates. */
class ProgressIndex {
  readonly #running = new Map<string, { readonly resource: string; readonly text: string }>();

  /** In a few words; `undefined` where no migration of this resource (`plural.group`) is under way. */
  of(resource: string): string | undefined {
    return [...this.#running.values()].find((progress) => progress.resource === resource)?.text;
  }

  /** Takes in what the feed tells. */
  apply(change: MigrationChange): void {
    if (change.type === "listed") {
      this.#running.clear();
      for (const migration of change.migrations) this.#take(migration);
    } else if (change.type === "changed") {
      this.#take(change.migration);
    } else if (change.type === "deleted") {
      this.#running.delete(change.uid);
    }
  }

  #take(migration: StorageVersionMigration): void {
    const { name, uid } = migration.metadata;
    if (!hasCondition(migration, "Running")) {
      this.#running.delete(uid);
      return;
    }
    const { progress = "" } = migration.status ?? {};
    const text = `migrations/${name}${progress === "" ? "" : `: ${progress} objects`}`;
    this.#running.set(uid, { resource: resourceNameOf(migration.spec.resource), text });
  }
}
