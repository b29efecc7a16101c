import { type Clock, wallOffsetOf } from "../../clock.ts";
import { PendingRequests } from "../kube/pending-requests.ts";
import type { RequestObserver } from "../kube/transport-options.ts";
import { type AskOptions, SLOW_ANSWER_MS } from "./ask-all.ts";
import type { IdentityLease, LiveLease } from "./control-plane-objects.ts";
import { Departures } from "./departures.ts";
import { LeaseSightings } from "./lease-sightings.ts";
import { isOverdue, OVERDUE_MS } from "./missing-api-server.ts";
import { ServerArrivals } from "./server-arrivals.ts";
import { SettledChanges } from "./settled-changes.ts";

/** That an API server was behind: each time that this is seen is another one. */
type Lag = object;

/** An identity Lease as a look shows it, and the process that holds it. */
type SeenLease = LiveLease & Partial<Pick<IdentityLease, "holder">>;

/** What looks show of an identity Lease. */
interface Renewal {
  readonly renewTime: string | undefined;
  readonly holder: string | undefined;
  /** When the first look showed it, on the monotonic clock. */
  readonly seenAt: number;
  /** Whether the last one should have shown another. */
  readonly isOverdue: boolean;
}

/**
 * What a process saw of the API servers of its cluster. There is one for a whole process, made where it starts, since a run
 * that begins after machines were suspended cannot see that by itself: the identity Leases are renewed again within seconds,
 * and by the clocks the storage change is long past.
 */
