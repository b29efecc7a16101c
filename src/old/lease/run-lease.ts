import type { Clock } from "../../clock.ts";
import { KsvmError, messageOf } from "../../errors.ts";
import { failureKindOf } from "../kube/failure.ts";
import type { Cleanup } from "../retry/cleanup.ts";
import { untilAborted, withDeadline } from "../retry/deadline.ts";
import { DENIAL_PATIENCE_MS } from "../retry/patience.ts";
import type { Retrier } from "../retry/retrier.ts";
import { WaitingForOthers } from "../retry/start-again.ts";
import { type Annotations, HeldLease, RETRY_EVERY_MS } from "./held-lease.ts";
import type { RunLeaseOptions } from "./lease-acquire.ts";
import type { LeaseChange } from "./lease-write.ts";

/** The annotation on a run's Lease that holds its checkpoint. */
export const CHECKPOINT_ANNOTATION = "ksvm.sigs.k8s.io/checkpoint";

/** For giving the Lease up, in milliseconds: it expires by itself. */
const RELEASE_MS = 30_000;

/** What becomes of a Lease that is given up. */
export interface Release {
  /** Whether there is something to resume. */
  readonly keepCheckpoint: boolean;
  /**
   * Whether it is left as that of a run that died: the next run watches it until it has expired, and takes whatever it cannot know of API servers
   * for a silence. @default false
   */
  readonly keepHolder?: boolean;
}

/** Who waits for a write of the Lease. */
interface LeaseWaits {
  readonly retrier: Retrier;
  readonly signal: AbortSignal;
}

/**
 * The uids of the Leases whose checkpoint is void and may still be there: no run of this process resumes there, and the next
 * one that takes such a Lease takes the checkpoint back. Whichever text is there: a write whose answer was lost may have
 * arrived. By the clock of the process: a simulation has several of both.
 */
const voidedOf = new WeakMap<Clock, Set<string>>();

function voidedIn({ clock }: Pick<RunLeaseOptions, "clock">): Set<string> {
  let voided = voidedOf.get(clock);
  if (voided === undefined) voidedOf.set(clock, (voided = new Set()));
  return voided;
}

/**
 * Gives the Lease up when the run has undone all else: no run fails for a Lease that expires by itself, but for one whose void checkpoint
 * stays. A run that has lost it by then has no result: nothing else tells that etcd was restored from a backup after the last write.
 */
export function deferRelease(cleanup: Cleanup, lease: RunLease, options: () => Release): void {
  const release = (signal: AbortSignal): Promise<void> => lease.release(options(), signal);
  const advice = (): string =>
    lease.isVoid ? "its checkpoint is void: delete the Lease before ksvm runs again" : "it expires by itself";
  cleanup.defer(`release Lease "${lease.key}"`, advice, release, { isHarmless: () => !lease.isVoid });
  cleanup.check(() => lease.assertNotLost());
}

/**
 * The Lease of one command-line run on one resource: it says that the run lives, keeps a second run away, and carries
 * the checkpoint. A run that wakes up late after another one took over can write neither. An outage of the API server
 * makes a run wait, and only another holder ends it.
 *
 * https://github.com/kubernetes/client-go/blob/v0.36.0/tools/leaderelection/leaderelection.go
 */
export class RunLease {
  readonly #options: RunLeaseOptions;
  readonly #held: HeldLease;
  /** How often a checkpoint became void. */
  #voids = 0;
  /** On the monotonic clock. */
  #refusedSince = Number.NEGATIVE_INFINITY;

  private constructor(options: RunLeaseOptions, held: HeldLease) {
    this.#options = options;
    this.#held = held;
  }

  /**
   * Takes the Lease and keeps renewing it. A void checkpoint is taken back by the same write: no write that still waits can
   * arrive after it.
   * @throws {KsvmError} AlreadyMigrating where its holder lives.
   */
  static async acquire(options: RunLeaseOptions): Promise<RunLease> {
    const voided = voidedIn(options);
    const held = await HeldLease.acquire(options, ({ metadata: { uid } }) =>
      voided.has(uid) ? { [CHECKPOINT_ANNOTATION]: "" } : {},
    );
    voided.delete(held.metadata.uid);
    return new RunLease(options, held);
  }

  /** `namespace/name` of the Lease. */
  get key(): string {
    return `${this.#options.namespace}/${this.#options.name}`;
  }

  /** What an earlier run left, unless it is void. */
  get checkpoint(): string | undefined {
    const checkpoint = this.#held.metadata.annotations?.[CHECKPOINT_ANNOTATION] ?? "";
    return this.isVoid || checkpoint === "" ? undefined : checkpoint;
  }

  /** Whether a checkpoint that is void may still be on the Lease. */
  get isVoid(): boolean {
    return this.#voided.has(this.#uid);
  }

