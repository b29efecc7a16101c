import { holderOf, type Lease, LEASE_KIND } from "../../api/lease.ts";
import { isNewer } from "../../api/resource-version.ts";
import type { Clock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { isNotFound } from "../kube/absent.ts";
import { type ApiClient, isConflict } from "../kube/client.ts";
import { LEASES } from "../kube/resources.ts";
import { DONE } from "../retry/deadline.ts";
import { leaderSpecAfter } from "./leader-spec.ts";
import { heldLeaseIn, leasePatch, type Moment, microTime, momentOf } from "./lease-write.ts";

/** Who competes for which Lease, and by which times. */
export interface LeaderElectorOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly namespace: string;
  readonly name: string;
  /** Unique to this process: host name and a random part. */
  readonly identity: string;
  /** Returns a number from 0 up to but not including 1. @default Math.random */
  readonly random?: () => number;
  /** Milliseconds after the last renewal that others saw until they take the Lease over. @default 15000 */
  readonly leaseDurationMs?: number;
  /** Milliseconds after the last renewal until the leader stops. @default 10000 */
  readonly renewDeadlineMs?: number;
  /** Milliseconds between attempts. @default 2000 */
  readonly retryPeriodMs?: number;
  /** Told of every attempt that failed for another reason than that another replica leads. */
  readonly onError?: (error: unknown) => void;
  /** Told of every attempt that did not fail, whichever replica leads. */
  readonly onAnswer?: () => void;
}

/** A waiting replica comes up to this many retry periods later, so that not all try at once. */
const JITTER = 1.2;

/**
 * Leader election by a Lease, by client-go's rules: a candidate takes the Lease over once it has seen no change of it for
 * its whole duration on its own monotonic clock, and the leader stops well before that where it cannot renew. It is
 * stricter than client-go in two points: a leader that sees another holder stops at once, and the Lease is given up only
 * when the leader's work has ended, not when it is told to end.
 *
 * https://github.com/kubernetes/client-go/blob/v0.36.0/tools/leaderelection/leaderelection.go
 */
export class LeaderElector {
  readonly #options: LeaderElectorOptions;
  readonly #leaseDurationMs: number;
  readonly #renewDeadlineMs: number;
  readonly #retryPeriodMs: number;
  /** The Lease as it was last seen, and since when nothing in it has changed. */
  #observed: { readonly lease: Lease; readonly at: number } | undefined;
  /** When a renewal was last sent that arrived, on both clocks: a machine that sleeps stops the monotonic one. */
  #confirmed: Moment | undefined;

  #replaced: string | undefined;

  constructor(options: LeaderElectorOptions) {
    this.#options = options;
    this.#leaseDurationMs = options.leaseDurationMs ?? 15_000;
    this.#renewDeadlineMs = options.renewDeadlineMs ?? 10_000;
    this.#retryPeriodMs = options.retryPeriodMs ?? 2_000;
  }

  /** `namespace/name` of the Lease. */
  get key(): string {
    return `${this.#options.namespace}/${this.#options.name}`;
  }

  /** Who held the Lease before this replica led: it did not renew it any more. `undefined` where that was not watched. */
  get replaced(): string | undefined {
    return this.#replaced;
  }

  /** Whether the Lease was confirmed so lately that no other replica can hold it yet. */
  get isLeading(): boolean {
    return this.#confirmed !== undefined && this.#remainingMs() > 0;
  }

  /**
   * To be called before every write of a leader.
   * @throws {KsvmError} OwnershipLost unless {@link isLeading}.
   */
  assertLeading(): void {
    if (!this.isLeading) {
      throw this.#lostError();
    }
  }

