import { ApiServerFinder } from "../apiservers/api-server-finder.ts";
import { keepLooking } from "../apiservers/lease-lookout.ts";
import type { SeenServers } from "../apiservers/seen-servers.ts";
import type { Clock } from "../../clock.ts";
import { messageOf } from "../../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { TransportError } from "../kube/errors.ts";
import type { PendingRequests } from "../kube/pending-requests.ts";
import { Limiter } from "../retry/limiter.ts";
import { Pacer } from "../retry/pacer.ts";
import { Retrier } from "../retry/retrier.ts";
import type { MigrationOptions, RunContext } from "./run-context.ts";

/** `background` leaves room for other clients; `fast` takes what the API server gives. */
export const PRIORITIES = ["background", "fast"] as const;
/** One of {@link PRIORITIES}. */
export type Priority = (typeof PRIORITIES)[number];

/** What a user chooses for all runs of a process. */
export interface RunSettings {
  readonly options: Omit<MigrationOptions, "dryRun" | "force">;
  /** Requests at the same time, in one run. */
  readonly maxInFlight: number;
  /** Requests per second, in one run; `Infinity` for no limit. */
  readonly maxQps: number;
  /** Whether other clients may wait for this run. @default "background" */
  readonly priority?: Priority;
  /** Milliseconds without any progress after which a run gives up. */
  readonly maxIdleMs: number;
  /** The same if a webhook of another client is what fails. */
  readonly webhookWaitMs: number;
  /** The API servers' addresses. @default they are found */
  readonly apiserverEndpoints?: readonly string[] | undefined;
  /** Names of identity Leases whose API servers are gone. @default none */
  readonly ignoredApiservers?: readonly string[] | undefined;
  /** Refuses to sample API servers that cannot be asked one by one. @default false */
  readonly strict?: boolean;
}

/** What all runs of a process share. */
export interface RunEnvironment {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly seen: SeenServers;
  /**
   * Which API servers came and went, and the waits that rest on that. Whose connections end before those of other runs has them for itself: a
   * watch goes on by the connection that began it. @default those of `seen`
   */
  readonly watched?: Required<Pick<RunContext, "arrivals" | "settled">>;
  /** Told of every failure that is retried. @default none */
  readonly onRetry?: (error: unknown, delayMs: number) => void;
  /** Told of every wait because of `maxQps`, in milliseconds. @default none */
  readonly onWait?: (ms: number) => void;
}

/** What differs from run to run. */
export type RunParts = Omit<
  RunContext,
  | "client"
  | "findApiServers"
  | "arrivals"
  | "settled"
  | "seen"
  | "areServersNamed"
  | "clock"
  | "retrier"
  | "budget"
  | "pacer"
  | "isUrgent"
  | "options"
> &
  Pick<MigrationOptions, "dryRun" | "force"> & {
    /** Told how many requests the run may have under way, whenever that changes. @default none */
    readonly onLimit?: (limit: number) => void;
  };

/** A run that can be begun. */
export interface AssembledRun {
  readonly context: RunContext;
  /** Its requests that are under way. */
  readonly pending: PendingRequests;
  /** Ends the connections that the run opened, and what it looks at all the time. */
  close(): Promise<void>;
}

/** Makes what a run is handed: its retrier, limiter, pacer and the finder of API servers. From then on it looks out for API servers that stand still. */
export function assembleRun(
  shared: RunSettings & RunEnvironment,
  { dryRun, force, onLimit, ...parts }: RunParts,
): AssembledRun {
  const { clock, maxInFlight, maxQps, onRetry, onWait, options, seen, watched = seen } = shared;
  const { emit } = parts;
  // Each of its requests may be the one that an API server does not answer, long before API servers are looked for.
  const pending = seen.pending();
  const client = shared.client.pendingIn(pending);
  const retrier = new Retrier({
    clock,
    random: Math.random,
    maxIdleMs: shared.maxIdleMs,
    webhookWaitMs: shared.webhookWaitMs,
    onRetry: (error, delayMs, object) => {
      onRetry?.(error, delayMs);
      if (error instanceof TransportError && object === undefined) {
        seen.silent();
      }
      emit({ type: "retrying", reason: messageOf(error), delayMs, ...(object === undefined ? {} : { object }) });
    },
  });
  const finder = new ApiServerFinder({
    client,
    clock,
    retrier,
    endpoints: shared.apiserverEndpoints,
    ignored: shared.ignoredApiservers,
    seen,
    ...(options.shutdownDelayMs === undefined ? {} : { shutdownDelayMs: options.shutdownDelayMs }),
    strict: shared.strict ?? false,
    timeoutMs: options.convergenceTimeoutMs,
    onLag: (server, reason) => emit({ type: "lagging", server, reason }),
  });
  const limiter = new Limiter({ maxInFlight, ...(onLimit === undefined ? {} : { onChange: onLimit }) });
  const context: RunContext = {
    ...parts,
    client,
    clock,
    retrier,
    arrivals: watched.arrivals,
    settled: watched.settled,
    seen,
    areServersNamed: shared.apiserverEndpoints !== undefined,
    findApiServers: (signal) => finder.findAll(options.settleMs, signal),
    pacer: new Pacer({ clock, maxInFlight, maxQps, limiter, onWait }),
    isUrgent: shared.priority === "fast",
    options: { ...options, dryRun, force },
  };
  const endLookout = keepLooking({ clock, look: (signal) => finder.glance(signal), onUnseen: () => seen.silent() });
  const close = async (): Promise<void> => {
    await endLookout();
    await finder.close();
  };
  return { context, pending, close };
}
