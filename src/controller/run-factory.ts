import type { KubeConfig } from "@kubernetes/client-node";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { PendingRequests } from "../kube/pending-requests.ts";
import { ApiServerFinder } from "../apiservers/api-server-finder.ts";
import type { MigrationEvent } from "../migrator/events.ts";
import { LeaseSightings } from "../apiservers/lease-sightings.ts";
import { Limiter } from "../retry/limiter.ts";
import { Pacer } from "../retry/pacer.ts";
import { Retrier } from "../retry/retrier.ts";
import type { MigrationOptions, RunContext } from "../migrator/run-context.ts";
import { type Stall, StallWatch } from "./stall-watch.ts";

/** What differs from run to run. */
export type RunParts = Pick<RunContext, "emit" | "signal" | "identity" | "purpose"> &
  Required<Pick<RunContext, "onPageDone">> &
  Pick<RunContext, "awaitTurn" | "isDead" | "isPlaceWanted" | "onAdvance"> & {
    readonly force: boolean;
    /** `plural.group` */
    readonly resource: string;
  };

/** A run that can be begun. */
export interface OpenedRun {
  readonly context: RunContext;
  /** What keeps the run from getting further; `undefined` where it gets further. */
  stall(): Stall | undefined;
  /** Ends the connections that the run opened. */
  close(): Promise<void>;
}

/** Makes what a run of the engine is handed. */
export type OpenRun = (parts: RunParts) => OpenedRun;

/** The settings that all runs share. */
export interface RunFactoryOptions {
  readonly config: KubeConfig;
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly options: Omit<MigrationOptions, "dryRun" | "force">;
  /** Requests at the same time, in one run. */
  readonly maxInFlight: number;
  /** Requests per second, in one run; `Infinity` for no limit. */
  readonly maxQps: number;
  /** As of `ksvm migrate`, in milliseconds. */
  readonly maxIdleMs: number;
  readonly webhookWaitMs: number;
  /** The API servers' addresses. @default they are found */
  readonly apiserverEndpoints?: readonly string[] | undefined;
  /** Names of identity Leases whose API servers are gone. @default none */
  readonly ignoredApiservers?: readonly string[] | undefined;
  /** Refuses to sample API servers that cannot be asked one by one. @default false */
  readonly strict?: boolean;
  /** Told of every failure that is retried. @default none */
  readonly onRetry?: (error: unknown, delayMs: number) => void;
  /** Told of every wait because of `maxQps`, in milliseconds. @default none */
  readonly onWait?: (ms: number) => void;
  /** Told how many requests a run may have under way, whenever that changes. @default none */
  readonly onLimit?: (resource: string, limit: number) => void;
}

/** The runs of the installed system: as those of `ksvm migrate`. */
export function runFactory(shared: RunFactoryOptions): OpenRun {
  const { client, clock, maxIdleMs, maxInFlight, maxQps, options, webhookWaitMs } = shared;
  const sightings = new LeaseSightings();
  return ({ force, resource, ...given }) => {
    const stalls = new StallWatch(clock);
    const pending = new PendingRequests(clock);
    const parts = {
      ...given,
      emit: (event: MigrationEvent): void => {
        stalls.event(event);
        given.emit(event);
      },
    };
    const retrier = new Retrier({
      clock,
      random: Math.random,
      maxIdleMs,
      webhookWaitMs,
      onRetry: (error, delayMs, object) => {
        stalls.failed(error, delayMs);
        shared.onRetry?.(error, delayMs);
        parts.emit({
          type: "retrying",
          reason: messageOf(error),
          delayMs,
          ...(object === undefined ? {} : { object }),
        });
      },
    });
    const finder = new ApiServerFinder({
      ...shared,
      retrier,
      endpoints: shared.apiserverEndpoints,
      ignored: shared.ignoredApiservers,
      sightings,
      strict: shared.strict ?? false,
      timeoutMs: options.convergenceTimeoutMs,
      onLag: (server, reason) => parts.emit({ type: "lagging", server, reason }),
    });
    const limiter = new Limiter({ maxInFlight, onChange: (limit) => shared.onLimit?.(resource, limit) });
    const context: RunContext = {
      ...parts,
      client: client.pendingIn(pending),
      clock,
      retrier,
      findApiServers: (signal) => finder.findAll(options.settleMs, signal),
      pacer: new Pacer({ clock, maxInFlight, maxQps, limiter, onWait: shared.onWait }),
      options: { ...options, dryRun: false, force },
    };
    const stall = (): Stall | undefined => stalls.stall(retrier.lastProgress, pending.oldest());
    return { context, stall, close: () => finder.close() };
  };
}
