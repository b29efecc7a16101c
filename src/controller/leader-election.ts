import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { ApiError, whose } from "../kube/errors.ts";
import { isLater, type Lease, LEASES } from "../kube/objects.ts";

/** Who competes for which Lease. */
export interface LeaderElectorOptions {
  readonly client: Client;
  /** What it waits by. */
  readonly clock: Clock;
  readonly namespace: string;
  readonly name: string;
  /** Unique to this process: host name and a random part. */
  readonly identity: string;
  /** Told of every attempt that failed for another reason than that another replica leads. */
  readonly onError: (error: unknown) => void;
  /** Told of every attempt that did not fail, whichever replica leads. */
  readonly onAnswer: () => void;
}

/** client-go's defaults: others take the Lease over after so long, and well before that the leader stops. */
const DURATION_MS = 15_000;
const RENEW_DEADLINE_MS = 10_000;
const RETRY_MS = 2_000;
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
  /** `namespace/name` of the Lease. */
  readonly key: string;
  readonly #options: LeaderElectorOptions;
  readonly #collection: string;
  readonly #path: string;
  /** The Lease as it was last seen, and since when nothing in it has changed. */
  #observed: { readonly lease: Lease; readonly at: number } | undefined;
  /** When a renewal was last sent that arrived, on both clocks: a machine that sleeps stops the monotonic one. */
  #confirmed: { readonly monotonic: number; readonly now: number } | undefined;

  constructor(options: LeaderElectorOptions) {
    const { name, namespace } = options;
    this.#options = options;
    this.key = `${namespace}/${name}`;
    this.#collection = `${LEASES}/${namespace}/leases`;
    this.#path = `${this.#collection}/${name}`;
  }

  /**
   * To be called before every write of a leader.
   * @throws {KsvmError} OwnershipLost unless the Lease was confirmed so lately that no other replica can hold it yet
   */
  assertLeading(): void {
    if (!this.#isLeading) throw this.#lostError();
  }

  /**
   * Competes for the Lease until the signal is aborted, and leads whenever it holds it. The signal that `lead` gets is
   * aborted when leadership is lost, before another replica can hold it, or when `signal` is. Only after `lead` has ended
   * is the Lease given up, or competed for again.
   *
   * @param onChange told when leadership begins, and when it is lost or its work has ended
   * @throws whatever `lead` throws while it leads
   */
  async run(
    signal: AbortSignal,
    lead: (signal: AbortSignal) => Promise<void>,
    onChange: (isLeading: boolean) => void,
  ): Promise<void> {
    const { client, clock } = this.#options;
    while (!signal.aborted) {
      if (await this.#attempt(signal, RENEW_DEADLINE_MS)) await this.#leadOnce(signal, lead, onChange);
      else await clock.sleep(RETRY_MS * (1 + client.random() * JITTER), signal).catch(() => undefined);
    }
  }

  async #leadOnce(
    signal: AbortSignal,
    lead: (signal: AbortSignal) => Promise<void>,
    onChange: (isLeading: boolean) => void,
  ): Promise<void> {
    const lost = new AbortController();
    const ended = new AbortController();
    const renewing = this.#renewUntil(ended.signal, lost);
    onChange(true);
    // Told when it is lost, not when the work has ended: cleaning up may take long where no API server answers.
    lost.signal.addEventListener("abort", () => onChange(false), { once: true });
    try {
      await lead(AbortSignal.any([signal, lost.signal]));
    } catch (error) {
      if (!signal.aborted && !lost.signal.aborted) throw error;
    } finally {
      ended.abort();
      await renewing;
      if (!lost.signal.aborted) onChange(false);
      await this.#release(lost.signal.aborted);
    }
  }

  /** Renews until `ended`. Where that does not work in time, aborts `lost`. */
  async #renewUntil(ended: AbortSignal, lost: AbortController): Promise<void> {
    const { clock, identity } = this.#options;
    while (!ended.aborted) {
      await clock.sleep(Math.min(RETRY_MS, this.#remainingMs()), ended).catch(() => undefined);
      if (ended.aborted) return;
      const remainingMs = this.#remainingMs();
      if (remainingMs > 0) await this.#attempt(ended, remainingMs);
      const isHeldByAnother = this.#observed?.lease.spec?.holderIdentity !== identity;
      if (!ended.aborted && (isHeldByAnother || !this.#isLeading)) {
        this.#confirmed = undefined;
        lost.abort(this.#lostError());
        return;
      }
    }
  }

  get #isLeading(): boolean {
    return this.#confirmed !== undefined && this.#remainingMs() > 0;
  }

  #remainingMs(): number {
    const { clock } = this.#options;
    const { monotonic, now } = this.#confirmed ?? { monotonic: 0, now: 0 };
    // A monotonic clock may stand still while the machine sleeps, and a wall clock may be set back: the later one counts.
    return Math.max(0, RENEW_DEADLINE_MS - Math.max(clock.monotonic() - monotonic, clock.now() - now));
  }

  /** One attempt to acquire or renew, given up after `timeoutMs`. @returns whether the Lease is ours now */
  async #attempt(signal: AbortSignal, timeoutMs: number): Promise<boolean> {
    const { clock, onAnswer, onError } = this.#options;
    const timeUp = clock.timeout(timeoutMs);
    try {
      const isOurs = await this.#acquireOrRenew(AbortSignal.any([signal, timeUp]));
      onAnswer();
      return isOurs;
    } catch (error) {
      const late = new KsvmError("ServerUnreachable", `Cannot renew Lease "${this.key}" in time`);
      if (!signal.aborted) onError(timeUp.aborted ? late : error);
      return false;
    }
  }

  async #acquireOrRenew(signal: AbortSignal): Promise<boolean> {
    const { client, identity } = this.#options;

    // 1. Renew what was held a moment ago, without a read.
    if (this.#isLeading && this.#observed !== undefined && (await this.#write(this.#observed.lease, signal)))
      return true;

    // 2. Read it. All that a leader knows of the cluster may be of a past that a restore of etcd has undone.
    const found = await client.find<Lease>(this.#path, { signal });
    if (this.#isLeading && this.#hasGoneBack(found)) {
      this.#confirmed = undefined;
      throw this.#lostError(": another client deleted it, or etcd was restored from a backup");
    }
    if (found === undefined) return this.#write(undefined, signal);

    // 3. Check who holds it, and for how long it has not been renewed.
    this.#observe(found);
    const holder = found.spec?.holderIdentity ?? "";
    const isFree = holder === "" || holder === identity || this.#isExpired();

    // 4. Take it.
    return isFree && this.#write(found, signal);
  }

  /** A read is never stale. */
  #hasGoneBack(found: Lease | undefined): boolean {
    const before = this.#observed?.lease.metadata;
    const now = found?.metadata;
    return before !== undefined && (now?.uid !== before.uid || isLater(before.resourceVersion, now.resourceVersion));
  }

  #observe(lease: Lease): void {
    const before = this.#observed;
    const isSame = JSON.stringify(lease.spec) === JSON.stringify(before?.lease.spec);
    const at = isSame && before !== undefined ? before.at : this.#options.clock.monotonic();
    this.#observed = { lease, at };
  }

  #isExpired(): boolean {
    if (this.#observed === undefined) return false;
    const { at, lease } = this.#observed;
    const durationMs = (lease.spec?.leaseDurationSeconds ?? DURATION_MS / 1_000) * 1_000;
    return this.#options.clock.monotonic() - at >= durationMs;
  }

  /** `false` if another client wrote it since `before` was read, or created it. */
  async #write(before: Lease | undefined, signal: AbortSignal): Promise<boolean> {
    const { clock, identity } = this.#options;
    const sentAt = { monotonic: clock.monotonic(), now: clock.now() };
    const renewTime = microTime(clock);
    const { acquireTime = renewTime, holderIdentity = identity, leaseTransitions = 0 } = before?.spec ?? {};
    const isOurs = holderIdentity === identity;
    const lease = await this.#send(before, signal, {
      holderIdentity: identity,
      leaseDurationSeconds: DURATION_MS / 1_000,
      acquireTime: isOurs ? acquireTime : renewTime,
      renewTime,
      leaseTransitions: isOurs ? leaseTransitions : leaseTransitions + 1,
    });
    if (lease === undefined) return false;
    const holder = lease.spec?.holderIdentity ?? "";
    if (holder !== identity) {
      throw new ApiError(`write Lease "${this.key}"`, 0, `the answer shows "${holder}" as its holder`);
    }
    this.#observe(lease);
    this.#confirmed = sentAt;
    return true;
  }

  /** A write that arrives only if no other client wrote the Lease since it was read. @returns `undefined` where one did */
  async #send(before: Lease | undefined, signal: AbortSignal, spec: object): Promise<Lease | undefined> {
    const { client, name, namespace } = this.#options;
    const { resourceVersion, uid } = before?.metadata ?? {};
    const created = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: { name, namespace }, spec };
    try {
      return before === undefined
        ? await client.create<Lease>(this.#collection, created, { signal })
        : await client.patch<Lease>(this.#path, { metadata: { uid, resourceVersion }, spec }, { signal });
    } catch (error) {
      const kind = whose(error);
      if (kind === "conflict" || (kind === "gone" && before !== undefined)) return undefined;
      throw error;
    }
  }

  /** Lets others have it at once. Not worth waiting for: it expires by itself. */
  async #release(wasLost: boolean): Promise<void> {
    const { clock, onError } = this.#options;
    const wasLeading = this.#isLeading;
    this.#confirmed = undefined;
    if (wasLost || !wasLeading || this.#observed === undefined) return;
    const now = microTime(clock);
    const spec = { holderIdentity: "", leaseDurationSeconds: 1, acquireTime: now, renewTime: now };
    try {
      const lease = await this.#send(this.#observed.lease, clock.timeout(RENEW_DEADLINE_MS), spec);
      if (lease !== undefined) this.#observe(lease);
    } catch (error) {
      onError(error);
    }
  }

  #lostError(why = ""): KsvmError {
    return new KsvmError("OwnershipLost", `Cannot continue: this replica no longer holds Lease "${this.key}"${why}`);
  }
}

/** `metav1.MicroTime` has six digits. */
function microTime(clock: Clock): string {
  return new Date(clock.now()).toISOString().replace("Z", "000Z");
}
