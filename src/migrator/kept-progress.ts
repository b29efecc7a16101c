import { resourceNameOf } from "../api/migration.ts";
import { IdentityWatch } from "../apiservers/identity-watch.ts";
import type { RunLease } from "../lease/run-lease.ts";
import type { ServedResource } from "../resources/migratable.ts";
import { StartAgain } from "../retry/start-again.ts";
import type { Foundation } from "./foundation.ts";
import {
  differenceFrom,
  digestOfFoundation,
  earlierRunOf,
  formatKept,
  type KeptCheckpoint,
  type KeptExpectation,
  parseKept,
} from "./kept-checkpoint.ts";
import { type EarlierRun, earlierProgressOf, type ResumePoint } from "./rewrite/checkpoint.ts";
import type { Counts } from "./rewrite/counts.ts";
import type { ListPosition } from "./rewrite/list-position.ts";
import type { RunContext } from "./run-context.ts";

/** How far a run is. */
export interface KeptPoint {
  readonly point: ResumePoint;
  readonly counts: Counts;
  readonly position: ListPosition;
}

interface Parts {
  readonly lease: RunLease;
  readonly resource: string;
  readonly watch: IdentityWatch;
  readonly earlier: KeptCheckpoint | undefined;
}

/**
 * The checkpoint of a run of `ksvm reencrypt`, which another process may go on from where it can prove that nothing changed: every
 * API server encrypts as it did, by one and the same process, and none joined or left all the while. An API server that came with
 * another key, wrote and left would show in nothing else, so the identity Leases are watched without a gap, from before the
 * first look of the run that was killed.
 */
export class KeptProgress {
  readonly #lease: RunLease;
  readonly #resource: string;
  readonly #watch: IdentityWatch;
  #earlier: KeptCheckpoint | undefined;
  /** The resourceVersion of the identity Leases before the foundation was laid. */
  #since = "";
  /** The same before the attempt that is under way. */
  #now = "";

  private constructor({ earlier, lease, resource, watch }: Parts) {
    this.#lease = lease;
    this.#resource = resource;
    this.#watch = watch;
    this.#earlier = earlier;
  }

  /** @returns `undefined` where nothing proves how API servers encrypt, or which of them there are */
  static async begin(
    context: RunContext,
    lease: RunLease,
    resource: ServedResource,
  ): Promise<KeptProgress | undefined> {
    if (context.encryption?.readsMetrics !== true) {
      return undefined;
    }
    const earlier = parseKept(lease.checkpoint);
    const watch = await IdentityWatch.begin(context, earlier?.quietUpTo);
    return watch && new KeptProgress({ lease, resource: resourceNameOf(resource), watch, earlier });
  }

  /** To be called before the first look of each attempt. */
  async beginAttempt(): Promise<void> {
    this.#now = await this.#watch.now();
  }

  /** An attempt goes on from nothing, and what it proves is as of now. */
  startOver(): void {
    this.#earlier = undefined;
    this.#since = this.#now;
  }

  /** Whether an API server was seen to join or leave since the foundation was laid. */
  get hasChanged(): boolean {
    return this.#watch.hasChangedSince(this.#since);
  }

  /**
   * Where a killed run stood, if it can be proven that nothing changed since; else its checkpoint is taken back. To be called
   * once the foundation is laid.
   * @throws as {@link forget}
   */
  async earlier(context: RunContext, foundation: Foundation): Promise<EarlierRun | undefined> {
    const earlier = this.#earlier;
    if (earlier === undefined) {
      return undefined;
    }
    const reason =
      differenceFrom(earlier, this.#expected(context, foundation)) ??
      ((await this.#watch.wasQuietUntilNow(earlier.quietUpTo))
        ? undefined
        : "nothing proves any more that no API server joined and left since");
    if (reason !== undefined) {
      context.emit({ type: "startingAgain", reason: `the checkpoint of a killed run is not used: ${reason}` });
      // What this process has seen another one may not see any more.
      await this.forget(context);
      return undefined;
    }
    this.#since = earlier.quietUpTo;
    return earlierRunOf(earlier);
  }

  /**
   * Keeps how far the run is; nothing where it is not known that no API server joined or left.
   * @throws as `RunLease.saveCheckpoint()`.
   */
  async save(context: RunContext, foundation: Foundation, { counts, point, position }: KeptPoint): Promise<void> {
    if (!this.#watch.isQuietSince(this.#since)) {
      return;
    }
    const progress = point.continueToken === undefined ? undefined : earlierProgressOf(counts, position.state);
    const kept = { ...this.#expected(context, foundation), quietUpTo: this.#watch.seenTo, ...point, progress };
    await this.#lease.saveCheckpoint(formatKept(kept), context);
  }

  /**
   * Takes back what was kept: no process may go on from there.
   * @throws as `RunLease.voidCheckpoint()`.
   */
  async forget(context: RunContext): Promise<void> {
    this.#earlier = undefined;
    await this.#lease.voidCheckpoint(context);
  }

  /** @throws {StartAgain} where an API server joined or left, also one that did both. */
  assertQuiet(): void {
    if (this.hasChanged) {
      const text = `Cannot call "${this.#resource}" migrated: an API server joined or left during the run; run again`;
      throw new StartAgain("NotConverged", text);
    }
  }

  /** Ends the watch. */
  async stop(): Promise<void> {
    await this.#watch.stop();
  }

  #expected({ options, purpose }: RunContext, foundation: Foundation): KeptExpectation {
    const { settleMs } = options;
    return { purpose, resource: this.#resource, foundation: digestOfFoundation(foundation), settleMs };
  }
}
