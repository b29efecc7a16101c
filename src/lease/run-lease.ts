import { holderOf, type Lease } from "../api/lease.ts";
import { isNewer } from "../api/resource-version.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { isNotFound } from "../kube/absent.ts";
import { isConflict } from "../kube/client.ts";
import { TransportError } from "../kube/errors.ts";
import { failureKindOf } from "../kube/failure.ts";
import { LEASES } from "../kube/resources.ts";
import type { Cleanup } from "../retry/cleanup.ts";
import { untilAborted, withDeadline } from "../retry/deadline.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import { DENIAL_PATIENCE_MS } from "../retry/patience.ts";
import type { Retrier } from "../retry/retrier.ts";
import { WaitingForOthers } from "../retry/start-again.ts";
import { acquireLease, type RunLeaseOptions } from "./lease-acquire.ts";
import { leasePatch, type Moment, microTime, momentOf } from "./lease-write.ts";

/** The annotation on a run's Lease that holds its checkpoint. */
export const CHECKPOINT_ANNOTATION = "ksvm.sigs.k8s.io/checkpoint";

/** client-go's default: well before the Lease can be taken over, its holder stops. One attempt gets no longer either. */
const RENEW_DEADLINE_MS = 10_000;
const RENEW_EVERY_MS = 4_000;
/** client-go's default, after an attempt that failed. */
const RETRY_EVERY_MS = 2_000;
/** For giving the Lease up, in milliseconds: it expires by itself. */
const RELEASE_MS = 30_000;
/** Between two writes after a conflict. */
const MIN_INTERVAL_MS = 100;

/** Who waits for a write of the Lease. */
interface LeaseWaits {
  readonly retrier: Retrier;
  readonly signal: AbortSignal;
}

/**
 * Checkpoints, each with the uid of its Lease, that runs of this process could not take back: no run of it resumes there.
 */
const voided = new Set<string>();

/**
 * Gives the Lease up when the run has undone all else: no run fails for a Lease that expires by itself, but for one whose
 * void checkpoint stays.
 */
export function deferRelease(
  cleanup: Cleanup,
  lease: RunLease,
  options: () => { readonly keepCheckpoint: boolean },
): void {
  const release = (signal: AbortSignal): Promise<void> => lease.release(options(), signal);
  const advice = "it expires by itself; where this ends a run (CleanupFailed), delete it: its checkpoint is void";
  cleanup.defer(`release Lease "${lease.key}"`, advice, release, { isHarmless: () => !lease.isVoid });
}

/**
 * The Lease of one command-line run on one resource: it says that the run lives, keeps a second run away, and carries
 * the checkpoint. Every write has the Lease's resourceVersion as precondition, so a run that wakes up late after
 * another took over can write neither. One that arrives proves that nobody took over, however long ago the last was: so
 * an outage of the API server makes a run wait, and only another holder ends it.
 *
 * https://github.com/kubernetes/client-go/blob/v0.36.0/tools/leaderelection/leaderelection.go
 */
export class RunLease {
  readonly #options: RunLeaseOptions;
  readonly #abort = new AbortController();
  #lease: Lease;
  #confirmed: Moment;
  #writes: Promise<unknown> = Promise.resolve();
  #renewal: Promise<void> | undefined;
  #renewing: Promise<void> = Promise.resolve();
  #lost: KsvmError | undefined;
  #isVoid = false;
  /** On the monotonic clock. */
  #refusedSince: number | undefined;

  private constructor(options: RunLeaseOptions, lease: Lease, confirmedAt: Moment) {
    this.#options = options;
    this.#lease = lease;
    this.#confirmed = confirmedAt;
  }

  /**
   * Takes the Lease and keeps renewing it.
   * @throws {KsvmError} AlreadyMigrating where its holder lives.
   */
  static async acquire(options: RunLeaseOptions): Promise<RunLease> {
    const { lease, confirmedAt } = await acquireLease(options);
    const held = new RunLease(options, lease, confirmedAt);
    held.#renewing = held.#renewForEver();
    return held;
  }

