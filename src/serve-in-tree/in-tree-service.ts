import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import type { IsServed } from "../in-tree/in-tree-guard.ts";
import { listInTree, servedInTree } from "../in-tree/in-tree-migrations.ts";
import { isAtLeastMinor, versionIn } from "../kube/discovery.ts";
import { DoubtfulAnswer } from "../kube/errors.ts";
import type { ApiClient, KubeObject } from "../kube/client.ts";
import type { Resource } from "../kube/resources.ts";
import { type WatchEvent, watchObject } from "../kube/watch.ts";
import type { MigrationFeed } from "../migrations/migration-feed.ts";
import { FailureLog } from "../observability/failure-log.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import { Waker } from "../retry/waker.ts";
import { Companions } from "./companions.ts";
import { type OtherWriter, OtherWriters } from "./other-writers.ts";
import { isProbe, probeForOthers } from "./probe.ts";
import { retireInTree } from "./retire.ts";
import { patientRetrier, ServedMigrations } from "./served-migrations.ts";
import { markedCrds } from "./storage-migrating.ts";

/** How far the service is: `refused` also where it served and another client set the status of a migration. */
export const SERVICE_STATES = ["unserved", "probing", "serving", "refused"] as const;
/** One of {@link SERVICE_STATES}. */
export type ServiceState = (typeof SERVICE_STATES)[number];

/** What an {@link InTreeService} needs. */
export interface InTreeServiceOptions {
  /** Writes only while this replica leads. */
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly feed: Pick<MigrationFeed, "follow">;
  /** Told of each state. @default nothing is */
  readonly onState?: (state: ServiceState) => void;
  /** Milliseconds that another client has to answer the probe. @default 30 s */
  readonly probeMs?: number | undefined;
}

/** Between two rounds, in milliseconds: at least, while something is due that no watch tells of, and at most. */
const MIN_INTERVAL_MS = 500;
const DUE_INTERVAL_MS = 5_000;
const MAX_INTERVAL_MS = 30_000;
/** Until it is looked again whether the API server serves these migrations, in milliseconds. */
const UNSERVED_INTERVAL_MS = 60_000;
/** Of Kubernetes 1. */
const OLDEST_SERVED_MINOR = 36;
const MIN_FAILURE_INTERVAL_MS = 1_000;
const MAX_FAILURE_INTERVAL_MS = 60_000;

/**
 * Carries out the migrations of Kubernetes' own migrator where that does not run: each by a migration of ours, which has its place in
 * the queue. Where another client sets the status of one, all of them are left to that one, until another replica leads.
 */
export class InTreeService {
  readonly #options: InTreeServiceOptions;
  readonly #companions = new Companions();
  /** While it serves. */
  #others: OtherWriters | undefined;
  readonly #failures: FailureLog;
  /** What the API server said of itself, where it is too old: it is told once. */
  #refusedVersion: string | undefined;
  readonly #waker = new Waker();

