import { keepCertificates } from "../certs/keep-certificates.ts";
import { messageOf } from "../errors.ts";
import type { LeaderElector } from "../kube/leader-election.ts";
import { ApiServerFinder } from "../migrator/api-servers.ts";
import { Retrier } from "../migrator/retrier.ts";
import type { Heartbeat } from "../observability/heartbeat.ts";
import { observeMigration } from "../observability/observe-migration.ts";
import { ownMigrationsByCrd } from "../migrations/crd-owner.ts";
import { observePacing, observeRetries } from "../observability/observe-requests.ts";
import { retireStorageStates } from "../trigger/retire.ts";
import { Trigger } from "../trigger/trigger.ts";
import { MigrationController } from "./migration-controller.ts";
import type { RunObserver } from "./migration-jobs.ts";
import type { ReplicaOptions } from "./replica-options.ts";
import { runFactory } from "./run-factory.ts";

/** What a {@link LeaderPart} needs. */
export interface LeaderPartOptions extends ReplicaOptions {
  readonly leadership: LeaderElector;
  /** Beats with every event of a migration, and rests while there is none. */
  readonly heartbeat: Heartbeat;
}

/** What one replica does at a time: it migrates, decides what is to be migrated, and sees to the certificates. */
export class LeaderPart {
  readonly #options: LeaderPartOptions;
  #runs = 0;

  constructor(options: LeaderPartOptions) {
    this.#options = options;
  }

  /** Leads until the signal is aborted; then every run ends cleanly. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, metrics, settings } = this.#options;
    const { maxIdleMs, webhookWaitMs } = settings.runs;
    const onRetry = (error: unknown, delayMs: number): void =>
      logger.debug({ reason: messageOf(error), delayMs }, "Trying again");
    const retrier = new Retrier({ clock, random: Math.random, maxIdleMs, webhookWaitMs, onRetry });
    const finder = new ApiServerFinder({
      ...this.#options,
      retrier,
      endpoints: settings.runs.apiserverEndpoints,
      ignored: settings.runs.ignoredApiservers,
      strict: settings.runs.strict ?? false,
      timeoutMs: settings.runs.options.convergenceTimeoutMs,
      onLag: (server, reason) => logger.info({ server, reason }, "Waiting for an API server"),
    });
    try {
      await Promise.all([
        this.#migrate(signal),
        this.#ownMigrations(signal),
        this.#trigger(finder, signal),
        this.#keepCertificates(finder, { retrier, signal }),
      ]);
    } finally {
      metrics.migrations.reset();
      await finder.close();
    }
  }

  async #migrate(signal: AbortSignal): Promise<void> {
    const { config, client, clock, metrics, settings } = this.#options;
    const openRun = runFactory({
      ...settings.runs,
      config,
      client,
      clock,
      onRetry: observeRetries(metrics),
      onWait: observePacing(metrics),
      onLimit: (resource, limit) => metrics.inFlightLimit.set({ resource }, limit),
    });
    const controller = new MigrationController({
      ...this.#options,
      openRun,
      namespace: settings.namespace,
      maxConcurrent: settings.concurrentMigrations,
      observe: (resource) => this.#observe(resource),
      onStates: (states) => {
        for (const [state, count] of Object.entries(states)) {
          metrics.migrations.set({ state }, count);
        }
      },
    });
    await controller.run(signal);
  }

  /** Once: migrations that an earlier version created went with a ClusterRole, which a user may replace. */
  async #ownMigrations(signal: AbortSignal): Promise<void> {
    const { clock, leadership, logger } = this.#options;
    const client = this.#options.client.fencedBy(() => Promise.resolve(leadership.assertLeading()));
    const retrier = new Retrier({ clock, random: Math.random, maxIdleMs: Number.POSITIVE_INFINITY });
    try {
      const { changed, refused } = await ownMigrationsByCrd({ client, clock, retrier, signal });
      if (changed + refused.length > 0) {
        logger.info({ changed, refused }, "gave migrations that a ClusterRole owned to the CRD");
      }
    } catch (error) {
      if (!signal.aborted) {
        logger.warn({ reason: messageOf(error) }, "cannot see whether a ClusterRole owns migrations");
      }
    }
  }

  #observe(resource: string): RunObserver {
    const { clock, heartbeat, metrics } = this.#options;
    const observer = observeMigration(metrics, resource, { clock });
    this.#runs++;
    heartbeat.beat();
    return {
      event: (event) => {
        heartbeat.beat();
        observer.event(event);
      },
      end: () => {
        this.#runs--;
        observer.end();
        if (this.#runs === 0) {
          heartbeat.rest();
        }
      },
    };
  }

  async #trigger(finder: ApiServerFinder, signal: AbortSignal): Promise<void> {
    const { clock, leadership, logger, settings } = this.#options;
    const client = this.#options.client.fencedBy(() => Promise.resolve(leadership.assertLeading()));
    if (settings.trigger === undefined) {
      await retireStorageStates({ client, clock, logger, signal });
    } else {
      const findApiServers = (within: AbortSignal) => finder.find(within);
      const managesStoredVersions = settings.runs.options.manageStoredVersions ?? true;
      const options = { client, clock, logger, findApiServers, managesStoredVersions, ...settings.trigger };
      await new Trigger(options).run(signal);
    }
  }

  async #keepCertificates(
    finder: ApiServerFinder,
    { retrier, signal }: { readonly retrier: Retrier; readonly signal: AbortSignal },
  ): Promise<void> {
    const { client, clock, logger, settings } = this.#options;
    const isOwn = settings.runs.options.manageStoredVersions !== false && settings.webhook.certificates === "own";
    if (isOwn) {
      const findApiServers = (within: AbortSignal) => finder.find(within);
      await keepCertificates({
        settings: settings.certificates,
        client,
        clock,
        logger,
        findApiServers,
        retrier,
        signal,
      });
    }
  }
}
