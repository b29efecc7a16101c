import { resourceNameOf } from "../api/migration.ts";
import type { ServedResource } from "../resources/migratable.ts";
import { BuiltInEvidence } from "./built-in-evidence.ts";
import { changeBetween, type Foundation } from "./foundation.ts";
import { KeptProgress } from "./kept-progress.ts";
import type { Fence } from "../kube/transport-options.ts";
import type { RunLease } from "../lease/run-lease.ts";
import type { ResumePoint } from "./rewrite/checkpoint.ts";
import { Tally } from "./rewrite/counts.ts";
import { ListPosition } from "./rewrite/list-position.ts";
import { type UnfrozenAttempt, whileListed } from "./listed-storage.ts";
import { type MigrationResult, outcomeOf, reportOf } from "./result.ts";
import { rewriteAll } from "./rewrite-all.ts";
import type { Settled } from "./rewrite/rewrite-pass.ts";
import type { RunContext } from "./run-context.ts";
import { shownStorageOf } from "./shown-storage.ts";
import { ServerRestarts } from "../apiservers/server-restarts.ts";

/** Where an attempt stood after its last whole page. */
interface Left extends Settled {
  readonly foundation: Foundation;
}

/** Where an attempt goes on. */
interface Start {
  readonly resume?: ResumePoint | undefined;
  readonly tally: Tally;
  readonly position?: ListPosition | undefined;
  /** Whether another process stood there. */
  readonly isEarlier?: true;
}

/**
 * The migration of a resource that is not frozen: steps 3 to 6 of DESIGN.md, and 3 again. Where it stands is kept in memory
 * for the next attempt of the same run, and in the Lease for another process whose user asks for that and which can prove that no
 * encryption key was rotated since, see `KeptProgress`.
 */
export class BuiltInRun {
  readonly #resource: ServedResource;
  readonly #crdName: string | undefined;
  readonly #restarts = new ServerRestarts();
  #left: Left | undefined;
  #context: RunContext | undefined;
  /** `undefined` until the first attempt, and where nothing is kept. */
  #kept: KeptProgress | undefined;
  #keepsNothing = false;

  /** @param crdName the CRD of a custom resource that is only rewritten */
  constructor(resource: ServedResource, crdName: string | undefined) {
    this.#resource = resource;
    this.#crdName = crdName;
  }

  /**
   * One attempt.
   * @throws {KsvmError} NotConverged where the API servers disagree on the storage version.
   * @throws {KsvmError} ResourceNotMigratable where storedVersions lacks the storage version of the CRD; CrdReplaced where the resource has a
   *   CRD by now.
   * @throws {StartAgain | WaitingForOthers} where the run should begin again at step 1, at once or later.
   */
  attempt(context: RunContext, fence: Fence, lease: RunLease): Promise<MigrationResult> {
    const writes = { resource: this.#resource, crdName: this.#crdName, fence };
    return whileListed(context, writes, (fenced, attempt) => this.#attempt(fenced, lease, attempt));
  }

  async #attempt(
    context: RunContext,
    lease: RunLease,
    { resource, listed }: UnfrozenAttempt,
  ): Promise<MigrationResult> {
    await this.#begin(context, lease);
    const evidence = new BuiltInEvidence(context, {
      resource,
      crdName: this.#crdName,
      restarts: this.#restarts,
    });
    const foundation = await evidence.prove();
    await listed?.look(foundation.crd);
    if ((evidence.apiServers?.ignored ?? []).length > 0) {
      // That an API server is gone is what the user of this process says, and nothing that another one could prove.
      [this.#kept, this.#keepsNothing] = [undefined, true];
    }
    const start = await this.#startOf(context, foundation);
    const isResumed = await this.#rewrite(context, { resource, foundation, start });
    await evidence.repeat();
    await listed?.look();
    // Where objects were rejected, it is not called re-encrypted anyway, and they are named.
    const { failed, migrated, newer } = start.tally.counts;
    const found = context.encryption?.foundFor(resourceNameOf(resource), failed + migrated + newer);
    return {
      resource: resourceNameOf(resource),
      outcome: outcomeOf(start.tally, "migrated"),
      ...(foundation.crd === "" ? {} : { crd: foundation.crd }),
      ...shownStorageOf(found, this.#crdName),
      ...(isResumed ? { isResumed } : {}),
      ...reportOf(start.tally),
    };
  }

  /** Nothing is kept where nothing proves how API servers encrypt, or no user can ask to go on there. */
  async #begin(context: RunContext, lease: RunLease): Promise<void> {
    this.#context = context;
    const { encryption, resumption } = context;
    const isKept = encryption?.readsMetrics === true && resumption !== undefined && !this.#keepsNothing;
    if (isKept && this.#kept === undefined) {
      this.#kept = new KeptProgress(lease, this.#resource, { isAsked: resumption === "asked" });
      await this.#kept.lookBack(context);
    }
  }

  /** Has the next attempt begin at the first object, in this process and any other: what this one rested on did not last. */
  async forget(): Promise<void> {
    this.#left = undefined;
    if (this.#context !== undefined) {
      await this.#kept?.forget(this.#context);
    }
  }

  async #startOf(context: RunContext, foundation: Foundation): Promise<Start> {
    const left = this.#left;
    if (left !== undefined && !changeBetween(left.foundation, foundation)) {
      // What an attempt did after its last page is looked at again, and counted then.
      return { resume: left.point, tally: new Tally(left.tally), position: left.position };
    }
    this.#left = undefined;
    const earlier = await this.#kept?.earlier(context, foundation);
    if (earlier === undefined) {
      return { tally: new Tally() };
    }
    const { progress, ...resume } = earlier;
    const position = new ListPosition(progress?.position);
    return { resume, tally: Tally.after(progress?.counts), position, isEarlier: true };
  }

  /** @returns whether it went on from where another process stood */
  async #rewrite(
    context: RunContext,
    {
      resource,
      foundation,
      start,
    }: { readonly resource: ServedResource; readonly foundation: Foundation; readonly start: Start },
  ): Promise<boolean> {
    const { isEarlier = false, position, resume, tally } = start;
    if (resume !== undefined) {
      context.emit({ type: "resumed", watermark: resume.watermark, counts: { ...tally.counts } });
    }
    const isResumed = await rewriteAll(context, resource, {
      tally,
      resume,
      position,
      onPage: async (settled) => {
        this.#left = { foundation, ...settled };
        await this.#kept?.save(context, foundation, settled);
        await context.onPageDone?.(settled.point);
      },
    });
    return isResumed && isEarlier;
  }
}
