import { resourceNameOf } from "../api/migration.ts";
import type { ServedResource } from "../resources/migratable.ts";
import { BuiltInEvidence } from "./built-in-evidence.ts";
import { changeBetween, type Foundation } from "./foundation.ts";
import type { ResumePoint } from "./rewrite/checkpoint.ts";
import { Tally } from "./rewrite/counts.ts";
import type { ListPosition } from "./rewrite/list-position.ts";
import { type MigrationResult, outcomeOf, reportOf } from "./result.ts";
import { rewriteAll } from "./rewrite-all.ts";
import type { RunContext } from "./run-context.ts";
import { ServerRestarts } from "../apiservers/server-restarts.ts";

/** Where an attempt stood after its last whole page. */
interface Left {
  readonly foundation: Foundation;
  readonly point: ResumePoint;
  readonly tally: Tally;
  readonly position: ListPosition;
}

/**
 * The migration of a resource that is not frozen: steps 3 to 6 of DESIGN.md, and 3 again. Where it stands is kept in memory
 * alone, for the next attempt of the same run: another process could not tell whether an encryption key was rotated since.
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
   * @throws {StartAgain | WaitingForOthers} where the run should begin again at step 1, at once or later.
   */
  async attempt(context: RunContext): Promise<MigrationResult> {
    const resource = this.#resource;
    const evidence = new BuiltInEvidence(context, {
      resource,
      crdName: this.#crdName,
      restarts: this.#restarts,
    });
    const foundation = await evidence.prove();
    const tally = await this.#rewrite(context, foundation);
    await evidence.repeat();
    const { encryption } = context;
    return {
      resource: resourceNameOf(resource),
      outcome: outcomeOf(tally, "migrated"),
      ...(foundation.crd === "" ? {} : { crd: foundation.crd }),
      ...(encryption?.found === undefined ? {} : { encryption: encryption.found.configHash }),
      ...reportOf(tally),
    };
  }

  /** Has the next attempt begin at the first object: what this one rested on did not last. */
  forget(): void {
    this.#left = undefined;
  }

  async #rewrite(context: RunContext, foundation: Foundation): Promise<Tally> {
    const isStanding = this.#left !== undefined && changeBetween(this.#left.foundation, foundation) === undefined;
    const left = isStanding ? this.#left : undefined;
    // What an attempt did after its last page is looked at again, and counted then.
    const tally = new Tally(left?.tally);
    const resume = left?.point;
    if (resume !== undefined) {
      context.emit({ type: "resumed", watermark: resume.watermark, counts: { ...tally.counts } });
    }
    await rewriteAll(context, this.#resource, {
      tally,
      resume,
      position: left?.position,
      onPage: async (point, position) => {
        const { watermark, continueToken } = point;
        // A failed object lies before the token, so an attempt that goes on from there would miss it.
        const token = continueToken === undefined || tally.counts.failed > 0 ? {} : { continueToken };
        this.#left = { foundation, point: { watermark, ...token }, tally: new Tally(tally), position };
        await context.onPageDone?.(point);
      },
    });
    return tally;
  }
}
