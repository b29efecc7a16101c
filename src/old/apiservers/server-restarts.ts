import { messageOf } from "../../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { type ApiServers, soleAddressOf } from "./api-servers.ts";
import { SAMPLES } from "./ask-all.ts";
import { PinnedTransport } from "./pinned-transport.ts";
import type { Clock } from "../../clock.ts";
import type { WarningEvent } from "../retry/events.ts";
import { isInstanceForbidden, readServerInstance } from "./server-instance.ts";

/**
 * The processes behind a set of API servers: by address, or by process alone where one address leads to several. Missing
 * where it could not be told which process it is.
 */
export type Instances = ReadonlyMap<string, string | undefined>;

/**
 * Whether another process may have taken the place of one of `before`: they differ, or only one of both looks could tell.
 * Where neither could tell, that shows nothing.
 */
function isAnyReplaced(before: Instances, after: Instances): boolean {
  const differs = (server: string): boolean => !after.has(server) || after.get(server) !== before.get(server);
  return [...before.keys()].some(differs) || [...after.keys()].some((server) => !before.has(server));
}

/** The metrics of an API server with thousands of resources may take so long, over a slow network, in milliseconds. */
const READ_TIMEOUT_MS = 60_000;
const TRIES = 3;
const PAUSE_MS = 2_000;
const SAMPLES_AT_ONCE = 4;

/** What a look at API servers takes of a run. */
export interface LookContext {
  readonly clock: Clock;
  readonly emit: (event: WarningEvent) => void;
  readonly signal: AbortSignal;
}

/**
 * Counts the restarts of API servers over all attempts of a run. Between two looks an API server may have run with another
 * version or another EncryptionConfiguration: what it wrote then is beyond the watermark of the run. Its identity Lease may
 * not show that. The time at which its process started does, where this user may get /metrics. Where that cannot be told, a
 * restart may go unseen, and a user is told so at the beginning: what else there is shows some restarts and not all. A
 * killed API server of a release before 1.35 finds its identity Lease again, a load balancer keeps connections open whatever
 * happens behind it, and an idle connection ends by itself.
 */
export class ServerRestarts {
  #known: Instances | undefined;
  /** The addresses of which it could be told once. */
  readonly #told = new Set<string>();
  #count = 0;
  /** Whether a user was told of those of which it cannot be told. */
  #isTold = false;

  /**
   * Looks at every API server once more. One look that cannot tell, as where a proxy answers /metrics with a page of its
   * own, counts as a restart where an earlier look of this run, or the next one, can: the process may be another one.
   *
   * @returns how many looks of this run found that one may have restarted since the look before
   * @throws the signal's reason where it was aborted.
   */
  async look(context: LookContext, apiServers: ApiServers): Promise<number> {
    const seen = await instancesOf(context, apiServers);
    const instances: Instances = new Map(seen.map(({ server, instance, key = server }) => [key, instance]));
    const isLost = seen.some(({ server, instance }) => instance === undefined && this.#told.has(server));
    if (isLost || (this.#known !== undefined && isAnyReplaced(this.#known, instances))) {
      this.#count++;
    }
    this.#tellUnseen(context, seen);
    this.#known = instances;
    for (const { server } of seen.filter(({ instance }) => instance !== undefined)) {
      this.#told.add(server);
    }
    return this.#count;
  }

  #tellUnseen({ emit }: LookContext, seen: readonly Seen[]): void {
    const unseen = seen.filter(({ instance }) => instance === undefined);
    if (unseen.length === 0 || this.#isTold) {
      return;
    }
    this.#isTold = true;
    const reasons = unseen.map(({ server, reason = "" }) => `${server}: ${reason}`).join("; ");
    emit({
      type: "warning",
      message:
        "Cannot prove that no API server restarts during this run: /metrics does not show when each of them started " +
        `(${reasons}). Until the run has ended, restart none with another version or EncryptionConfiguration: what it ` +
        "writes in between may be left in the old encoding",
    });
  }
}

interface Seen {
  readonly server: string;
  readonly instance: string | undefined;
  /** Why it could not be told. */
  readonly reason?: string;
  /** @default server */
  readonly key?: string;
}

async function instancesOf(context: LookContext, apiServers: ApiServers): Promise<readonly Seen[]> {
  if (apiServers.mode === "sampled" && apiServers.clients === undefined) {
    return await sampledInstances(context, apiServers.server, apiServers.open);
  }
  const soleAt = soleAddressOf(apiServers);
  return await Promise.all((apiServers.clients ?? []).map((client) => seenOn(context, client, soleAt)));
}

async function seenOn(context: LookContext, client: ApiClient, soleAt?: string): Promise<Seen> {
  const { transport } = client;
  // Behind one address they are told apart by nothing else.
  return transport instanceof PinnedTransport
    ? { server: transport.server, instance: transport.instance, key: transport.instance }
    : { server: soleAt ?? transport.server, ...(await instanceOf(context, client)) };
}

/** No identity Lease says how many there are: so many new connections are asked that each of a few answers one. */
async function sampledInstances(context: LookContext, server: string, open: () => ApiClient): Promise<readonly Seen[]> {
  const seen = new Map<string, Seen>();
  for (let samples = 0; samples < SAMPLES; samples += SAMPLES_AT_ONCE) {
    const found = await Promise.all(Array.from({ length: SAMPLES_AT_ONCE }, () => instanceOnNew(context, open)));
    for (const one of found) {
      const key = one.instance ?? server;
      seen.set(key, { server, ...one, key });
    }
    if (seen.has(server)) {
      break;
    }
  }
  return [...seen.values()];
}

async function instanceOnNew(context: LookContext, open: () => ApiClient): Promise<Told> {
  const client = open();
  try {
    return await instanceOf(context, client);
  } finally {
    await client.transport.close();
  }
}

/** Which process answers, or why that cannot be told. */
type Told = Pick<Seen, "instance" | "reason">;

/** That an API server does not answer at all is for others to notice. */
async function instanceOf({ clock, signal }: LookContext, { transport }: ApiClient): Promise<Told> {
  for (let tries = 1; ; tries++) {
    try {
      const within = AbortSignal.any([signal, clock.timeout(READ_TIMEOUT_MS)]);
      return { instance: await readServerInstance(transport, within) };
    } catch (error) {
      signal.throwIfAborted();
      if (tries === TRIES || isInstanceForbidden(error)) {
        return { instance: undefined, reason: messageOf(error) };
      }
    }
    await clock.sleep(PAUSE_MS, signal);
  }
}
