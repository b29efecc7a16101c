import type { Clock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { ApiClient } from "../kube/client.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import type { Retrier } from "../retry/retrier.ts";
import { apiServerModeOf } from "./api-server-mode.ts";
import { type ApiServers, identityOf, type OpenNew } from "./api-servers.ts";
import { endpointUrls, type LiveLease } from "./control-plane-objects.ts";
import {
  behindHttpProxy,
  describeMissing,
  endingApiServer,
  isHttpProxy,
  MissingApiServer,
  unseenEnding,
} from "./missing-api-server.ts";
import { RecruitPace } from "./recruit-pace.ts";
import type { SeenServers } from "./seen-servers.ts";
import { ServerAddresses } from "./server-addresses.ts";
import { ServerRoll } from "./server-roll.ts";
import { StandingLeases } from "./standing-leases.ts";

/** What an {@link ApiServerFinder} needs. */
export interface ApiServerFinderOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  /** The API servers' addresses as the user names them. @default they are found */
  readonly endpoints?: readonly string[] | undefined;
  /**
   * Names of identity Leases whose API servers are gone, as the user says. One that is renewed shows that its API server
   * lives after all, and counts from then on. @default none
   */
  readonly ignored?: readonly string[] | undefined;
  /** What this process saw of the API servers: the same one for every finder of a process. */
  readonly seen: SeenServers;
  /**
   * For how long an API server that has begun to end takes requests, in milliseconds: the `--shutdown-delay-duration` of the
   * kube-apiserver. @default 0
   */
  readonly shutdownDelayMs?: number;
  /** Refuses to sample. */
  readonly strict: boolean;
  /** Milliseconds to wait for API servers that live and cannot be found. */
  readonly timeoutMs: number;
  /** Told who is being waited for. */
  readonly onLag: (server: string, reason: string) => void;
}

/** For reads: they wait for no admission webhook. */
const REQUEST_TIMEOUT_MS = 15_000;

/** Finds the API servers of a cluster, and keeps a connection to each. */
export class ApiServerFinder {
  readonly #options: ApiServerFinderOptions;
  readonly #addresses: ServerAddresses;
  readonly #roll: ServerRoll;
  readonly #pace = new RecruitPace();
  readonly #leases: StandingLeases;

  constructor(options: ApiServerFinderOptions) {
    this.#options = options;
    this.#addresses = new ServerAddresses({ ...options, timeoutMs: REQUEST_TIMEOUT_MS });
    const { departures, sightings } = options.seen;
    this.#leases = new StandingLeases({ ...options, departures, sightings });
    const onSilence = (): void => options.seen.silent();
    const { transport } = options.client;
    this.#roll = new ServerRoll({ ...options, transport, timeoutMs: REQUEST_TIMEOUT_MS, onSilence });
  }

