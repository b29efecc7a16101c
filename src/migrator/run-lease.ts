import { KsvmError } from "../errors.ts";
import { isConflict, isNotFound } from "../kube/client.ts";
import { LEASES, MERGE_PATCH } from "../kube/resources.ts";
import { acquireLease, type Lease, microTime, type RunLeaseOptions } from "./lease-acquire.ts";

/** The annotation on a run's Lease that holds its checkpoint. */
export const CHECKPOINT_ANNOTATION = "ksvm.sigs.k8s.io/checkpoint";

/** client-go's default: well before the Lease can be taken over, its holder stops. */
const RENEW_DEADLINE_MS = 10_000;
const RENEW_EVERY_MS = 4_000;

/**
 * The Lease of one command-line run on one resource: it says that the run lives, keeps a second run away, and carries
 * the checkpoint. Every write has the Lease's resourceVersion as precondition, so a run that wakes up late after
 * another took over can write neither.
 *
 * https://github.com/kubernetes/client-go/blob/v0.36.0/tools/leaderelection/leaderelection.go
 */
export class RunLease {
  readonly #options: RunLeaseOptions;
  readonly #abort = new AbortController();
  #lease: Lease;
  #confirmedAt: number;
  #writes: Promise<unknown> = Promise.resolve();
  #renewal: Promise<void> = Promise.resolve();
  #lost: KsvmError | undefined;
  #isVoid = false;

  private constructor(options: RunLeaseOptions, lease: Lease, confirmedAt: number) {
    this.#options = options;
    this.#lease = lease;
    this.#confirmedAt = confirmedAt;
  }

  /**
   * Takes the Lease and keeps renewing it.
   * @throws {KsvmError} AlreadyMigrating where its holder lives.
   */
  static async acquire(options: RunLeaseOptions): Promise<RunLease> {
    const { lease, confirmedAt } = await acquireLease(options);
    const held = new RunLease(options, lease, confirmedAt);
    held.#renewal = held.#renewForEver();
    return held;
  }

  /** `namespace/name` of the Lease. */
  get key(): string {
    return `${this.#options.namespace}/${this.#options.name}`;
  }

  /** What an earlier run left. */
  get checkpoint(): string | undefined {
    return this.#lease.metadata.annotations?.[CHECKPOINT_ANNOTATION];
  }

  /**
   * Throws unless the Lease was confirmed so lately that nobody else can hold it yet.
   * @throws {KsvmError} OwnershipLost
   */
  assertHeld(): void {
    if (this.#lost !== undefined) {
      throw this.#lost;
    }
    if (this.#options.clock.monotonic() - this.#confirmedAt > RENEW_DEADLINE_MS) {
      throw lostError(this.#options.name, `it could not be renewed for ${RENEW_DEADLINE_MS / 1_000} s`);
    }
  }

  /**
   * Writes the checkpoint, and renews by it.
   * @throws {KsvmError} OwnershipLost; {ApiError | TransportError} where the write fails.
   */
  async saveCheckpoint(checkpoint: string): Promise<void> {
    const { retrier, signal } = this.#options;
    await retrier.run(() => this.#write({ [CHECKPOINT_ANNOTATION]: checkpoint }, signal), signal);
  }

  /**
   * Takes the checkpoint back: nobody may resume there any more. Not broken off by Ctrl-C, and a Lease that is given up
   * before the write arrived is deleted.
   * @throws as {@link saveCheckpoint}.
   */
  async voidCheckpoint(): Promise<void> {
    this.#isVoid = true;
    const signal = AbortSignal.timeout(RENEW_DEADLINE_MS);
    await this.#options.retrier.run(() => this.#write({ [CHECKPOINT_ANNOTATION]: "" }, signal), signal);
    this.#isVoid = false;
  }

  /** Gives the Lease up: deletes it where nothing is left to resume, else clears its holder and keeps the checkpoint. */
  async release(options: { readonly keepCheckpoint: boolean }, signal: AbortSignal): Promise<void> {
    this.#abort.abort();
    await this.#renewal;
    if (this.#lost !== undefined) {
      return;
    }
    const { client, namespace, name, retrier } = this.#options;
    const { resourceVersion, uid } = this.#lease.metadata;
    const ref = { namespace, name };
    const body = { metadata: { uid, resourceVersion }, spec: { holderIdentity: null } };
    const give =
      options.keepCheckpoint && !this.#isVoid
        ? () => client.patch(LEASES, ref, { type: MERGE_PATCH, body }, { signal })
        : () => client.delete(LEASES, ref, { preconditions: { uid, resourceVersion }, signal });
    await retrier.run<unknown>(give, signal).catch((error: unknown) => {
      // Somebody took it over, or it is gone: it is not ours to give.
      if (!isConflict(error) && !isNotFound(error)) {
        throw error;
      }
    });
  }

  async #renewForEver(): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#abort;
    while (!signal.aborted && this.#lost === undefined) {
      await clock.sleep(RENEW_EVERY_MS, signal).catch(() => undefined);
      if (!signal.aborted) {
        // A renewal that fails is tried again in a moment; assertHeld() stops the run before the Lease can expire.
        await this.#write({}, signal).catch(() => undefined);
      }
    }
  }

  /** Renewals and checkpoints go one after the other: each needs the resourceVersion that the one before it left. */
  #write(annotations: Readonly<Record<string, string>>, signal: AbortSignal): Promise<void> {
    const write = this.#writes.then(() => this.#renew(annotations, signal));
    this.#writes = write.catch(() => undefined);
    return write;
  }

  async #renew(annotations: Readonly<Record<string, string>>, signal: AbortSignal): Promise<void> {
    const { client, clock, namespace, name } = this.#options;
    const startedAt = clock.monotonic();
    const { resourceVersion, uid } = this.#lease.metadata;
    const body = { metadata: { uid, resourceVersion, annotations }, spec: { renewTime: microTime(clock) } };
    try {
      this.#lease = await client.patch<Lease>(LEASES, { namespace, name }, { type: MERGE_PATCH, body }, { signal });
    } catch (error) {
      if (!isConflict(error) && !isNotFound(error)) {
        throw error;
      }
      await this.#readAgain(signal);
      return this.#renew(annotations, signal);
    }
    this.#confirmedAt = startedAt;
  }

  /** After a conflict: an earlier write of ours may have arrived though its answer was lost, else the Lease is lost. */
  async #readAgain(signal: AbortSignal): Promise<void> {
    const { client, identity, namespace, name } = this.#options;
    const current = await client.find<Lease>(LEASES, { namespace, name }, { signal });
    const holder = current?.spec?.holderIdentity;
    if (current?.metadata.uid !== this.#lease.metadata.uid || holder !== identity) {
      this.#lost = lostError(name, `it is held by "${holder ?? "nobody"}" now`);
      throw this.#lost;
    }
    this.#lease = current;
  }
}

function lostError(name: string, why: string): KsvmError {
  return new KsvmError("OwnershipLost", `Cannot go on: this run lost Lease "${name}": ${why}`);
}
