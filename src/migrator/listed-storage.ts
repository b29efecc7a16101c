import type { CustomResourceDefinition } from "../api/crd.ts";
import type { Fence } from "../kube/transport-options.ts";
import { CrdLooks } from "./crd-looks.ts";
import { unlistedStorage } from "./foreign-prunes.ts";
import type { RunContext } from "./run-context.ts";

/**
 * Of a CRD that is only rewritten, other clients write storedVersions, and may take the storage version out at any time: then no object
 * may be written in it (S1).
 */
export class ListedStorage {
  readonly #looks: CrdLooks;
  readonly #abort = new AbortController();
  /** Why no object is written any more. */
  #unlisted: Error | undefined;

  constructor(context: RunContext, crdName: string) {
    const signal = AbortSignal.any([context.signal, this.#abort.signal]);
    this.#looks = new CrdLooks({ ...context, signal }, crdName, (crd) => this.#saw(crd));
  }

  /**
   * To be awaited before an object is written: resolves where a look saw the storage version listed a moment ago, and what confirms
   * the Lease of the run has passed.
   * @throws {KsvmError} ResourceNotMigratable where it is not listed; as `CrdLooks.recent()`.
   * @throws what `confirm` throws.
   */
  async passed(confirm: Fence): Promise<void> {
    do {
      await this.#looks.recent();
      await confirm();
      this.#assertListed();
      // That may have taken long.
    } while (this.#looks.areOld);
  }

  /**
   * Looks at the CRD as it is now.
   * @throws {KsvmError} ResourceNotMigratable where the storage version is not listed; as `CrdLooks.now()`.
   */
  async look(): Promise<void> {
    await this.#looks.now();
    this.#assertListed();
  }

  /** Nothing is sent after that. */
  end(): void {
    this.#abort.abort();
  }

  #saw(crd: CustomResourceDefinition): void {
    this.#unlisted ??= unlistedStorage(crd);
  }

  #assertListed(): void {
    if (this.#unlisted !== undefined) {
      throw this.#unlisted;
    }
  }
}