  /**
   * Resolves while no other run can hold the Lease: if it was not renewed for too long, once it was. To be awaited
   * before every write to the cluster, see `ApiClient.fencedBy`.
   * @param retrier has the limits of the attempt that waits. @default that of the run, which lifts no freeze while it waits
   * @throws {KsvmError} OwnershipLost if another run holds it, or the API server refuses to renew it;
   *   RetryBudgetExceeded after too long without progress; {WaitingForOthers} by the limits of `retrier`.
   * @throws the signal's reason if it is aborted before that.
   */
  async confirm(signal: AbortSignal, retrier: Retrier = this.#options.retrier): Promise<void> {
    await this.#retry({ retrier, signal }, async () => {
      // A renewal that arrives confirms, unless it took longer than the deadline: no minimum interval is needed here.
      while (!this.#held.isConfirmed) {
        await untilAborted(this.#held.renew(), signal).catch((error: unknown) => this.#afterRefusal(error, signal));
      }
    });
  }

  /**
   * Renews, however lately that was done. To be awaited right before a write that rests on what this run wrote before: where etcd
   * was restored from a backup in between, that is gone, and the resourceVersion of an object that the backup has as well says
   * nothing.
   * @param retrier as {@link confirm} has it
   * @throws as {@link confirm}; {KsvmError} OwnershipLost as well where the Lease went back in time.
   */
  async renew(signal: AbortSignal, retrier: Retrier = this.#options.retrier): Promise<void> {
    await this.#retry({ retrier, signal }, async () => {
      let isRenewed = false;
      while (!isRenewed) {
        // One that is under way may have arrived before.
        isRenewed = await untilAborted(
          this.#held.write(() => ({})),
          signal,
        ).then(
          () => true,
          (error: unknown) => this.#afterRefusal(error, signal).then(() => false),
        );
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
      this.#refusedSince = Number.NEGATIVE_INFINITY;
      this.#throwAsOwnError(error);
    }
    if (this.#refusedSince <= this.#held.confirmedAt) {
      this.#refusedSince = clock.monotonic();
    }
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
      await untilAborted(this.#held.renew(), signal);
      return undefined;
    } catch (error) {
      signal.throwIfAborted();
      this.#held.assertNotLost();
      return failureKindOf(error) === "transient" ? error : undefined;
    }
  }

  /** @throws {KsvmError} OwnershipLost once another run was seen to hold the Lease, or it went back in time */
  assertNotLost(): void {
    this.#held.assertNotLost();
  }

  /**
   * Looks whether another run holds the Lease by now. What cannot be found out counts as no.
   * @throws {KsvmError} OwnershipLost
   */
  async assertNotTakenOver(signal: AbortSignal): Promise<void> {
    await untilAborted(this.#held.renew(), signal).catch(() => undefined);
    this.#held.assertNotLost();
  }

  /**
   * Writes the checkpoint, and renews by it; nothing is written any more where {@link voidCheckpoint} is called before that.
   * @param waits the limits of the attempt that waits. @default those of the run
   * @throws {KsvmError} OwnershipLost; {ApiError | TransportError} where the write fails; {WaitingForOthers} by the limits.
   */
  async saveCheckpoint(checkpoint: string, waits: LeaseWaits = this.#options): Promise<void> {
    const voids = this.#voids;
    const isValid = (): boolean => voids === this.#voids;
    await this.#annotate(() => (isValid() ? { [CHECKPOINT_ANNOTATION]: checkpoint } : {}), waits);
    if (isValid()) {
      this.#voided.delete(this.#uid);
    }
  }

  /**
   * Takes the checkpoint back, and those whose writes still wait: no run may resume there. Where that fails or Ctrl-C comes
   * first, the Lease is deleted, or left without one, when it is given up.
   * @param waits as {@link saveCheckpoint} has them
   * @throws as {@link saveCheckpoint}.
   */
  async voidCheckpoint(waits: LeaseWaits = this.#options): Promise<void> {
    this.#voids++;
    this.#voided.add(this.#uid);
    await this.#annotate(() => ({ [CHECKPOINT_ANNOTATION]: "" }), waits);
    this.#voided.delete(this.#uid);
  }

  /**
   * Gives the Lease up: deletes it where nothing is left to resume, else clears its holder and keeps the checkpoint. A void checkpoint does not
   * stay, whatever is asked for; the holder may.
   * @throws {KsvmError} ServerUnreachable after 30 seconds, unless a void checkpoint would stay; whatever the API server
   *   answers that does not pass.
   */
  async release(options: Release, signal: AbortSignal): Promise<void> {
    const { clock, retrier } = this.#options;
    await this.#held.stop();
    if (options.keepHolder === true && !this.isVoid) {
      return;
    }
    const how = this.#wayOut(options);
    const giveUp = (limit: AbortSignal): Promise<boolean> => retrier.run(() => this.#held.giveUp(how, limit), limit);
    if (this.isVoid) {
      if (await giveUp(signal)) {
        this.#voided.delete(this.#uid);
      }
      return;
    }
    try {
      await withDeadline({ clock, ms: RELEASE_MS, signal, errorOf: notReleased }, giveUp);
    } catch (error) {
      // Otherwise the cleanup would try again until it works.
      const isSpent = error instanceof KsvmError && error.code === "RetryBudgetExceeded";
      throw isSpent ? new KsvmError("ServerUnreachable", error.message, { cause: error }) : error;
    }
  }

  #wayOut({ keepCheckpoint, keepHolder = false }: Release): LeaseChange | "delete" {
    if (keepHolder) {
      return { spec: {}, annotations: { [CHECKPOINT_ANNOTATION]: "" } };
    }
    return keepCheckpoint && !this.isVoid ? { spec: { holderIdentity: null } } : "delete";
  }

  /** The error of a request for the Lease must not be taken for one of the request that waits for it. */
  #throwAsOwnError(error: unknown): never {
    const kind = failureKindOf(error);
    if (kind === undefined || kind === "transient") {
      throw error;
    }
    const text = `Cannot continue: Lease "${this.#options.name}" cannot be renewed: ${messageOf(error)}`;
    throw new KsvmError("OwnershipLost", text, { cause: error });
  }

  get #voided(): Set<string> {
    return voidedIn(this.#options);
  }

  get #uid(): string {
    return this.#held.metadata.uid ?? "";
  }

  async #annotate(annotations: Annotations, waits: LeaseWaits): Promise<void> {
    await this.#retry(waits, () => untilAborted(this.#held.write(annotations), waits.signal));
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
}

function notReleased(): KsvmError {
  return new KsvmError("ServerUnreachable", `it took longer than ${RELEASE_MS / 1_000} s`);
}
