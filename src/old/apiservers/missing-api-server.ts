import { KsvmError } from "../../errors.ts";
import type { ApiServers } from "./api-servers.ts";
import type { LiveLease } from "./control-plane-objects.ts";
import type { Clock } from "../../clock.ts";
import type { ApiServerEvent } from "./events.ts";

const REMEDY =
  "an identity Lease outlives its API server by up to an hour: wait, name each API server with --apiserver-endpoints, or pass " +
  "--ignore-apiserver with the name of a Lease whose API server is gone";

/**
 * An API server that may live was not asked. Nothing may be concluded about it, so it is waited for, without a freeze,
 * until it answers or its identity Lease has expired.
 */
export class MissingApiServer extends KsvmError {
  override readonly name = "MissingApiServer";
  /** Why, without the words of an error around it. */
  readonly reason: string;

  /** @param remedy what a user can do. @default what helps where its identity Lease is there */
  constructor(reason: string, remedy = REMEDY) {
    super("ApiServerMissing", `Cannot continue without every API server: ${reason}; ${remedy}`);
    this.reason = reason;
  }
}

/** That an API server has left, and still takes requests as its users configured it. */
export function endingApiServer(ending: {
  readonly name: string;
  /** Both in milliseconds. */
  readonly leftMsAgo: number;
  readonly shutdownDelayMs: number;
}): MissingApiServer {
  const [ago, delay] = [ending.leftMsAgo, ending.shutdownDelayMs].map((ms) => `${Math.round(ms / 1_000)} s`);
  const takes = `it may take requests for ${delay} after that (--shutdown-delay)`;
  return new MissingApiServer(
    `the API server of identity Lease ${ending.name} was found gone ${ago} ago, and ${takes}`,
    "wait",
  );
}

/** That one may have left while another process looked, which alone saw it. */
export function unseenEnding(shutdownDelayMs: number): MissingApiServer {
  const takes = `may take requests for ${Math.round(shutdownDelayMs / 1_000)} s after that (--shutdown-delay)`;
  return new MissingApiServer(
    `an API server that left while another process looked, before this one took over, ${takes}`,
    "wait",
  );
}

/**
 * That there may be several API servers behind an address with a path: an HTTP proxy answers there. It chooses an API server for each request and
 * may keep to one for many in a row, as Rancher does with the two connections that it keeps, so that neither a connection nor a number of
 * requests tells them apart. Once all Leases but one have expired there is nothing to tell apart.
 *
 * https://github.com/rancher/rancher/blob/59bd052/pkg/clusterrouter/proxy/proxy_server.go
 */
export function behindHttpProxy(leases: readonly LiveLease[], server: string): MissingApiServer {
  const found = `they cannot be told apart behind ${server}, whose path shows an HTTP proxy`;
  const remedy =
    "use a kubeconfig that leads to the API servers, as that of an authorized cluster endpoint of Rancher does, or run ksvm in the cluster; where one " +
    "API server is gone, wait until its Lease has expired, or pass --ignore-apiserver with its name";
  return new MissingApiServer(describeMissing(leases, found), remedy);
}

/** Whether an HTTP proxy answers at an address: no load balancer of connections has a path. */
export function isHttpProxy(server: string): boolean {
  return new URL(server).pathname !== "/";
}

/**
 * That an API server which was found does not answer; `undefined` where a user named it: then its silence is a failure.
 */
export function silentApiServer(
  { identities }: ApiServers,
  server: string,
  reason: string,
): MissingApiServer | undefined {
  return identities === undefined ? undefined : new MissingApiServer(`${server} does not answer: ${reason}`);
}

/** An API server renews its identity Lease every 10 s; one that has not done so for this long may hang, in milliseconds. */
export const OVERDUE_MS = 30_000;

/** Whether an API server has not renewed its identity Lease for longer than one that works takes. */
export function isOverdue({ renewedMsAgo }: LiveLease): boolean {
  return renewedMsAgo > OVERDUE_MS;
}

/**
 * Whom to look for, in words: the Leases that are overdue, else all of them, since it cannot be told which one it is.
 *
 * @param found how many API servers were found, and where
 */
export function describeMissing(leases: readonly LiveLease[], found: string): string {
  const overdue = leases.filter((lease) => isOverdue(lease) && !wasSeenRenewed(lease));
  const named =
    overdue.length === 0
      ? ""
      : `, by their time stamps not renewed of late: ${overdue.map(describeOverdue).join(", ")}`;
  return `${leases.length} identity Leases live (${leases.map(describeLease).join(", ")})${named}; ${found}`;
}

/** The Lease of an API server, in words. */
export function describeLease({ name, host }: LiveLease): string {
  return host === undefined ? name : `${name} of host ${host}`;
}

/** Whether it was seen a short time ago that it was renewed: the clock that its stamp is of may be behind. */
function wasSeenRenewed({ seenRenewedMsAgo = Number.POSITIVE_INFINITY }: LiveLease): boolean {
  return seenRenewedMsAgo <= OVERDUE_MS;
}

function describeOverdue({ name, renewedMsAgo }: LiveLease): string {
  return `${name} for ${Math.round(renewedMsAgo / 1_000)} s`;
}

/** Milliseconds that a run may still wait for API servers, over all its attempts. */
export interface MissingBudget {
  leftMs: number;
}

/** A Lease outlives its API server by an hour; a little later nothing is left to wait for, in milliseconds. */
const WAIT_MS = 4_200_000;
const POLL_MS = 2_000;
/** How often a wait is reported, in milliseconds. */
const REPORT_EVERY_MS = 60_000;

/** What waiting for API servers takes of a run. */
export interface MissingContext {
  readonly clock: Clock;
  readonly emit: (event: ApiServerEvent) => void;
  /** @throws {MissingApiServer} if one of them cannot be asked */
  readonly findApiServers: (signal: AbortSignal) => Promise<ApiServers>;
  /** Waits until a run that has waited may continue. @default it may at once */
  readonly awaitTurn?: () => Promise<void>;
  readonly signal: AbortSignal;
}

/** The budget of a run that begins. */
export function newMissingBudget(): MissingBudget {
  return { leftMs: WAIT_MS };
}

/**
 * Waits until every API server that may live can be asked. No freeze may be held while it waits.
 * @throws {MissingApiServer} where the budget is used up, after longer than a Lease outlives its API server.
 */
export async function waitForApiServers(
  context: MissingContext,
  budget: MissingBudget = newMissingBudget(),
): Promise<ApiServers> {
  const { clock, emit, findApiServers, signal } = context;
  let reportedAt = Number.NEGATIVE_INFINITY;
  for (;;) {
    const lookedAt = clock.monotonic();
    try {
      const found = await findApiServers(signal);
      if (reportedAt !== Number.NEGATIVE_INFINITY) {
        await context.awaitTurn?.();
      }
      return found;
    } catch (error) {
      if (!(error instanceof MissingApiServer) || budget.leftMs <= 0) {
        throw error;
      }
      if (lookedAt - reportedAt >= REPORT_EVERY_MS) {
        emit({ type: "waiting", waitsFor: "ApiServerMissing", reason: error.reason, budgetMs: budget.leftMs });
        reportedAt = lookedAt;
      }
    }
    await clock.sleep(POLL_MS, signal);
    budget.leftMs -= clock.monotonic() - lookedAt;
  }
}
