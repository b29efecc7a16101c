import { CONTROLLER_LEASE } from "../api/migration.ts";
import { SeenServers } from "../old/apiservers/seen-servers.ts";
import { LeaderElector } from "../old/lease/leader-election.ts";
import { MigrationFeed } from "../migrations/migration-feed.ts";
import { FailureLog } from "../observability/failure-log.ts";
import type { HealthServer } from "../observability/health.ts";
import type { Loop } from "../observability/loops.ts";
import { Waker } from "../old/retry/waker.ts";
import { CrdSights } from "../trigger/crd-sights.ts";
import { removeWebhook } from "../webhook/remove-configuration.ts";
import { HeldFreezes } from "./held-freezes.ts";
import { LeaderPart } from "./leader-part.ts";
import { MACHINE_PARTS, type MachineParts } from "./machine-parts.ts";
import { issueForNames } from "./name-issuer.ts";
import { ProgressIndex } from "./progress-index.ts";
import { type ReplicaLoops, replicaLoops } from "./replica-loops.ts";
import type { ReplicaOptions } from "./replica-options.ts";
import type { WebhookPart } from "./webhook-part.ts";

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
export function serve(options: ServeOptions): Promise<void> {
  return new Replica(options).run();
}

class Replica {
  readonly #options: ServeOptions;
  /** A part that fails takes the others with it: a replica does all of its work or none. */
  readonly #failed = new AbortController();
  readonly #signal: AbortSignal;
  readonly #loops: ReplicaLoops;
  readonly #feed: MigrationFeed;
  readonly #progress: ProgressIndex;
  readonly #freezes: HeldFreezes;
  /** Outlives a leadership: a suspension of this machine ends one. */
  readonly #seen: SeenServers;
  /** Outlives a leadership: another client may prune a CRD between two of them. */
  readonly #sights = new CrdSights();
  /** Woken where this replica sees that the Secret has lost its certificates. */
  readonly #lost = new Waker();
  /** Missing where nothing is frozen. */
  readonly #webhook: Pick<WebhookPart, "ready" | "run"> | undefined;
  readonly #machine: MachineParts;

  constructor(options: ServeOptions) {
    const { clock, machine = MACHINE_PARTS, settings } = options;
    this.#options = options;
    this.#machine = machine;
    this.#signal = AbortSignal.any([options.signal, this.#failed.signal]);
    this.#loops = replicaLoops(clock, settings);
    this.#feed = new MigrationFeed({ ...options, pulse: this.#loops.add("migration-watch") });
    this.#progress = new ProgressIndex(this.#feed);
    this.#freezes = new HeldFreezes(options);
    this.#seen = new SeenServers(clock);
    if (settings.runs.options.crdMode === "manage") {
      const progressOf = (crdName: string): string | undefined => this.#progress.of(crdName);
      const issue = (signal: AbortSignal) => issueForNames(options, machine.certificates ?? {}, signal);
      this.#webhook = machine.openWebhook({ ...options, loops: this.#loops, lost: this.#lost, progressOf, issue });
    }
  }

  async run(): Promise<void> {
    const { identity, logger } = this.#options;
    const health = await this.#startHealth();
    logger.info({ url: health.url, identity }, "Started a replica");
    const signal = this.#signal;
    const parts = [
      this.#loops.add("election").keep((loop) => this.#lead(loop), signal),
      this.#loops.add("progress").keep((loop) => {
        // It waits for the feed, which is a loop of its own.
        loop.rest();
        return this.#progress.run(signal);
      }, signal),
      this.#loops.add("freezes").keep((loop) => this.#freezes.run(signal, loop.clock), signal),
      this.#serveWebhook(),
    ];
    try {
      await Promise.all(parts.map((part) => part.catch((error: unknown) => this.#fail(error))));
    } finally {
      await Promise.allSettled(parts);
      await health.close();
      logger.info("Stopped");
    }
  }

  #fail(error: unknown): never {
    this.#failed.abort(error);
    throw error;
  }

  #startHealth(): Promise<HealthServer> {
    const { logger, metrics, settings } = this.#options;
    const webhook = this.#webhook;
    metrics.leader.set(0);
    const shutdown = { name: "shutdown", check: () => (this.#signal.aborted ? "shutting down" : undefined) };
    return this.#machine.startHealth({
      ...settings.health,
      liveness: this.#loops.checks(),
      readiness: webhook === undefined ? [shutdown] : [{ name: "webhook", check: () => webhook.ready() }, shutdown],
      registry: metrics.registry,
      logger,
    });
  }

  async #lead({ clock }: Loop): Promise<void> {
    const { identity, logger, metrics, settings } = this.#options;
    const seen = this.#seen;
    const client = this.#options.client.pendingIn(seen.pending());
    const failures = new FailureLog({
      clock,
      logger,
      failing: "Cannot take or renew the Lease of the leader",
      working: "The Lease of the leader can be read and written again",
    });
    const elector = new LeaderElector({
      client,
      clock,
      namespace: settings.namespace,
      name: CONTROLLER_LEASE,
      identity,
      onError: (error) => failures.failed(error),
      onAnswer: () => failures.worked(),
    });
    const leader = new LeaderPart({
      ...this.#options,
      client,
      feed: this.#feed,
      leadership: elector,
      loops: this.#loops,
      freezes: this.#freezes,
      lost: this.#lost,
      seen,
      sights: this.#sights,
    });
    await elector.run(
      this.#signal,
      (leading) => leader.run(leading),
      (isLeading) => {
        metrics.leader.set(isLeading ? 1 : 0);
        logger.info({ identity }, isLeading ? "Started leading: this replica migrates" : "Stopped leading");
      },
    );
  }

  async #serveWebhook(): Promise<void> {
    return this.#webhook?.run(this.#signal) ?? removeWebhook({ ...this.#options, signal: this.#signal });
  }
}