  /**
   * Competes for the Lease until the signal is aborted, and leads whenever it holds it. The signal that `lead` gets is
   * aborted when leadership is lost, before another replica can hold it, or when `signal` is; only after `lead` has ended is
   * the Lease given up, or competed for again.
   *
   * @param onChange told when leadership begins, and when it is lost or its work has ended
   * @throws whatever `lead` throws while it leads.
   */
  async run(
    signal: AbortSignal,
    lead: (signal: AbortSignal) => Promise<void>,
    onChange?: (isLeading: boolean) => void,
  ): Promise<void> {
    while (await this.#acquire(signal)) {
      await this.#leadOnce(signal, lead, onChange);
    }
  }

  /** @returns `false` where the signal was aborted first */
  async #acquire(signal: AbortSignal): Promise<boolean> {
    const { clock, random = Math.random } = this.#options;
    // Whom it replaced earlier may have led since, and may still do.
    this.#replaced = undefined;
    while (!signal.aborted) {
      if (await this.#attempt(signal, this.#renewDeadlineMs)) {
        return true;
      }
      await clock.sleep(this.#retryPeriodMs * (1 + random() * JITTER), signal).catch(() => undefined);
    }
    return false;
  }

  async #leadOnce(
    signal: AbortSignal,
    lead: (signal: AbortSignal) => Promise<void>,
    onChange: ((isLeading: boolean) => void) | undefined,
  ): Promise<void> {
    const lost = new AbortController();
    const ended = new AbortController();
    const renewing = this.#renewUntil(ended.signal, lost);
    onChange?.(true);
    // Told when it is lost, not when the work has ended: cleaning up may take long where no API server answers.
    lost.signal.addEventListener("abort", () => onChange?.(false), { once: true });
    try {
      await lead(AbortSignal.any([signal, lost.signal]));
    } catch (error) {
      if (!signal.aborted && !lost.signal.aborted) {
        throw error;
      }
    } finally {
      ended.abort();
      await renewing;
      if (!lost.signal.aborted) {
        onChange?.(false);
      }
      await this.#release(lost.signal.aborted);
    }
  }

  /** Renews until `ended`; where that does not work in time, aborts `lost`. */
  async #renewUntil(ended: AbortSignal, lost: AbortController): Promise<void> {
    const { clock } = this.#options;
    while (!ended.aborted) {
      await clock.sleep(Math.min(this.#retryPeriodMs, this.#remainingMs()), ended).catch(() => undefined);
      if (ended.aborted) {
        return;
      }
      const remainingMs = this.#remainingMs();
      if (remainingMs > 0) {
        await this.#attempt(ended, remainingMs);
      }
      if (!ended.aborted && (this.#isHeldByAnother() || !this.isLeading)) {
        this.#confirmed = undefined;
        lost.abort(this.#lostError());
        return;
      }
    }
  }

  #remainingMs(): number {
    const { clock } = this.#options;
    const { monotonic, now } = this.#confirmed ?? { monotonic: 0, now: 0 };
    const ageMs = Math.max(clock.monotonic() - monotonic, clock.now() - now);
    return Math.max(0, this.#renewDeadlineMs - ageMs);
  }

  #isHeldByAnother(): boolean {
    const holder = holderOf(this.#observed?.lease);
    return this.#observed !== undefined && holder !== this.#options.identity;
  }

  /** One attempt to acquire or renew, given up after `timeoutMs`. @returns whether the Lease is ours now */
  async #attempt(signal: AbortSignal, timeoutMs: number): Promise<boolean> {
    const { clock, onAnswer, onError } = this.#options;
    const timeUp = new AbortController();
    const done = new AbortController();
    const timer = clock.sleep(timeoutMs, done.signal).then(
      () => timeUp.abort(new KsvmError("ServerUnreachable", `Cannot renew Lease "${this.key}" in time`)),
      () => undefined,
    );
    try {
      const isOurs = await this.#acquireOrRenew(AbortSignal.any([signal, timeUp.signal]));
      onAnswer?.();
      return isOurs;
    } catch (error) {
      if (!signal.aborted) {
        onError?.(error);
      }
      return false;
    } finally {
      done.abort(DONE);
      await timer;
    }
  }

  async #acquireOrRenew(signal: AbortSignal): Promise<boolean> {
    const { client, identity, name, namespace } = this.#options;
    if (this.isLeading && this.#observed !== undefined && (await this.#write(this.#observed.lease, signal))) {
      return true;
    }
    const found = await client.find<Lease>(LEASES, { namespace, name }, { signal });
    if (this.isLeading && this.#hasGoneBack(found)) {
      this.#confirmed = undefined;
      throw this.#lostError(": another client deleted it, or etcd was restored from a backup");
    }
    if (found === undefined) {
      return this.#write(undefined, signal);
    }
    this.#observe(found);
    const holder = holderOf(found);
    return (holder === "" || holder === identity || this.#isExpired()) && this.#write(found, signal);
  }

  /** A read is never stale. All that this replica knows of the cluster may be of a past that a restore of etcd has undone: a leader starts again. */
  #hasGoneBack(found: Lease | undefined): boolean {
    const before = this.#observed?.lease.metadata;
    const now = found?.metadata;
    return before !== undefined && (now?.uid !== before.uid || isNewer(before.resourceVersion, now.resourceVersion));
  }

  #observe(lease: Lease): void {
    const { clock } = this.#options;
    const isSame = JSON.stringify(lease.spec) === JSON.stringify(this.#observed?.lease.spec);
    this.#observed = { lease, at: isSame && this.#observed !== undefined ? this.#observed.at : clock.monotonic() };
  }

  #isExpired(): boolean {
    if (this.#observed === undefined) {
      return false;
    }
    const { lease, at } = this.#observed;
    const durationMs = (lease.spec?.leaseDurationSeconds ?? this.#leaseDurationMs / 1_000) * 1_000;
    return this.#options.clock.monotonic() - at >= durationMs;
  }

  /** `false` if another client wrote it since `before` was read, or created it. */
  async #write(before: Lease | undefined, signal: AbortSignal): Promise<boolean> {
    const { client, clock, identity, name, namespace } = this.#options;
    const sentAt = momentOf(clock);
    const renewal = { identity, leaseDurationMs: this.#leaseDurationMs, renewTime: microTime(clock) };
    const spec = leaderSpecAfter(before?.spec, renewal);
    try {
      const written =
        before === undefined
          ? await client.create<Lease>(LEASES, { ...LEASE_KIND, metadata: { namespace, name }, spec }, { signal })
          : await client.patch<Lease>(LEASES, { namespace, name }, leasePatch(before, { spec }), { signal });
      this.#confirm(before, heldLeaseIn(written, name, identity), sentAt);
      return true;
    } catch (error) {
      if (isConflict(error) || isNotFound(error)) {
        return false;
      }
      throw error;
    }
  }

  #confirm(before: Lease | undefined, lease: Lease, sentAt: Moment): void {
    const holder = holderOf(before);
    if (holder !== "" && holder !== this.#options.identity) {
      this.#replaced = holder;
    }
    this.#observe(lease);
    this.#confirmed = sentAt;
  }

  /** Lets others have it at once. Not worth waiting for: it expires by itself. */
  async #release(wasLost: boolean): Promise<void> {
    const { client, clock, name, namespace, onError } = this.#options;
    const wasLeading = this.isLeading;
    this.#confirmed = undefined;
    if (wasLost || !wasLeading || this.#observed === undefined) {
      return;
    }
    const { lease } = this.#observed;
    const now = microTime(clock);
    const spec = { holderIdentity: "", leaseDurationSeconds: 1, acquireTime: now, renewTime: now };
    const signal = clock.timeout(this.#renewDeadlineMs);
    try {
      this.#observe(await client.patch<Lease>(LEASES, { namespace, name }, leasePatch(lease, { spec }), { signal }));
    } catch (error) {
      if (!isConflict(error) && !isNotFound(error)) {
        onError?.(error);
      }
    }
  }

  #lostError(why = ""): KsvmError {
    return new KsvmError("OwnershipLost", `Cannot continue: this replica no longer holds Lease "${this.key}"${why}`);
  }
}
