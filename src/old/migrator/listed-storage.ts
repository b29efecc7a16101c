import { isDeepStrictEqual } from "node:util";
import {
  conversionBesidesBundle,
  type CustomResourceDefinition,
  requestVersionOf,
  specKeyOf,
  storageVersionOf,
} from "../../api/crd.ts";
import { resourceNameOf } from "../../api/migration.ts";
import { KsvmError } from "../../errors.ts";
import type { Fence } from "../kube/transport-options.ts";
import type { ServedResource } from "../../resources/migratable.ts";
import { readCrd } from "../../resources/read-crd.ts";
import { droppingWrites, writtenByCrd } from "../../resources/request-resource.ts";
import type { StartAgain } from "../retry/start-again.ts";
import { CrdLooks } from "./crd-looks.ts";
import { unlistedStorage } from "./foreign-prunes.ts";
import { changedDuringRun } from "./foundation.ts";
import type { ObjectReads } from "./rewrite/rewrite-context.ts";
import type { RunContext } from "./run-context.ts";

/**
 * Of a CRD that is only rewritten, other clients write storedVersions, and may take the storage version out at any time: then no object
 * may be written in it (S1). Nor may one be written where the storage version changes: an API server that is behind goes on to store the one
 * of before, which another client may have taken out by then, or where the conversion changes: that API server goes on to convert as before. What the
 * run rests on did not last anyway.
 *
 * An object that the run reads after a look may be stored in a storage version that this look does not know, with fields that the version of the
 * run lacks: the run writes no object before a look that began after it read that object.
 *
 * An API server that is behind serves the objects of a CRD that is deleted: a run that finds no CRD then, and one a moment later, knows nothing
 * of what the CRD lists.
 */
class ListedStorage implements ObjectReads {
  readonly #crdName: string;
  readonly #looks: CrdLooks;
  /** The version in which the run writes objects; `undefined` where no CRD may be there. */
  readonly #requestVersion: string | undefined;
  readonly #abort = new AbortController();
  /** The CRD as a look showed it last. */
  #seen: CustomResourceDefinition | undefined;
  /** Why no object is written any more. */
  #stopped: Error | undefined;

  /** @param crd as the attempt knows it. @default none may be there */
  constructor(context: RunContext, crdName: string, crd?: CustomResourceDefinition) {
    this.#crdName = crdName;
    this.#requestVersion = crd && requestVersionOf(crd);
    this.#seen = crd;
    const signal = AbortSignal.any([context.signal, this.#abort.signal]);
    this.#looks = new CrdLooks({ ...context, signal }, crdName, (seen) => this.#saw(seen));
  }

  /**
   * To be awaited before an object is written: resolves where a look saw the storage version listed a moment ago, and what confirms
   * the Lease of the run has passed.
   * @throws {KsvmError} ResourceNotMigratable where it is not listed, or as {@link droppingWrites}; CrdReplaced where a CRD is there that was not; as `CrdLooks.recent()`.
   * @throws {StartAgain} where it changed, or how objects are converted; where it is another CRD.
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

  /** The run has read a page of objects, which it may write: see {@link ListedStorage}. */
  pageRead(): void {
    this.#looks.outdate();
  }

  /**
   * The run awaits this after it has read one object again, and before it writes it. Writes of other objects go on.
   * @throws as {@link passed}
   */
  async objectRead(): Promise<void> {
    await this.#looks.fromNow();
    this.#assertNotStopped();
  }

  /** Nothing is sent after that. */
  end(): void {
    this.#abort.abort();
  }

  #saw(crd: CustomResourceDefinition): void {
    const version = this.#requestVersion;
    this.#stopped ??=
      version === undefined
        ? crdCreated(this.#crdName)
        : (unlistedStorage(crd) ??
          this.#changedFrom(this.#seen ?? crd, crd) ??
          droppingWrites(crd, version) ??
          this.#versionsChangedFrom(this.#seen ?? crd, crd));
    this.#seen = crd;
  }

  #changedFrom(before: CustomResourceDefinition, crd: CustomResourceDefinition): StartAgain | undefined {
    if (before.metadata.uid !== crd.metadata.uid) {
      return changedDuringRun(this.#crdName, "the CRD was deleted and created again");
    }
    const [from, to] = [storageVersionOf(before), storageVersionOf(crd)];
    if (from !== to) {
      return changedDuringRun(this.#crdName, `its storage version changed from "${from}" to "${to}"`);
    }
    const isSame = isDeepStrictEqual(conversionBesidesBundle(before), conversionBesidesBundle(crd));
    return isSame ? undefined : changedDuringRun(this.#crdName, "its spec.conversion changed");
  }

  /** An API server that has not followed a schema yet prunes the fields that this one has and the one before has not. */
  #versionsChangedFrom(before: CustomResourceDefinition, crd: CustomResourceDefinition): StartAgain | undefined {
    const areSame = isDeepStrictEqual(before.spec.versions, crd.spec.versions);
    return areSame ? undefined : changedDuringRun(this.#crdName, "its spec.versions changed");
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

/** How an attempt writes. */
export interface UnfrozenAttempt {
  /** What is written, by the CRD as it is now. */
  readonly resource: ServedResource;
  /** Writes through clients besides that of the context have to await it. */
  readonly fence: Fence;
  /** Is to look at the CRD before the first write and at the end. @default the resource cannot have a CRD */
  readonly listed?: ListedStorage;
}

/**
 * Does work that writes objects without a freeze. Where there is a CRD, or may be one, nothing is written but as a {@link ListedStorage} lets it.
 * @throws {ApiError} NotFound where the CRD is gone; {KsvmError} as `writtenByCrd()`; what `work` throws.
 */
export async function whileListed<T>(
  context: RunContext,
  { resource, crdName, fence }: UnfrozenWrites,
  work: (context: RunContext, attempt: UnfrozenAttempt) => Promise<T>,
): Promise<T> {
  // No CRD has a group without a dot.
  if (crdName === undefined && !resource.group.includes(".")) {
    return await work(context, { resource, fence });
  }
  const crd = crdName === undefined ? undefined : await readCrd(context, crdName);
  const written = crd === undefined ? resource : writtenByCrd(crd);
  const listed = new ListedStorage(context, resourceNameOf(resource), crd);
  const both: Fence = () => listed.passed(fence);
  const writing = { ...context, client: context.client.fencedBy(both), reads: listed };
  try {
    return await work(writing, { resource: written, fence: both, listed });
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
