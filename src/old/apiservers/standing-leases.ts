import type { Clock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { identityLeases, type LiveLease } from "./control-plane-objects.ts";
import type { Departures } from "./departures.ts";
import { IgnoredServers } from "./ignored-servers.ts";
import type { LeaseSightings } from "./lease-sightings.ts";
import { describeLease, MissingApiServer } from "./missing-api-server.ts";
import { DENIAL_PATIENCE_MS } from "../retry/patience.ts";
import type { Retrier } from "../retry/retrier.ts";
import type { SeenServers } from "./seen-servers.ts";

/** What {@link StandingLeases} need. */
export interface StandingLeasesOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  /** As of an `ApiServerFinder`. */
  readonly ignored?: readonly string[] | undefined;
  /** What this process saw of them. */
  readonly sightings: LeaseSightings;
  /** Both are told of each look. */
  readonly departures: Departures;
  readonly seen: Pick<SeenServers, "looked" | "livesAfterAll">;
  /** Told which Lease is looked at, and why. */
  readonly onLag: (server: string, reason: string) => void;
}

const POLL_MS = 1_000;
/**
 * An API server renews its identity Lease every 10 s, and up to half a second later.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/controlplane/apiserver/server.go
 */
const WATCH_IGNORED_MS = 15_000;
/**
 * A Lease whose time is over is watched for 30 s. Another one may begin to need that in this time; a freeze may be held, so this
 * is where a call ends all the same, in milliseconds.
 */
const WATCH_MS = 45_000;

const NONE_LIVES = "no identity Lease in kube-system lives";

/** The identity Leases that may live, without those that are to be ignored. */
export class StandingLeases {
  readonly #options: StandingLeasesOptions;
  readonly #ignored: IgnoredServers;
  readonly #sightings: LeaseSightings;
  /** When the first look was answered, on the monotonic clock. */
  #lookedAt: number | undefined;

  constructor(options: StandingLeasesOptions) {
    this.#options = options;
    this.#sightings = options.sightings;
    const { ignored = [], onLag, seen } = options;
    this.#ignored = new IgnoredServers({ names: ignored, onLag, onAlive: (lease) => seen.livesAfterAll(lease) });
  }

  /** The names of those that are ignored. */
  get ignored(): readonly string[] {
    return this.#ignored.names;
  }

  /**
   * One look, those that must still be watched included; `undefined` where this user may not list them.
   * @throws {ApiError | TransportError} after the retries of a run.
   */
  look(signal: AbortSignal): Promise<readonly LiveLease[] | undefined> {
    return this.#options.retrier.run(() => this.glance(signal), signal);
  }

  /** The same by one request. @throws {ApiError | TransportError} */
  async glance(signal: AbortSignal): Promise<readonly LiveLease[] | undefined> {
    const { client, clock, departures, seen } = this.#options;
    const askedAt = clock.monotonic();
    const leases = await identityLeases(client, clock, signal);
    if (leases === undefined) {
      return undefined;
    }
    const answeredAt = clock.monotonic();
    const standing = this.#ignored.without(this.#sightings.standing({ leases, askedAt, answeredAt }), leases);
    this.#lookedAt ??= answeredAt;
    departures.looked(leases, standing, answeredAt);
    seen.looked(leases);
    return standing;
  }

