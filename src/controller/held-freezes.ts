import type { Logger } from "pino";
import { freezerOf } from "../api/owner.ts";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { CRDS } from "../old/kube/resources.ts";
import type { Metrics } from "../observability/metrics.ts";

/** What {@link HeldFreezes} need. */
export interface HeldFreezesOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, "freezeStarted">;
  /** Of this replica: its runs put it before their own. */
  readonly identity: string;
}

/** How often a freeze whose run has ended is looked for, in milliseconds. */
const LOOK_EVERY_MS = 15_000;

/**
 * The freezes that the runs of this replica set, as the metric shows them. Where a run ends and could not lift its freeze,
 * the freeze is shown until a read of the CRD proves that it is not there any more, or is another owner's; also after this
 * replica has lost its Lease.
 */
export class HeldFreezes {
  readonly #options: HeldFreezesOptions;
  /** By the CRD's name: whether the run still goes on. */
  readonly #held = new Map<string, boolean>();

  constructor(options: HeldFreezesOptions) {
    this.#options = options;
  }

  /** Says that a run froze this CRD. */
  frozen(crdName: string): void {
    const { clock, metrics } = this.#options;
    // A freeze that an earlier run left, and this one took over, began with that one.
    if (!this.#held.has(crdName)) {
      metrics.freezeStarted.set({ resource: crdName }, clock.now() / 1_000);
    }
    this.#held.set(crdName, true);
  }

  /** Says that the freeze was lifted. */
  lifted(crdName: string): void {
    this.#held.delete(crdName);
    this.#options.metrics.freezeStarted.remove({ resource: crdName });
  }

  /** Says that the run has ended, whether or not it lifted its freeze. */
  ended(crdName: string): void {
    if (this.#held.has(crdName)) {
      this.#held.set(crdName, false);
    }
  }

  /** Looks after freezes that were left, until the signal is aborted. @param clock what it waits by */
  async run(signal: AbortSignal, clock: Clock = this.#options.clock): Promise<void> {
    while (!signal.aborted) {
      await clock.sleep(LOOK_EVERY_MS, signal).catch(() => undefined);
      for (const [crdName, isRunning] of this.#held) {
        if (!isRunning && !signal.aborted) {
          await this.#look(crdName, signal);
        }
      }
    }
  }

  async #look(crdName: string, signal: AbortSignal): Promise<void> {
    const { client, identity, logger } = this.#options;
    try {
      const crd = await client.findMetadata(CRDS, { name: crdName }, { signal });
      const freezer = crd === undefined ? undefined : freezerOf(crd.metadata);
      const isOurs = freezer?.kind === "run" && freezer.owner.identity.startsWith(`${identity}/`);
      // Another run may have frozen it since.
      if (!isOurs && this.#held.get(crdName) === false) {
        this.lifted(crdName);
      }
    } catch (error) {
      logger.debug({ crd: crdName, reason: messageOf(error) }, "Cannot see whether a freeze was lifted; trying again");
    }
  }
}
