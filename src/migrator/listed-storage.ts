import { isDeepStrictEqual } from "node:util";
import { conversionBesidesBundle, type CustomResourceDefinition, specKeyOf, storageVersionOf } from "../api/crd.ts";
import { resourceNameOf } from "../api/migration.ts";
import { KsvmError } from "../errors.ts";
import type { Fence } from "../kube/transport-options.ts";
import type { ServedResource } from "../resources/migratable.ts";
import { droppingWrites } from "../resources/request-resource.ts";
import type { StartAgain } from "../retry/start-again.ts";
import { CrdLooks } from "./crd-looks.ts";
import { unlistedStorage } from "./foreign-prunes.ts";
import { changedDuringRun } from "./foundation.ts";
import type { RunContext } from "./run-context.ts";

/** What a {@link ListedStorage} is told of the run. */
export interface ListedStorageOptions {
  /** Whether it knows the CRD; else none may be there. @default true */
  readonly isThere?: boolean;
  /** The version that it writes through. @default it is not looked whether that keeps all fields */
  readonly requestVersion?: string;
}

/**
 * Of a CRD that is only rewritten, other clients write storedVersions, and may take the storage version out at any time: then no object
 * may be written in it (S1). Nor may one be written where the storage version changes: an API server that is behind goes on to store the one
 * of before, which another client may have taken out by then, or where the conversion changes: that API server goes on to convert as before. What the
 * run rests on did not last anyway.
 *
 * An API server that is behind serves the objects of a CRD that is deleted: a run that finds no CRD then, and one a moment later, knows nothing
 * of what the CRD lists.
 */
export class ListedStorage {
  readonly #crdName: string;
  readonly #looks: CrdLooks;
  readonly #isThere: boolean;
  readonly #requestVersion: string | undefined;
  readonly #abort = new AbortController();
  /** The CRD as a look showed it last. */
  #seen: CustomResourceDefinition | undefined;
  /** Why no object is written any more. */
  #stopped: Error | undefined;

  constructor(context: RunContext, crdName: string, { isThere = true, requestVersion }: ListedStorageOptions = {}) {
    this.#crdName = crdName;
    this.#isThere = isThere;
    this.#requestVersion = requestVersion;
    const signal = AbortSignal.any([context.signal, this.#abort.signal]);
    this.#looks = new CrdLooks({ ...context, signal }, crdName, (crd) => this.#saw(crd));
  }

  /**
   * To be awaited before an object is written: resolves where a look saw the storage version listed a moment ago, and what confirms
   * the Lease of the run has passed.
   * @throws {KsvmError} ResourceNotMigratable where it is not listed, or as {@link droppingWrites}; CrdReplaced where a CRD is there that was not; as `CrdLooks.recent()`.
   * @throws {StartAgain} where it changed, or how objects are converted.
   * @throws what `confirm` throws.
   */
  async passed(confirm: Fence): Promise<void> {
    do {
      await this.#looks.recent();
      await confirm();
      this.#assertNotStopped();
      // That may have taken long.
    } while (this.#looks.areOld);
  }

  /**
   * Looks at the CRD as it is now.
   * @param proven `uid/generation` of the CRD that the run has proven something of. @default as it is
   * @throws {KsvmError} ResourceNotMigratable where the storage version is not listed; CrdReplaced where a CRD is there that was not; as
   *   `CrdLooks.now()`.
   * @throws {StartAgain} where it is another CRD, or as {@link passed}.
   */
  async look(proven?: string): Promise<void> {
    await this.#looks.now();
    this.#assertNotStopped();
    if (proven !== undefined && this.#seen !== undefined && specKeyOf(this.#seen.metadata) !== proven) {
      throw changedDuringRun(this.#crdName, "the CRD changed");
    }
  }

  /** Nothing is sent after that. */
  end(): void {
    this.#abort.abort();
  }

  #saw(crd: CustomResourceDefinition): void {
    this.#stopped ??= this.#isThere
      ? (unlistedStorage(crd) ?? this.#changedFrom(this.#seen ?? crd, crd) ?? this.#droppingWrites(crd))
      : crdCreated(this.#crdName);
    this.#seen = crd;
  }

  #droppingWrites(crd: CustomResourceDefinition): KsvmError | undefined {
    return this.#requestVersion === undefined ? undefined : droppingWrites(crd, this.#requestVersion);
  }

  #changedFrom(before: CustomResourceDefinition, crd: CustomResourceDefinition): StartAgain | undefined {
    const [from, to] = [storageVersionOf(before), storageVersionOf(crd)];
    if (from !== to) {
      return changedDuringRun(this.#crdName, `its storage version changed from "${from}" to "${to}"`);
    }
    const isSame = isDeepStrictEqual(conversionBesidesBundle(before), conversionBesidesBundle(crd));
    return isSame ? undefined : changedDuringRun(this.#crdName, "its spec.conversion changed");
  }

  #assertNotStopped(): void {
    if (this.#stopped !== undefined) {
      throw this.#stopped;
    }
  }
}

/** What is written without a freeze, and what confirms the Lease of the run. */
export interface UnfrozenWrites {
  readonly resource: ServedResource;
  /** The CRD of a custom resource. */
  readonly crdName: string | undefined;
  readonly fence: Fence;
}

/**
 * Does work that writes objects without a freeze. Where there is a CRD, or may be one, nothing is written but as a {@link ListedStorage} lets it.
 *
 * @param work its writes through clients besides that of its context have to await `fence`; `listed` is to look at the CRD before the first
 *   write and at the end
 */
export async function whileListed<T>(
  context: RunContext,
  { resource, crdName, fence }: UnfrozenWrites,
  work: (context: RunContext, fence: Fence, listed?: ListedStorage) => Promise<T>,
): Promise<T> {
  // No CRD has a group without a dot.
  if (crdName === undefined && !resource.group.includes(".")) {
    return await work(context, fence);
  }
  const listed = new ListedStorage(context, resourceNameOf(resource), {
    isThere: crdName !== undefined,
    requestVersion: resource.version,
  });
  const both: Fence = () => listed.passed(fence);
  try {
    return await work({ ...context, client: context.client.fencedBy(both) }, both, listed);
  } finally {
    listed.end();
  }
}

/** The error of a run on a resource that had no CRD when it began, and has one now: it is neither frozen nor pruned. */
export function crdCreated(crdName: string): KsvmError {
  return new KsvmError(
    "CrdReplaced",
    `Cannot continue with "${crdName}": its CRD was created during the run; run again`,
  );
}