  /**
   * Those that live. One whose time is over by every clock is watched until it was renewed after all, or stood still for long
   * enough to count as expired.
   * @throws {MissingApiServer} where that takes too long, as where the Lease is deleted and created again and again: what was
   * seen counts for the next call, which may come without a freeze.
   * @throws {KsvmError} ApiServerMissing where this user may not list them, and where none lives or did before: how many API servers do is
   *   not known then.
   */
  async watched(signal: AbortSignal): Promise<readonly LiveLease[]> {
    const { clock } = this.#options;
    const deadline = clock.monotonic() + WATCH_MS;
    /** The uid of each that is watched, by its name. */
    const told = new Map<string, string>();
    for (;;) {
      const leases = await this.#permitted(signal);
      const over = leases.filter(({ watchMs = 0 }) => watchMs > 0);
      if (over.length === 0) {
        return leases;
      }
      const leftMs = deadline - clock.monotonic();
      const again = over.find(({ name, uid }) => told.has(name) && told.get(name) !== uid);
      if (again !== undefined || leftMs <= 0) {
        throw new MissingApiServer(describeUnsettled(over, again));
      }
      for (const lease of over.filter(({ name }) => !told.has(name))) {
        told.set(lease.name, lease.uid);
        this.#tell(lease);
      }
      await clock.sleep(Math.min(leftMs, Math.max(...over.map(({ watchMs = 0 }) => watchMs))), signal);
    }
  }

  /**
   * An API server that lives renews its identity Lease within this time. So one that is to be ignored and lives is noticed
   * before anything rests on its absence, however short the run is; later looks compare with the first one.
   */
  async watchIgnored(signal: AbortSignal): Promise<void> {
    const { clock, onLag } = this.#options;
    if (this.#lookedAt === undefined) {
      await this.look(signal);
    }
    // The first look may have been a glance, a moment ago.
    const leftMs = (this.#lookedAt ?? clock.monotonic()) + WATCH_IGNORED_MS - clock.monotonic();
    const live = leftMs > 0 ? this.#ignored.live : [];
    for (const name of live) {
      const seconds = Math.ceil(leftMs / 1_000);
      onLag(name, `it is to be ignored; looking for ${seconds} s whether its API server renews its identity Lease`);
    }
    if (live.length > 0) {
      await clock.sleep(leftMs, signal);
    }
  }

  /**
   * An API server that just started knows no roles yet, and has no Lease of its own, so a refusal has to last, and so has an empty list.
   */
  async #permitted(signal: AbortSignal): Promise<readonly LiveLease[]> {
    const { clock } = this.#options;
    const deadline = clock.monotonic() + DENIAL_PATIENCE_MS;
    for (;;) {
      const leases = await this.look(signal);
      if (leases !== undefined && leases.length > 0) {
        return leases;
      }
      if (clock.monotonic() >= deadline) {
        throw this.#noneShown(leases !== undefined);
      }
      await clock.sleep(POLL_MS, signal);
    }
  }

  /** Where one lived before, the next one comes: the only API server restarts, and takes requests on the way. */
  #noneShown(mayList: boolean): KsvmError {
    const { clock, departures } = this.#options;
    const { last } = departures;
    if (mayList && last !== undefined) {
      const ago = `${Math.round((clock.monotonic() - last.at) / 1_000)} s ago`;
      const text = `${NONE_LIVES}: the API server of ${last.name} was the last one, and was found gone ${ago}`;
      return new MissingApiServer(text, "wait, or name each API server with --apiserver-endpoints");
    }
    const why = mayList
      ? `${NONE_LIVES}, as where the feature gate APIServerIdentity is off;`
      : "this user may not list the identity Leases in kube-system; grant list on leases there, or";
    const text = `Cannot tell which API servers live: ${why} name each API server with --apiserver-endpoints`;
    return new KsvmError("ApiServerMissing", text);
  }

  #tell(lease: LiveLease): void {
    const seconds = Math.round((lease.watchMs ?? 0) / 1_000);
    const reason = `its identity Lease seems to have expired; looking for ${seconds} s whether it is renewed`;
    this.#options.onLag(`API server ${describeLease(lease)}`, reason);
  }
}

/** Why it cannot be told whether API servers live, in words. */
function describeUnsettled(over: readonly LiveLease[], again: LiveLease | undefined): string {
  return again === undefined
    ? `it cannot be told yet whether ${over.map(describeLease).join(", ")} live: their identity Leases seem to have expired`
    : `the identity Lease ${describeLease(again)} seems to have expired, and was created again while it was watched: its API ` +
        "server may restart again and again, with a clock that is behind";
}
