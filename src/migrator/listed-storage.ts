import type { Fence } from "../kube/transport-options.ts";
import { assertStorageVersionListed, besidesObjects } from "./foreign-prunes.ts";
import type { RunContext } from "./run-context.ts";

/** Between two looks at the CRD while objects are written, in milliseconds. */
const LOOK_EVERY_MS = 5_000;
/** Where the last look was answered longer ago than this, in milliseconds, a write waits for the next one. */
const MAX_AGE_MS = 10_000;

/**
 * Of a CRD that is only rewritten, other clients write storedVersions, and may take the storage version out at any time: then no object
 * may be written in it (S1). A page may take minutes, so it is the writes that have the CRD looked at.
 */
export class ListedStorage {
  readonly #context: RunContext;
  readonly #crdName: string;
  readonly #abort = new AbortController();
  /** When a look was answered last, on the monotonic clock. */
  #seenAt = Number.NEGATIVE_INFINITY;
  /** The look that is under way. After one that failed no object is written any more. */
  #look: Promise<void> | undefined;
  #failure: unknown;

  constructor(context: RunContext, crdName: string) {
    this.#context = { ...context, signal: AbortSignal.any([context.signal, this.#abort.signal]) };
    this.#crdName = crdName;
  }

  /**
   * To be awaited before an object is written: resolves where a look saw the storage version listed a moment ago, and what confirms
   * the Lease of the run has passed.
   * @throws {KsvmError} ResourceNotMigratable where it is not listed; {WaitingForOthers} where the CRD cannot be read.
   * @throws what `confirm` throws.
   */
  async passed(confirm: Fence): Promise<void> {
    do {
      if (this.#ageMs >= LOOK_EVERY_MS) {
        this.#look ??= this.#lookOnce();
        await (this.#ageMs >= MAX_AGE_MS ? this.#look : undefined);
      }
      await confirm();
      if (this.#failure !== undefined) {
        throw this.#failure;
      }
      // That may have taken long.
    } while (this.#ageMs >= MAX_AGE_MS);
  }

  get #ageMs(): number {
    return this.#context.clock.monotonic() - this.#seenAt;
  }

  /**
   * Looks at the CRD as it is now. A look costs as much as the CRD is large.
   * @throws as {@link passed}.
   */
  async look(): Promise<void> {
    await assertStorageVersionListed(this.#context, this.#crdName);
    this.#seenAt = this.#context.clock.monotonic();
  }

  #lookOnce(): Promise<void> {
    const look = this.look()
      .then(() => (this.#look = undefined))
      .catch((error: unknown) => {
        const what = "it cannot be seen whether storedVersions lists the storage version";
        this.#failure = besidesObjects(this.#crdName, what, error);
        throw this.#failure;
      });
    look.catch(() => undefined);
    return look;
  }

  /** Waits for a look that is under way. Nothing is sent after that. */
  async end(): Promise<void> {
    this.#abort.abort();
    await this.#look?.catch(() => undefined);
  }
}
