import { resourceNameOf } from "../api/migration.ts";
import type { RunLease } from "../lease/run-lease.ts";
import type { ServedResource } from "../resources/migratable.ts";
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
import { type EarlierRun, earlierProgressOf } from "./rewrite/checkpoint.ts";
import type { Settled } from "./rewrite/rewrite-pass.ts";
import type { RunContext } from "./run-context.ts";

const NOT_USED = "the checkpoint of a killed run is not used";

/**
 * The checkpoint of a run of `ksvm reencrypt`, which another process may go on from where its user asks for that and it can prove that nothing changed: every
 * API server encrypts as it did, by one and the same process, and none joined or left all the while. An API server that came with
 * another key, wrote and left would show in nothing else: so the run that was killed watched the identity Leases from before its
 * first look, this one watches them from before its own, and what came in between the events that API servers keep have to tell.
 */
export class KeptProgress {
  readonly #lease: RunLease;
  readonly #resource: string;
  #earlier: KeptCheckpoint | undefined;
  readonly #isAsked: boolean;
  /** Whether none joined or left until this run began, and how many had come and gone then. */
  #before = { isQuiet: false, arrivals: 0 };

  /** @param options `isAsked` says that the user of this run believes what the Lease has: nothing proves who wrote it */
  constructor(lease: RunLease, resource: ServedResource, { isAsked }: { readonly isAsked: boolean }) {
    this.#lease = lease;
    this.#isAsked = isAsked;
    this.#resource = resourceNameOf(resource);
    this.#earlier = parseKept(lease.checkpoint);
  }

  /**
   * Looks at what came since the killed run. To be called before anything is waited for: API servers keep events for about a
   * minute, and late writes are waited for longer than that.
   */
  async lookBack(context: RunContext): Promise<void> {
    if (this.#earlier !== undefined && this.#isAsked) {
      // Counted first: what comes from here on is counted.
      const { count: arrivals } = context.arrivals;
      const isQuiet = await context.arrivals.wasQuietSince(context, this.#earlier.quietUpTo);
      this.#before = { isQuiet, arrivals };
    }
  }

  /**
   * Where a killed run stood, if the user asks for that and it can be proven that nothing changed since; else its checkpoint is taken back. To be called
   * once the foundation is laid.
   * @throws as {@link forget}
   */
  async earlier(context: RunContext, foundation: Foundation): Promise<EarlierRun | undefined> {
    const earlier = this.#earlier;
    if (earlier === undefined) {
      return undefined;
    }
    if (!this.#isAsked) {
      this.#earlier = undefined;
      context.emit({
        type: "startingAgain",
        reason: `${NOT_USED}: nothing proves who wrote it, and --resume was not passed`,
      });
      return undefined;
    }
    const reason =
      differenceFrom(earlier, this.#expected(context, foundation)) ??
      ((await this.#isQuietStill(context))
        ? undefined
        : "nothing proves any more that no API server joined and left since");
    if (reason !== undefined) {
      context.emit({ type: "startingAgain", reason: `${NOT_USED}: ${reason}` });
      // What this process has seen another one may not see any more.
      await this.forget(context);
      return undefined;
    }
    return earlierRunOf(earlier);
  }

  /**
   * Keeps how far the run is; nothing where it is not known that no API server joined or left.
   * @throws as `RunLease.saveCheckpoint()`.
   */
  async save(
    context: RunContext,
    foundation: Foundation,
    { point, position, tally: { counts } }: Settled,
  ): Promise<void> {
    const { count, seenTo } = context.arrivals;
    if (count !== foundation.arrivals || seenTo === "") {
      return;
    }
    const progress = point.continueToken === undefined ? undefined : earlierProgressOf(counts, position.state);
    const kept = { ...this.#expected(context, foundation), quietUpTo: seenTo, ...point, progress };
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

  async #isQuietStill(context: RunContext): Promise<boolean> {
    const { arrivals, isQuiet } = this.#before;
    if (!isQuiet) {
      return false;
    }
    await context.arrivals.catchUp(context);
    return context.arrivals.count === arrivals;
  }

  #expected({ options, purpose }: RunContext, foundation: Foundation): KeptExpectation {
    const { settleMs, shutdownDelayMs } = options;
    const waited = shutdownDelayMs === undefined ? { settleMs } : { settleMs, shutdownDelayMs };
    return { purpose, resource: this.#resource, foundation: digestOfFoundation(foundation), ...waited };
  }
}