export class SeenServers {
  readonly sightings = new LeaseSightings();
  readonly departures = new Departures();
  readonly arrivals: ServerArrivals;
  readonly settled = new SettledChanges();
  /** Told where an API server has joined, also in the place of one that left. @default nobody is */
  onJoin: (() => void) | undefined;
  readonly #clock: Clock;
  /** When one was last silent or missing, or may have stood still, on the monotonic clock. */
  #silentAt = Number.NEGATIVE_INFINITY;
  /** Whether all of them have answered since: until then a silence may go on. */
  #isSilenceOver = true;
  /** The resources of which one was behind, with no wait for late writes since that came to its end. */
  readonly #lagging = new Map<string, Lag>();
  /** The resources with which one was behind, and nobody saw since that all of them have followed; when that was last seen, on the monotonic clock. */
  readonly #behind = new Map<string, number>();
  /** When it was last seen that they have, on the monotonic clock. */
  #followedAt = Number.NEGATIVE_INFINITY;
  /** The last renewal of each identity Lease. */
  #renewals: ReadonlyMap<string, Renewal> = new Map();
  /** The identity Leases of those that a user took for gone, and that live. */
  readonly #alive = new Set<string>();
  /** What `wallOffsetOf()` said when it was last looked at, whichever run did: it jumps where this machine was suspended. */
  #wallOffset: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.arrivals = new ServerArrivals(clock, this.departures, () => this.onJoin?.());
    this.#wallOffset = wallOffsetOf(clock);
  }

  /** For a transport: takes each read that is not answered within five seconds for a silence. A write may wait for a webhook of others. */
  readonly observer: RequestObserver = (method, _status, seconds) => this.#waited(method === "GET", seconds * 1_000);

  /** Requests that are under way, of a client whose reads are looked at in the same way. */
  pending(): PendingRequests {
    return new PendingRequests(this.#clock, (what, ms) => this.#waited(what.startsWith("GET "), ms));
  }

  #waited(isRead: boolean, ms: number): void {
    if (isRead && ms > SLOW_ANSWER_MS) {
      this.silent();
    }
  }

  /**
   * Takes one look at the identity Leases, of those that count as expired, too. One that was overdue and is renewed tells of an API server that stood
   * still until then; one that never is, of none. It is overdue by its stamp, or where looks showed the same renewal for as long: its clock may be
   * ahead, or that of the API server that answers behind.
   */
  looked(leases: readonly SeenLease[]): void {
    const now = this.#clock.monotonic();
    const before = this.#renewals;
    this.#renewals = new Map(leases.map((lease) => [keyOf(lease), renewalOf(lease, before.get(keyOf(lease)), now)]));
    const isRenewed = ([key, { renewTime }]: readonly [string, Renewal]): boolean => {
      const was = before.get(key);
      return was?.isOverdue === true && was.renewTime !== renewTime;
    };
    if ([...this.#renewals].some(isRenewed)) {
      this.silent();
    }
    if (before.size > 0 && leases.some((lease) => before.get(keyOf(lease))?.holder !== lease.holder)) {
      this.onJoin?.();
    }
  }

  /**
   * Notes that one lives which a user takes for gone. It may have stood still until now, also where its Lease does not look overdue: once, since the
   * looks that follow tell of the next time.
   */
  livesAfterAll(lease: LiveLease): void {
    if (!this.#alive.has(keyOf(lease))) {
      this.#alive.add(keyOf(lease));
      this.silent();
    }
  }

  /** Whether one of these Leases was overdue at the last look. */
  areOverdue(leases: readonly LiveLease[]): boolean {
    return leases.some((lease) => isOverdue(lease) || this.#renewals.get(keyOf(lease))?.isOverdue === true);
  }

  /** Notes that one is silent or missing now. */
  silent(): void {
    this.#silentAt = this.#clock.monotonic();
    this.#isSilenceOver = false;
  }

  /** Notes that this process goes on where another one was: what that one saw of API servers is lost, those that left included. */
  tookOver(): void {
    this.silent();
    this.departures.missed(this.#clock.monotonic());
  }

  /** Whether all of them were found since the last silence. */
  get isSilenceOver(): boolean {
    return this.#isSilenceOver;
  }

  /** Notes that all of them were found. A silence that nobody saw the end of may have lasted until now. */
  found(): void {
    if (!this.#isSilenceOver) {
      this.silent();
      this.#isSilenceOver = true;
    }
  }

  /**
   * Callbacks for `askAll()`, which remember the API servers that are silent or behind, even if `askAll()` throws. An API server that is behind
   * may write an older version, so the next run of the resource waits for late writes, even if the API server has followed by then. One that is
   * behind a CRD has a watch that is behind, which is that of all CRDs.
   * @param resource `plural.group`
   */
  noting(resource: string): Required<Pick<AskOptions, "onSilence" | "onLag">> {
    return { onSilence: () => this.silent(), onLag: () => this.#lagged(resource) };
  }

  #lagged(resource: string): void {
    this.#lagging.set(resource, {});
    this.#behind.set(resource, this.#clock.monotonic());
  }

  /**
   * Notes that all of them show what there is of a resource.
   * @param resource `plural.group`
   * @param since where that shows a change of its CRD, which came after this time of the monotonic clock: their watches of CRDs have seen all that
   *   was seen of others until then. One that was behind later may have been so with a later change.
   */
  followed(resource: string, since = Number.NEGATIVE_INFINITY): void {
    const followed = [...this.#behind].filter(([name, at]) => name === resource || at <= since);
    for (const [name] of followed) {
      this.#behind.delete(name);
      this.#followedAt = this.#clock.monotonic();
    }
  }

  /** The last time that one was behind, where late writes have not been waited for since. */
  lagOf(resource: string): Lag | undefined {
    return this.#lagging.get(resource);
  }

  /**
   * Notes that late writes of a resource were waited for, to the end, while none was behind.
   * @param lag what {@link lagOf} said when the wait began: another run may have seen a later one in the meantime
   */
  settledFor(resource: string, lag: Lag | undefined): void {
    if (this.#lagging.get(resource) === lag) {
      this.#lagging.delete(resource);
    }
  }

  /**
   * Machines that are suspended together make a change look old, and a write that was under way on them has as much left to
   * go as before: its timeout runs on the monotonic clock. That counts as a silence, as an overdue identity Lease does. A
   * suspension between two runs counts from when the later one notices it.
   */
  noticeSuspension(): void {
    const offset = wallOffsetOf(this.#clock);
    if (Math.abs(offset - this.#wallOffset) > SLOW_ANSWER_MS) {
      this.silent();
    }
    this.#wallOffset = offset;
  }

  /**
   * Whether one was silent or missing within the last `ms` milliseconds, behind with any resource, or left: it may have been silent, or behind,
   * when that was not looked at.
   * @param shutdownDelayMs for how long one that leaves takes requests, in milliseconds
   */
  wereSilentWithin(ms: number, shutdownDelayMs = 0): boolean {
    const now = this.#clock.monotonic();
    const wasBehind = this.#behind.size > 0 || now - this.#followedAt <= ms;
    const leftMs = ms + shutdownDelayMs;
    const hasLeft =
      this.departures.lastWithin(leftMs, now) !== undefined || this.departures.mayHaveMissedWithin(leftMs, now);
    return wasBehind || hasLeft || now - this.#silentAt <= ms;
  }

  /**
   * Whether one may still write an old version of a resource, as far as this process saw: also where a silence goes on, or an identity Lease is overdue
   * by now, or where machines were suspended since the last look. Another process, which begins once that one has gone on, sees nothing of it.
   */
  mayLateWriteCome(resource: string, ms: number, shutdownDelayMs?: number): boolean {
    this.noticeSuspension();
    const isOneOverdue = [...this.#renewals.values()].some(({ isOverdue: isLate }) => isLate);
    const maySilenceGoOn = isOneOverdue || !this.#isSilenceOver;
    return maySilenceGoOn || this.#lagging.has(resource) || this.wereSilentWithin(ms, shutdownDelayMs);
  }
}

function renewalOf(lease: SeenLease, before: Renewal | undefined, now: number): Renewal {
  const { holder, renewTime } = lease;
  const seenAt = before !== undefined && before.renewTime === renewTime ? before.seenAt : now;
  return { renewTime, holder, seenAt, isOverdue: isOverdue(lease) || now - seenAt > OVERDUE_MS };
}

function keyOf({ name, uid }: LiveLease): string {
  return `${name}@${uid}`;
}