  constructor(options: InTreeServiceOptions) {
    this.#options = options;
    this.#failures = new FailureLog({
      ...options,
      failing: "Cannot serve in-tree migrations; trying again",
      working: "Serving in-tree migrations again",
    });
  }

  /** Whether a migration of Kubernetes' own migrator is carried out by this process. */
  readonly isServed: IsServed = (migration) => {
    const others = this.#others;
    return others !== undefined && !isProbe(migration) && others.of(migration) === undefined;
  };

  /** Serves until the signal is aborted. An outage is waited for. */
  async run(signal: AbortSignal): Promise<void> {
    const { feed } = this.#options;
    const following = feed.follow((change) => {
      if (this.#companions.apply(change)) {
        this.#waker.wake();
      }
    }, signal);
    await Promise.all([following, this.#keepServing(signal)]);
  }

  async #keepServing(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    const pace = new LoopPace({ clock, minMs: MIN_FAILURE_INTERVAL_MS, maxMs: MAX_FAILURE_INTERVAL_MS });
    while (!signal.aborted) {
      try {
        await pace.turn(signal);
        const other = await this.#serve(signal);
        this.#failures.worked();
        if (other !== undefined) {
          await this.#refuse(other, signal);
        }
        pace.reset();
      } catch (error) {
        if (!signal.aborted) {
          this.#failures.failed(error);
        }
      } finally {
        this.#others = undefined;
      }
    }
  }

  /** @returns the other client that serves them; `undefined` where the API server does not */
  async #serve(signal: AbortSignal): Promise<OtherWriter | undefined> {
    const { client, clock, probeMs } = this.#options;
    const resource = await servedInTree(client, { signal });
    if (resource === undefined || resource.version === "v1alpha1" || !(await this.#takesStatus(signal))) {
      this.#enter("unserved");
      await clock.sleep(UNSERVED_INTERVAL_MS, signal);
      return undefined;
    }
    this.#enter("probing");
    // Before the probe: whatever is written from here on counts.
    const others = new OtherWriters(await listInTree(client, resource, { signal }));
    const other = await probeForOthers({ client, clock, resource, signal, probeMs });
    return other ?? this.#serveAlone(resource, others, signal);
  }

  /**
   * Kubernetes 1.35 takes no status without a resourceVersion, and none that has both Running and how it ended, as the in-tree controller
   * of 1.36 writes them.
   *
   * https://github.com/kubernetes/kubernetes/blob/v1.35.4/pkg/apis/storagemigration/validation/validation.go
   */
  async #takesStatus(signal: AbortSignal): Promise<boolean> {
    const { client, logger } = this.#options;
    const { body } = await client.transport.request<unknown>({ method: "GET", path: "/version", signal });
    const version = versionIn(body);
    const isNew = isAtLeastMinor(version, OLDEST_SERVED_MINOR);
    if (!isNew && this.#refusedVersion !== version) {
      logger.warn({ version }, "Not serving in-tree migrations: Kubernetes 1.36 or newer is needed");
    }
    this.#refusedVersion = isNew ? undefined : version;
    return isNew;
  }

  async #serveAlone(resource: Resource, others: OtherWriters, signal: AbortSignal): Promise<OtherWriter | undefined> {
    const { clock, logger } = this.#options;
    const context = { ...this.#options, resource, retrier: patientRetrier(clock), signal };
    const served = new ServedMigrations(context, await markedCrds(context));
    this.#others = others;
    this.#enter("serving");
    logger.info({ version: resource.version }, "Serving in-tree migrations: no other client does");
    const watch = new AbortController();
    const watching = this.#watch(resource, AbortSignal.any([signal, watch.signal]));
    try {
      return await this.#rounds(served, others, { resource, signal });
    } finally {
      watch.abort();
      await watching;
    }
  }

  /** @returns the client that set the status of one of them; `undefined` where the API server does not serve this version any more */
  async #rounds(
    served: ServedMigrations,
    others: OtherWriters,
    { resource, signal }: { readonly resource: Resource; readonly signal: AbortSignal },
  ): Promise<OtherWriter | undefined> {
    const pace = new LoopPace({ clock: this.#options.clock, minMs: MIN_INTERVAL_MS });
    for (;;) {
      await pace.turn(signal);
      this.#waker.begin();
      let isMoreDue = true;
      try {
        const all = await listInTree(this.#options.client, resource, { signal });
        const other = all.map((one) => others.of(one)).find((found) => found !== undefined);
        if (other !== undefined) {
          return other;
        }
        isMoreDue = this.#companions.isListed && (await served.advance(all, this.#companions.byName));
        this.#failures.worked();
      } catch (error) {
        signal.throwIfAborted();
        // What is known of other writers stays known: an outage is no reason to begin with another probe.
        this.#failures.failed(error);
        if (error instanceof DoubtfulAnswer && !(await this.#isServedStill(resource, signal))) {
          return undefined;
        }
      }
      await this.#waker.wait(isMoreDue ? DUE_INTERVAL_MS : MAX_INTERVAL_MS, this.#options.clock, signal);
    }
  }

  /** Also where that cannot be learned. */
  async #isServedStill({ version }: Resource, signal: AbortSignal): Promise<boolean> {
    try {
      return (await servedInTree(this.#options.client, { signal }))?.version === version;
    } catch {
      signal.throwIfAborted();
      return true;
    }
  }

  /** Tells of changes at once. Where it cannot be watched, the next round comes all the same. */
  async #watch(resource: Resource, signal: AbortSignal): Promise<void> {
    const { client, clock } = this.#options;
    const pace = new LoopPace({ clock, minMs: MIN_FAILURE_INTERVAL_MS, maxMs: MAX_FAILURE_INTERVAL_MS });
    while (!signal.aborted) {
      try {
        await pace.turn(signal);
        for await (const { type } of watchObject(client.transport, resource, { resourceVersion: "", signal, clock })) {
          pace.reset();
          this.#hear(type);
        }
      } catch {
        // The list of the next round fails, too, and says so.
      }
    }
  }

  #hear(type: WatchEvent<KubeObject>["type"]): void {
    if (type !== "BOOKMARK") {
      this.#waker.wake();
    }
  }

  async #refuse({ manager, migration }: OtherWriter, signal: AbortSignal): Promise<void> {
    const { logger } = this.#options;
    this.#others = undefined;
    this.#enter("refused");
    logger.warn(
      { manager, migration, advice: "switch that client off and restart, or take --serve-in-tree-migrations away" },
      "Not serving in-tree migrations: another client sets their status",
    );
    await retireInTree({ ...this.#options, signal, isThorough: true });
    await abortOf(signal);
  }

  #enter(state: ServiceState): void {
    this.#options.onState?.(state);
  }
}

function abortOf(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
    } else {
      signal.addEventListener("abort", () => resolve(), { once: true });
    }
  });
}
