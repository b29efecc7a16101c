import { holderOf, type Lease } from "../../api/lease.ts";
import type { ObjectMeta } from "../../api/meta.ts";
import { isNewer } from "../../api/resource-version.ts";
import { KsvmError } from "../../errors.ts";
import { isNotFound } from "../kube/absent.ts";
import { isConflict } from "../kube/client.ts";
import { TransportError } from "../kube/errors.ts";
import { mayBeDone } from "../kube/failure.ts";
import { LEASES } from "../kube/resources.ts";
import { withDeadline } from "../retry/deadline.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import { acquireLease, type AnnotationsFor, type RunLeaseOptions } from "./lease-acquire.ts";
import { heldLeaseIn, type LeaseChange, leasePatch, type Moment, microTime, momentOf, msSince } from "./lease-write.ts";

/** client-go's default: well before the Lease can be taken over, its holder stops. One attempt gets no longer either. */
const RENEW_DEADLINE_MS = 10_000;
const RENEW_EVERY_MS = 4_000;
/** client-go's default, in milliseconds, after an attempt that failed. */
export const RETRY_EVERY_MS = 2_000;
/** Between two writes after a conflict. */
const MIN_INTERVAL_MS = 100;

/** What a write of a Lease puts into its annotations. */
export type Annotations = () => Readonly<Record<string, string>>;

/**
 * A Lease that a run took, and its renewals. Every write has the resourceVersion that the one before it left as
 * precondition: one that arrives proves that no other run took the Lease over, however long ago the last was.
 */
export class HeldLease {
  readonly #options: RunLeaseOptions;
  readonly #abort = new AbortController();
  #lease: Lease;
  #confirmed: Moment;
  #writes: Promise<unknown> = Promise.resolve();
  #renewal: Promise<void> | undefined;
  #renewing: Promise<void> = Promise.resolve();
  #lost: KsvmError | undefined;
  /** The renewTime of the last write that arrived, and of each that was sent since: the Lease has one of these as long as no restore of etcd undid that write. */
  #renewTimes: Set<string | undefined>;
  /** `maybe`: a request that gives it up was sent, and no answer says whether that was done. */
  #givenUp: "no" | "maybe" | "yes" = "no";

  private constructor(options: RunLeaseOptions, lease: Lease, confirmedAt: Moment) {
    this.#options = options;
    this.#lease = lease;
    this.#confirmed = confirmedAt;
    this.#renewTimes = new Set([lease.spec?.renewTime]);
  }

  /**
   * Takes the Lease and keeps renewing it.
   * @param annotationsFor as {@link acquireLease} has it
   * @throws {KsvmError} AlreadyMigrating where its holder lives.
   */
  static async acquire(options: RunLeaseOptions, annotationsFor?: AnnotationsFor): Promise<HeldLease> {
    const { lease, confirmedAt } = await acquireLease(options, annotationsFor);
    const held = new HeldLease(options, lease, confirmedAt);
    held.#renewing = held.#renewUntilStopped();
    return held;
  }

  /** As the last write or read left it. */
  get metadata(): ObjectMeta {
    return this.#lease.metadata;
  }

  /** When the last renewal that arrived was sent, on the monotonic clock. */
  get confirmedAt(): number {
    return this.#confirmed.monotonic;
  }

  /** @throws {KsvmError} OwnershipLost once another run was seen to hold the Lease, or it went back in time */
  assertNotLost(): void {
    if (this.#lost !== undefined) {
      throw this.#lost;
    }
  }

