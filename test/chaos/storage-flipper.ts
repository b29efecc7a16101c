import { setTimeout as delay } from "node:timers/promises";
import { FREEZE_REASON } from "../../src/api/names.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { CRDS, MERGE_PATCH } from "../../src/kube/resources.ts";
import { type CrdShape, versionsOf } from "../integration/crd-fixture.ts";
import type { Scenario } from "./scenario.ts";

/** What came of the attempts to change the storage version. */
export interface FlipCounts {
  attempts: number;
  /** By the guard. */
  denied: number;
  accepted: number;
  /** Anything else. */
  readonly others: string[];
}

/** How a {@link StorageFlipper} goes about it. */
export interface FlipperOptions {
  /** Done before each attempt, such as lifting the freeze. @default nothing */
  readonly before?: () => Promise<unknown>;
  /** Annotations that each attempt changes as well. @default none */
  readonly annotations?: Readonly<Record<string, string | null>>;
  /** Ends with the first attempt that is accepted. @default false */
  readonly onlyOnce?: boolean;
  /** @default 10 */
  readonly pauseMs?: number;
}

/** Another client that changes the storage version, there and back, as often as it can. */
export class StorageFlipper {
  readonly counts: FlipCounts = { attempts: 0, denied: 0, accepted: 0, others: [] };
  readonly #scenario: Scenario;
  readonly #options: FlipperOptions;
  #isStopped = false;
  #work: Promise<void> = Promise.resolve();

  private constructor(scenario: Scenario, options: FlipperOptions) {
    this.#scenario = scenario;
    this.#options = options;
  }

  static start(scenario: Scenario, options: FlipperOptions = {}): StorageFlipper {
    const flipper = new StorageFlipper(scenario, options);
    flipper.#work = flipper.#run();
    return flipper;
  }

  /** Stops, and makes v1 the storage version where nothing keeps it from that. */
  async stop(): Promise<FlipCounts> {
    this.#isStopped = true;
    await this.#work;
    if (this.counts.accepted > 0) await this.#flip({ storage: "v1" }, {}).catch(() => undefined);
    return this.counts;
  }

  async #run(): Promise<void> {
    const { before, annotations = {}, pauseMs = 10 } = this.#options;
    while (!this.#isStopped && !this.#isDone()) {
      await before?.();
      await this.#attempt({ storage: this.counts.accepted % 2 === 0 ? "v1alpha1" : "v1" }, annotations);
      await delay(pauseMs);
    }
  }

  #isDone(): boolean {
    return this.#options.onlyOnce === true && this.counts.accepted > 0;
  }

  async #attempt(shape: CrdShape, annotations: Readonly<Record<string, string | null>>): Promise<void> {
    this.counts.attempts++;
    try {
      await this.#flip(shape, annotations);
      this.counts.accepted++;
    } catch (error) {
      if (error instanceof ApiError && error.status === 403 && error.said.includes(FREEZE_REASON)) {
        this.counts.denied++;
      } else {
        this.counts.others.push(String(error));
      }
    }
  }

  #flip(shape: CrdShape, annotations: Readonly<Record<string, string | null>>): Promise<unknown> {
    const { cluster, kind } = this.#scenario;
    const body = { metadata: { annotations }, spec: { versions: versionsOf({ ...shape, statusSubresource: true }) } };
    return cluster.api.patch(CRDS, kind, { type: MERGE_PATCH, body });
  }
}