  /** `namespace/name` of the Lease. */
  get key(): string {
    return `${this.#options.namespace}/${this.#options.name}`;
  }

  /** What an earlier run left, unless it is void. */
  get checkpoint(): string | undefined {
    const { annotations, uid } = this.#lease.metadata;
    const checkpoint = annotations?.[CHECKPOINT_ANNOTATION];
    return voided.has(`${uid} ${checkpoint ?? ""}`) ? undefined : checkpoint;
  }

  /** Whether a checkpoint that is void may still be on the Lease. */
  get isVoid(): boolean {
    return this.#isVoid;
  }

  /**
   * Resolves while nobody else can hold the Lease: where it was not renewed for too long, once it was. To be awaited
   * before every write to the cluster, see `ApiClient.fencedBy`.
   * @param retrier has the limits of the attempt that waits. @default that of the run, which lifts no freeze meanwhile
   * @throws {KsvmError} OwnershipLost where somebody else holds it, or the API server refuses to renew it;
   *   RetryBudgetExceeded after too long without progress; {WaitingForOthers} by the limits of `retrier`.
   * @throws the signal's reason where it is aborted meanwhile.
   */
  async confirm(signal: AbortSignal, retrier: Retrier = this.#options.retrier): Promise<void> {
    await this.#retry({ retrier, signal }, async () => {
      // A renewal that arrives confirms, unless it took longer than the deadline: no minimum interval is needed here.
      while (!this.#isConfirmed()) {
        await untilAborted(this.#renewNow(), signal).catch((error: unknown) => this.#afterRefusal(error, signal));
      }
    });
  }

  /**
   * An API server that has just started knows no roles yet, and a proxy may have no API server behind it: a 401, a 403 or
   * a 404 that does not name the Lease is final once it has lasted.
   */
  async #afterRefusal(error: unknown, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    const kind = failureKindOf(error);
    if (kind !== "denied" && kind !== "unserved") {
      this.#refusedSince = undefined;
      this.#throwAsOwnError(error);
    }
    this.#refusedSince ??= clock.monotonic();
    if (clock.monotonic() - this.#refusedSince >= DENIAL_PATIENCE_MS) {
      this.#throwAsOwnError(error);
    }
    await clock.sleep(RETRY_EVERY_MS, signal);
  }

  /**
   * Renews the Lease once, after {@link confirm} gave up waiting.
   * @returns the failure where it may pass later; any other refusal is for the next {@link confirm} to judge
   * @throws {KsvmError} OwnershipLost where it is lost.
   */
  async probe(signal: AbortSignal): Promise<unknown> {
    try {
      await untilAborted(this.#renewNow(), signal);
      return undefined;
    } catch (error) {
      signal.throwIfAborted();
      if (this.#lost !== undefined) {
        throw this.#lost;
      }
      return failureKindOf(error) === "transient" ? error : undefined;
    }
  }

  /**
   * Looks whether somebody else holds the Lease by now. What cannot be found out counts as no.
   * @throws {KsvmError} OwnershipLost
   */
  async assertNotTakenOver(signal: AbortSignal): Promise<void> {
    await untilAborted(this.#renewNow(), signal).catch(() => undefined);
    if (this.#lost !== undefined) {
      throw this.#lost;
    }
  }

  /**
   * Writes the checkpoint, and renews by it.
   * @param waits the limits of the attempt that waits. @default those of the run
   * @throws {KsvmError} OwnershipLost; {ApiError | TransportError} where the write fails; {WaitingForOthers} by the limits.
   */
  async saveCheckpoint(checkpoint: string, waits: LeaseWaits = this.#options): Promise<void> {
    await this.#annotate({ [CHECKPOINT_ANNOTATION]: checkpoint }, waits);
  }

  /**
   * Takes the checkpoint back: nobody may resume there any more. Where Ctrl-C comes first, the Lease is deleted when it
   * is given up.
   * @throws as {@link saveCheckpoint}.
   */
  async voidCheckpoint(): Promise<void> {
    const { annotations, uid } = this.#lease.metadata;
    const key = `${uid} ${annotations?.[CHECKPOINT_ANNOTATION] ?? ""}`;
    this.#isVoid = true;
    voided.add(key);
    await this.#annotate({ [CHECKPOINT_ANNOTATION]: "" }, this.#options);
    this.#isVoid = false;
    voided.delete(key);
  }

  /**
   * Gives the Lease up: deletes it where nothing is left to resume, else clears its holder and keeps the checkpoint.
   * @throws {KsvmError} ServerUnreachable after 30 seconds, unless a void checkpoint would stay; whatever the API server
   *   answers that does not pass.
   */
  async release(options: { readonly keepCheckpoint: boolean }, signal: AbortSignal): Promise<void> {
    const { clock, retrier } = this.#options;
    this.#abort.abort();
    await Promise.all([this.#renewing, this.#writes]);
    const keepCheckpoint = options.keepCheckpoint && !this.#isVoid;
    const giveUp = (limit: AbortSignal): Promise<void> => retrier.run(() => this.#giveUp(keepCheckpoint, limit), limit);
    if (this.#isVoid) {
      await giveUp(signal);
      return;
    }
    try {
      await withDeadline({ clock, ms: RELEASE_MS, signal, errorOf: notReleased }, giveUp);
    } catch (error) {
      // Otherwise whoever cleans up would try again until it works.
      const isSpent = error instanceof KsvmError && error.code === "RetryBudgetExceeded";
      throw isSpent ? new KsvmError("ServerUnreachable", error.message, { cause: error }) : error;
    }
  }

  async #giveUp(keepCheckpoint: boolean, signal: AbortSignal): Promise<void> {
    const { client, namespace, name } = this.#options;
    const ref = { namespace, name };
    const pace = this.#pace();
    while (this.#lost === undefined) {
      await pace.turn(signal);
      const { resourceVersion, uid } = this.#lease.metadata;
      try {
        await (keepCheckpoint
          ? client.patch(LEASES, ref, leasePatch(this.#lease, { spec: { holderIdentity: null } }), { signal })
          : client.delete(LEASES, ref, { preconditions: { uid, resourceVersion }, signal }));
        return;
      } catch (error) {
        await this.#afterFailure(error, signal);
      }
    }
  }

  #pace(): LoopPace {
    return new LoopPace({ clock: this.#options.clock, minMs: MIN_INTERVAL_MS, maxMs: RETRY_EVERY_MS });
  }

  #isConfirmed(): boolean {
    if (this.#lost !== undefined) {
      throw this.#lost;
    }
    const { clock } = this.#options;
    const { monotonic, now } = this.#confirmed;
    // A monotonic clock may stand still while the machine sleeps, and a wall clock may be set back: the later one counts.
    return Math.max(clock.monotonic() - monotonic, clock.now() - now) <= RENEW_DEADLINE_MS;
  }

  /** The error of a request for the Lease must not be taken for one of the request that waits for it. */
  #throwAsOwnError(error: unknown): never {
    const kind = failureKindOf(error);
    if (kind === undefined || kind === "transient") {
      throw error;
    }
    const text = `Cannot go on: Lease "${this.#options.name}" cannot be renewed: ${messageOf(error)}`;
    throw new KsvmError("OwnershipLost", text, { cause: error });
  }

  async #renewForEver(): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#abort;
    let waitMs = RENEW_EVERY_MS;
    while (!signal.aborted && this.#lost === undefined) {
      await clock.sleep(waitMs, signal).catch(() => undefined);
      if (!signal.aborted) {
        // One that fails is tried again in a moment; confirm() lets nothing be written meanwhile.
        waitMs = await this.#renewNow().then(
          () => RENEW_EVERY_MS,
          () => RETRY_EVERY_MS,
        );
      }
    }
  }

  /** One renewal for all who wait for one. */
  #renewNow(): Promise<void> {
    this.#renewal ??= this.#write({}).finally(() => {
      this.#renewal = undefined;
    });
    return this.#renewal;
  }

  async #annotate(annotations: Readonly<Record<string, string>>, waits: LeaseWaits): Promise<void> {
    await this.#retry(waits, () => untilAborted(this.#write(annotations), waits.signal));
  }

  /** An attempt that waits for a write of the Lease waits for nothing else, whatever it was about to write. */
  async #retry({ retrier, signal }: LeaseWaits, operation: () => Promise<void>): Promise<void> {
    try {
      await retrier.run(operation, signal);
    } catch (error) {
      const { cause, budgetMs } = error instanceof WaitingForOthers ? error : {};
      throw budgetMs === undefined ? error : new WaitingForOthers(cause, budgetMs, { kind: "lease", lease: this.key });
    }
  }

  /** Renewals and checkpoints go one after the other: each needs the resourceVersion that the one before it left. */
  #write(annotations: Readonly<Record<string, string>>): Promise<void> {
    const { client, clock, name } = this.#options;
    const noAnswer = new Error(`none came within ${RENEW_DEADLINE_MS / 1_000} s`);
    const errorOf = (): Error => new TransportError(`renew Lease "${name}"`, client.transport.server, noAnswer);
    const deadline = { clock, ms: RENEW_DEADLINE_MS, signal: this.#abort.signal, errorOf };
    const write = this.#writes.then(() => withDeadline(deadline, (signal) => this.#renew(annotations, signal)));
    this.#writes = write.catch(() => undefined);
    return write;
  }

  async #renew(annotations: Readonly<Record<string, string>>, signal: AbortSignal): Promise<void> {
    const { client, clock, namespace, name } = this.#options;
    const pace = this.#pace();
    for (;;) {
      if (this.#lost !== undefined) {
        throw this.#lost;
      }
      await pace.turn(signal);
      const startedAt = momentOf(clock);
      const renewal = leasePatch(this.#lease, { annotations, spec: { renewTime: microTime(clock) } });
      try {
        this.#lease = await client.patch<Lease>(LEASES, { namespace, name }, renewal, { signal });
        this.#confirmed = startedAt;
        this.#refusedSince = undefined;
        return;
      } catch (error) {
        await this.#afterFailure(error, signal);
      }
    }
  }

  /**
   * After a conflict: an earlier write of ours may have arrived though its answer was lost, else the Lease is lost. It is
   * lost, too, where it went back in time: so did every object.
   */
  async #afterFailure(error: unknown, signal: AbortSignal): Promise<void> {
    if (!isConflict(error) && !isNotFound(error)) {
      throw error;
    }
    const { client, namespace, name } = this.#options;
    const current = await client.find<Lease>(LEASES, { namespace, name }, { signal });
    const holder = holderOf(current);
    if (current === undefined || !this.#isOurs(current)) {
      this.#lose(heldBy(holder));
    } else if (isNewer(this.#lease.metadata.resourceVersion, current.metadata.resourceVersion)) {
      // A read is never stale. What this run wrote since is gone, the objects that it rewrote included.
      this.#lose("it is as it was some time ago, as after etcd was restored from a backup; run again");
    } else {
      this.#lease = current;
    }
  }

  #isOurs({ metadata, spec }: Lease): boolean {
    return metadata.uid === this.#lease.metadata.uid && spec?.holderIdentity === this.#options.identity;
  }

  #lose(why: string): void {
    const text = `Cannot go on: this run lost Lease "${this.#options.name}": ${why}`;
    this.#lost = new KsvmError("OwnershipLost", text);
  }
}

function notReleased(): KsvmError {
  return new KsvmError("ServerUnreachable", `it took longer than ${RELEASE_MS / 1_000} s`);
}

function heldBy(holder: string): string {
  return `it is held by "${holder === "" ? "nobody" : holder}" now`;
}