  /**
   * Whether the Lease was renewed so lately that no other run can hold it.
   * @throws as {@link assertNotLost}; whatever `assertLeading` throws
   */
  get isConfirmed(): boolean {
    this.assertNotLost();
    this.#options.assertLeading?.();
    return msSince(this.#confirmed, this.#options.clock) <= RENEW_DEADLINE_MS;
  }

  /**
   * One renewal for all who wait for one.
   * @throws {ApiError | TransportError} where it fails; as {@link assertNotLost}
   */
  renew(): Promise<void> {
    this.#renewal ??= this.write(() => ({})).finally(() => {
      this.#renewal = undefined;
    });
    return this.#renewal;
  }

  /**
   * Renews, and writes annotations by it. Writes go one after the other: each needs the resourceVersion that the one before
   * it left.
   * @param annotations asked again right before each request: what was queued may not be true any more
   * @throws as {@link renew}
   */
  write(annotations: Annotations): Promise<void> {
    const { client, clock, name } = this.#options;
    const noAnswer = new Error(`none came within ${RENEW_DEADLINE_MS / 1_000} s`);
    const errorOf = (): Error => new TransportError(`renew Lease "${name}"`, client.transport.server, noAnswer);
    const deadline = { clock, ms: RENEW_DEADLINE_MS, signal: this.#abort.signal, errorOf };
    const write = this.#writes.then(() => withDeadline(deadline, (signal) => this.#patch(annotations, signal)));
    this.#writes = write.catch(() => undefined);
    return write;
  }

  /** Ends the renewals, and waits for those that are under way. */
  async stop(): Promise<void> {
    this.#abort.abort();
    await Promise.all([this.#renewing, this.#writes]);
  }

  /**
   * Writes the Lease a last time, or deletes it. A Lease that is lost stays as it is, which {@link assertNotLost} tells.
   * @returns whether an answer says that it did
   * @throws {ApiError | TransportError}
   */
  async giveUp(how: LeaseChange | "delete", signal: AbortSignal): Promise<boolean> {
    const { client, namespace, name } = this.#options;
    const ref = { namespace, name };
    const pace = this.#pace();
    while (this.#lost === undefined && this.#givenUp !== "yes") {
      await pace.turn(signal);
      const { resourceVersion, uid } = this.#lease.metadata;
      if (how !== "delete") this.#renewTimes.add(how.spec.renewTime);
      try {
        await (how === "delete"
          ? // One that is gone was deleted by another client, or etcd restored from a backup that is older than this run.
            client.delete(LEASES, ref, { mustExist: true, preconditions: { uid, resourceVersion }, signal })
          : client.patch(LEASES, ref, leasePatch(this.#lease, how), { signal }));
        this.#givenUp = "yes";
        return true;
      } catch (error) {
        if (mayBeDone(error)) {
          this.#givenUp = "maybe";
        }
        await this.#afterFailure(error, signal);
      }
    }
    return false;
  }

  async #renewUntilStopped(): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#abort;
    let waitMs = RENEW_EVERY_MS;
    while (!signal.aborted && this.#lost === undefined) {
      await clock.sleep(waitMs, signal).catch(() => undefined);
      if (!signal.aborted) {
        // One that fails is tried again in a moment; until it works nothing is written.
        waitMs = await this.renew().then(
          () => RENEW_EVERY_MS,
          () => RETRY_EVERY_MS,
        );
      }
    }
  }

  #pace(): LoopPace {
    return new LoopPace({ clock: this.#options.clock, minMs: MIN_INTERVAL_MS, maxMs: RETRY_EVERY_MS });
  }

  async #patch(annotations: Annotations, signal: AbortSignal): Promise<void> {
    const { client, clock, identity, namespace, name } = this.#options;
    const pace = this.#pace();
    for (;;) {
      this.assertNotLost();
      await pace.turn(signal);
      const startedAt = momentOf(clock);
      const renewTime = microTime(clock);
      const renewal = leasePatch(this.#lease, { annotations: annotations(), spec: { renewTime } });
      this.#renewTimes.add(renewTime);
      try {
        const written = await client.patch<Lease>(LEASES, { namespace, name }, renewal, { signal });
        this.#lease = heldLeaseIn(written, name, identity);
        this.#renewTimes = new Set([written.spec?.renewTime]);
        this.#confirmed = startedAt;
        return;
      } catch (error) {
        await this.#afterFailure(error, signal);
      }
    }
  }

  /**
   * After a conflict: an earlier write of ours may have arrived though its answer was lost, that which gives the Lease up included, else
   * the Lease is lost. It is lost, too, where it went back in time: so did every object.
   */
  async #afterFailure(error: unknown, signal: AbortSignal): Promise<void> {
    if (!isConflict(error) && !isNotFound(error)) {
      throw error;
    }
    const { client, namespace, name } = this.#options;
    const current = await client.find<Lease>(LEASES, { namespace, name }, { signal });
    const holder = holderOf(current);
    const isOurs = current !== undefined && this.#isOurs(current);
    if (!isOurs && this.#givenUp !== "no") {
      this.#givenUp = "yes";
    } else if (!isOurs) {
      this.#lose(heldBy(holder));
    } else if (this.#hasGoneBack(current)) {
      // A read is never stale. What this run wrote since is gone, the objects that it rewrote included.
      this.#lose("it is as it was some time ago, as after etcd was restored from a backup; run again");
    } else {
      this.#lease = current;
    }
  }

  /** After a restore another client may have written it since, so that its resourceVersion is beyond what was seen. */
  #hasGoneBack({ metadata, spec }: Lease): boolean {
    return (
      isNewer(this.#lease.metadata.resourceVersion, metadata.resourceVersion) || !this.#renewTimes.has(spec?.renewTime)
    );
  }

  #isOurs({ metadata, spec }: Lease): boolean {
    return metadata.uid === this.#lease.metadata.uid && spec?.holderIdentity === this.#options.identity;
  }

  #lose(why: string): void {
    const text = `Cannot continue: this run lost Lease "${this.#options.name}": ${why}`;
    this.#lost = new KsvmError("OwnershipLost", text);
  }
}

function heldBy(holder: string): string {
  return holder === ""
    ? "another client deleted or released it, or etcd was restored from a backup"
    : `it is held by "${holder}" now`;
}
