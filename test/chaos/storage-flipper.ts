import { setTimeout as delay } from "node:timers/promises";
import { FREEZE_REASON } from "../../src/freeze/rule.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { CRDS, MERGE_PATCH } from "../api-client.ts";
import type { Cluster } from "../integration/cluster.ts";
import { type CrdShape, type TestKind, versionsOf } from "../integration/crd-fixture.ts";

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
  /** Milliseconds between two attempts, by what came of the first of them. @default 10 */
  readonly pauseMs?: number | ((outcome: FlipOutcome) => number);
}

/** What came of an attempt: the guard denied it, it was accepted, or something else went wrong. */
export type FlipOutcome = "denied" | "accepted" | "failed";

/** Whose storage version is changed. */
export interface FlipTarget {
  readonly cluster: Pick<Cluster, "api">;
  readonly kind: TestKind;
}

/** Another client that changes the storage version, there and back, as often as it can. */
export class StorageFlipper {
  readonly counts: FlipCounts = { attempts: 0, denied: 0, accepted: 0, others: [] };
  readonly #target: FlipTarget;
  readonly #options: FlipperOptions;
  readonly #abort = new AbortController();
  #work: Promise<void> = Promise.resolve();

  private constructor(target: FlipTarget, options: FlipperOptions) {
    this.#target = target;
    this.#options = options;
  }

  static start(target: FlipTarget, options: FlipperOptions = {}): StorageFlipper {
    const flipper = new StorageFlipper(target, options);
    flipper.#work = flipper.#run();
    return flipper;
  }

  /** Stops, and makes v1 the storage version where nothing keeps it from that. */
  async stop(): Promise<FlipCounts> {
    this.#abort.abort();
    await this.#work;
    if (this.counts.accepted > 0) await this.#flip({ storage: "v1" }, {}).catch(() => undefined);
    return this.counts;
  }

  async #run(): Promise<void> {
    const { before, annotations = {}, pauseMs = 10 } = this.#options;
    const { signal } = this.#abort;
    while (!signal.aborted && !this.#isDone()) {
      await before?.();
      const outcome = await this.#attempt({ storage: this.counts.accepted % 2 === 0 ? "v1alpha1" : "v1" }, annotations);
      const ms = typeof pauseMs === "number" ? pauseMs : pauseMs(outcome);
      await delay(ms, undefined, { signal }).catch(() => undefined);
    }
  }

  #isDone(): boolean {
    return this.#options.onlyOnce === true && this.counts.accepted > 0;
  }

  async #attempt(shape: CrdShape, annotations: Readonly<Record<string, string | null>>): Promise<FlipOutcome> {
    this.counts.attempts++;
    try {
      await this.#flip(shape, annotations);
      this.counts.accepted++;
      return "accepted";
    } catch (error) {
      if (error instanceof ApiError && error.status === 403 && error.said.includes(FREEZE_REASON)) {
        this.counts.denied++;
        return "denied";
      }
      this.counts.others.push(String(error));
      return "failed";
    }
  }

  #flip(shape: CrdShape, annotations: Readonly<Record<string, string | null>>): Promise<unknown> {
    const { cluster, kind } = this.#target;
    const body = { metadata: { annotations }, spec: { versions: versionsOf({ ...shape, statusSubresource: true }) } };
    return cluster.api.patch(CRDS, kind, { type: MERGE_PATCH, body });
  }
}