  /**
   * Every API server that may live, each of which can be asked: for what must hold on all of them. One look, no wait.
   *
   * @param silenceMs for how long a silence counts, in milliseconds
   * @throws {MissingApiServer} where one that may live cannot be asked, with its name where that is known.
   * @throws {KsvmError} ApiServerMissing where this user cannot find out; NotConverged where they may not be sampled.
   */
  async findAll(silenceMs: number, signal: AbortSignal): Promise<ApiServers> {
    const { endpoints, seen, shutdownDelayMs } = this.#options;
    if (endpoints !== undefined) {
      seen.noticeSuspension();
      await this.#lookBesides(signal);
      await this.#endSilence(endpoints, signal);
      const silent = seen.wereSilentWithin(silenceMs, shutdownDelayMs);
      return { ...(await this.find(signal)), silent, ignored: this.#leases.ignored };
    }
    try {
      await this.#leases.watchIgnored(signal);
      seen.noticeSuspension();
      const found = await this.#look(signal);
      seen.found();
      const silent = seen.wereSilentWithin(silenceMs, shutdownDelayMs);
      return { ...found, silent, ignored: this.#leases.ignored };
    } catch (error) {
      if (error instanceof MissingApiServer) {
        seen.silent();
      }
      throw error;
    }
  }

  /**
   * Looks at the identity Leases once: which API servers leave, or stand still, shows in the looks after it. Where there are none, or this user may not
   * list them, those that a user names are asked. Where no user names any, such a look shows nothing: an API server that has just started denies what it
   * allows a moment later, and one may stand still until then.
   * @throws {ApiError | TransportError}
   */
  async glance(signal: AbortSignal): Promise<void> {
    const { endpoints, seen } = this.#options;
    const leases = (await this.#leases.glance(signal)) ?? [];
    const isShown =
      leases.length > 0 || (endpoints !== undefined && (await this.#addresses.areReachable(endpoints, signal)));
    if (!isShown) {
      seen.silent();
    }
  }

  /**
   * The API servers that live now, as far as they can be found: for what does no harm where one is left out.
   * @throws {KsvmError} NotConverged where one that lives cannot be found, or where they can only be sampled and may not.
   */
  async find(signal: AbortSignal): Promise<ApiServers> {
    const { client, clock, endpoints, retrier, timeoutMs } = this.#options;
    if (endpoints !== undefined) {
      return { mode: "each", clients: endpoints.map((url) => this.#addresses.clientAt(url)) };
    }
    const deadline = clock.monotonic() + timeoutMs;
    // The longer one is missing, the less often it is looked for.
    const pace = new LoopPace({ clock, minMs: 1_000, maxMs: 5_000, freeTurns: 10 });
    for (;;) {
      await pace.turn(signal);
      const leases = await this.#leases.look(signal);
      const urls = await retrier.run(() => endpointUrls(client, signal), signal);
      const found = await this.#findOnce(leases, urls, signal);
      if (found !== undefined) {
        return { ...found, ...identityOf(leases ?? []) };
      }
      this.#reportMissing(leases ?? [], urls, clock.monotonic() >= deadline);
    }
  }

  /** Ends all connections. */
  async close(): Promise<void> {
    await Promise.all([this.#roll.close(), this.#addresses.close()]);
  }

  /**
   * Where a user names the API servers, the identity Leases tell all the same which of them stands still, and has since gone on, and which has left.
   * @throws {MissingApiServer} where one has begun to end
   */
  async #lookBesides(signal: AbortSignal): Promise<void> {
    const { clock, seen } = this.#options;
    try {
      const leases = await this.#leases.glance(AbortSignal.any([signal, clock.timeout(REQUEST_TIMEOUT_MS)]));
      if (seen.areOverdue(leases ?? [])) {
        seen.silent();
      }
    } catch {
      signal.throwIfAborted();
      seen.silent();
    }
    this.#assertNoneEnds();
  }

  /** Those that a user names are asked by nothing else yet: a silence goes on until all of them answer. */
  async #endSilence(endpoints: readonly string[], signal: AbortSignal): Promise<void> {
    const { seen } = this.#options;
    if (seen.isSilenceOver || (await this.#addresses.areReachable(endpoints, signal))) {
      seen.found();
    } else {
      seen.silent();
    }
  }

  async #look(signal: AbortSignal): Promise<ApiServers> {
    const { client, retrier, seen } = this.#options;
    const leases = await this.#leases.watched(signal);
    this.#assertNoneEnds();
    if (seen.areOverdue(leases)) {
      seen.silent();
    }
    const urls = await retrier.run(() => endpointUrls(client, signal), signal);
    const found = await this.#findOnce(leases, urls, signal);
    if (found === undefined) {
      throw new MissingApiServer(describeMissing(leases, `${urls.length} addresses are known (${urls.join(", ")})`));
    }
    const isOneOfSeveral = found.mode === "sampled" && Math.max(leases.length, urls.length) > 1;
    const all = isOneOfSeveral ? await this.#recruit(found, { leases, urls }, signal) : found;
    return { ...all, ...identityOf(leases) };
  }

  /**
   * One that has begun to end and still takes requests cannot be asked by itself: its address is gone. Behind the address of the
   * kubeconfig, or on a connection that was kept, it may even answer in the place of another one. So nothing is asked until it has ended.
   */
  #assertNoneEnds(): void {
    const { clock, seen, shutdownDelayMs = 0 } = this.#options;
    const now = clock.monotonic();
    const ending = shutdownDelayMs === 0 ? undefined : seen.departures.lastWithin(shutdownDelayMs, now);
    if (ending !== undefined) {
      throw endingApiServer({ name: ending.name, leftMsAgo: now - ending.at, shutdownDelayMs });
    }
    if (shutdownDelayMs > 0 && seen.departures.mayHaveMissedWithin(shutdownDelayMs, now)) {
      throw unseenEnding(shutdownDelayMs);
    }
  }

  /**
   * Tells the API servers behind one address apart until there are as many as Leases, and as many as addresses: either may be fewer
   * than there are API servers.
   */
  async #recruit(
    sampled: Extract<ApiServers, { mode: "sampled" }>,
    { leases, urls }: { readonly leases: readonly LiveLease[]; readonly urls: readonly string[] },
    signal: AbortSignal,
  ): Promise<ApiServers> {
    const { clock, seen } = this.#options;
    if (isHttpProxy(sampled.server)) {
      throw behindHttpProxy(leases, sampled.server);
    }
    if (!this.#pace.isDue(leases, clock.monotonic())) {
      throw new MissingApiServer(this.#pace.describe(leases));
    }
    const wanted = Math.max(leases.length, urls.length);
    const { clients, silent } = await this.#roll.call(wanted, signal);
    if (silent) {
      seen.silent();
    }
    if (clients.length < wanted) {
      const known = urls.length > leases.length ? `${urls.length} addresses are known (${urls.join(", ")}), and ` : "";
      this.#pace.failed(leases, clock.monotonic(), `${known}${clients.length} of them answer behind ${sampled.server}`);
      throw new MissingApiServer(this.#pace.describe(leases));
    }
    return { ...sampled, clients };
  }

  async #findOnce(
    leases: readonly LiveLease[] | undefined,
    urls: readonly string[],
    signal: AbortSignal,
  ): Promise<ApiServers | undefined> {
    const allReachable = urls.length >= 2 && (await this.#addresses.areReachable(urls, signal));
    switch (apiServerModeOf({ addresses: urls.length, allReachable, liveLeases: leases?.length })) {
      case "sole":
        return this.#sole(urls, signal);
      case "each":
        return { mode: "each", clients: urls.map((url) => this.#addresses.clientAt(url)) };
      case "missing":
        return undefined;
      case "sampled":
        return this.#sampled(leases);
    }
  }

  /**
   * Behind the address of the kubeconfig one that has begun to end may answer in its place: where that can be, it is asked by itself. One
   * that does not answer there any more is waited for, until none that left before the first look takes requests.
   */
  async #sole(urls: readonly string[], signal: AbortSignal): Promise<ApiServers> {
    const { client, clock, seen, shutdownDelayMs = 0 } = this.#options;
    const [url] = shutdownDelayMs > 0 ? urls : [];
    if (url === undefined) {
      return { mode: "each", clients: [client] };
    }
    const { firstLookAt = clock.monotonic() } = seen.departures;
    const mayOtherAnswer = clock.monotonic() - firstLookAt <= shutdownDelayMs;
    const isAsked =
      (await this.#addresses.areReachable(urls, signal)) || (mayOtherAnswer && this.#addresses.hasAnswered(url));
    return { mode: "each", clients: [isAsked ? this.#addresses.clientAt(url) : client], soleAt: url };
  }

  #sampled(leases: readonly LiveLease[] | undefined): ApiServers {
    const { client, strict } = this.#options;
    const { server } = client.transport;
    if (strict) {
      const found = leases === undefined ? "identity Leases cannot be read" : `${leases.length} identity Leases live`;
      throw new KsvmError(
        "NotConverged",
        `Cannot ask the API servers one by one (--convergence=strict): ${found}, and their addresses cannot be reached; ` +
          "name each with --apiserver-endpoints",
      );
    }
    const timeoutMs = REQUEST_TIMEOUT_MS;
    const open: OpenNew = (onConnect) => new ApiClient(client.transport.another({ timeoutMs, onConnect }));
    return { mode: "sampled", server, open };
  }

  #reportMissing(leases: readonly LiveLease[], urls: readonly string[], isTimeUp: boolean): void {
    const reason = describeMissing(leases, `${urls.length} addresses are known`);
    if (isTimeUp) {
      throw new KsvmError(
        "NotConverged",
        `Cannot find every API server: ${reason}; a Lease outlives a crashed API server by up to an hour: if that is ` +
          "so, name each API server with --apiserver-endpoints",
      );
    }
    this.#options.onLag("the API server of a Lease", reason);
  }
}
