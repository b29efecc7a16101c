import { resourceNameOf } from "../../api/migration.ts";
import type { ServedResource } from "../../resources/migratable.ts";
import { BuiltInEvidence } from "./built-in-evidence.ts";
import { changeBetween, type Foundation } from "./foundation.ts";
import type { Fence } from "../kube/transport-options.ts";
import type { ResumePoint } from "./rewrite/checkpoint.ts";
import { Tally } from "./rewrite/counts.ts";
import type { ListPosition } from "./rewrite/list-position.ts";
import { type UnfrozenAttempt, whileListed } from "./listed-storage.ts";
import { type MigrationResult, outcomeOf, reportOf } from "./result.ts";
import { rewriteAll } from "./rewrite-all.ts";
import type { Settled } from "./rewrite/rewrite-pass.ts";
import type { RunContext } from "./run-context.ts";
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
}

/**
 * The migration of a resource that is not frozen: steps 3 to 6 of DESIGN.md, and 3 again. Where it stands is kept in memory
 * for the next attempt of the same run; another process begins at the first object.
 */
export class BuiltInRun {
  readonly #resource: ServedResource;
  readonly #crdName: string | undefined;
  readonly #restarts = new ServerRestarts();
  #left: Left | undefined;

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
  attempt(context: RunContext, fence: Fence): Promise<MigrationResult> {
    const writes = { resource: this.#resource, crdName: this.#crdName, fence };
    return whileListed(context, writes, (fenced, attempt) => this.#attempt(fenced, attempt));
  }

  async #attempt(context: RunContext, { resource, listed }: UnfrozenAttempt): Promise<MigrationResult> {
    const evidence = new BuiltInEvidence(context, {
      resource,
      crdName: this.#crdName,
      restarts: this.#restarts,
    });
    const foundation = await evidence.prove();
    await listed?.look(foundation.crd);
    const start = this.#startOf(foundation);
    await this.#rewrite(context, { resource, foundation, start });
    await evidence.repeat();
    await listed?.look();
    const encryption = context.encryption?.found?.configHash;
    return {
      resource: resourceNameOf(resource),
      outcome: outcomeOf(start.tally, "migrated"),
      ...(foundation.crd === "" ? {} : { crd: foundation.crd }),
      ...(encryption === undefined ? {} : { encryption }),
      ...reportOf(start.tally),
    };
  }

  /** Has the next attempt begin at the first object: what this one rested on did not last. */
  forget(): void {
    this.#left = undefined;
  }

  #startOf(foundation: Foundation): Start {
    const left = this.#left;
    if (left !== undefined && !changeBetween(left.foundation, foundation)) {
      // What an attempt did after its last page is looked at again, and counted then.
      return { resume: left.point, tally: new Tally(left.tally), position: left.position };
    }
    this.#left = undefined;
    return { tally: new Tally() };
  }

  async #rewrite(
    context: RunContext,
    {
      resource,
      foundation,
      start,
    }: { readonly resource: ServedResource; readonly foundation: Foundation; readonly start: Start },
  ): Promise<void> {
    const { position, resume, tally } = start;
    if (resume !== undefined) {
      context.emit({ type: "resumed", watermark: resume.watermark, counts: { ...tally.counts } });
    }
    await rewriteAll(context, resource, {
      tally,
      resume,
      position,
      onPage: async (settled) => {
        this.#left = { foundation, ...settled };
        await context.onPageDone?.(settled.point);
      },
    });
  }
}
