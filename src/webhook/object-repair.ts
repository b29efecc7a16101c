import type { FastifyBaseLogger } from "fastify";
import { besideHelm, helmMarksOf, type Marks } from "../api/ours.ts";
import type { Clock } from "../clock.ts";
import type { KubeObject } from "../old/kube/client.ts";
import { LoopPace } from "../old/retry/loop-pace.ts";
import { isAsWanted } from "../old/kube/drift.ts";
import { ObjectWriter, type ObjectWriterOptions, type WantedObject } from "./object-writer.ts";

/** What is told of the kept object whenever it was read. */
export interface ObjectObserver {
  /** The newest resourceVersion that was seen. */
  readonly resourceVersion: string | undefined;
  /**
   * @param live the object as it was read; `undefined` where there is none
   * @param sentAfter for a read from etcd, {@link resourceVersion} as it was when the request was sent. @default it is no such read
   */
  saw(live: KubeObject | undefined, sentAfter?: string): void;
}

/** What an {@link ObjectRepair} needs. */
export interface ObjectRepairOptions extends ObjectWriterOptions {
  readonly clock: Clock;
  readonly logger: Pick<FastifyBaseLogger, "info" | "warn">;
  /** Called with the object as it is whenever it is looked at; `undefined` as long as it is not known how it is to be. */
  readonly wanted: (live: KubeObject | undefined) => WantedObject | undefined;
  /**
   * Brings what is wanted up to date before it is written over something else, which may be newer. Where it rejects, nothing is
   * written for now. @default what is wanted never changes
   */
  readonly freshen?: ((signal: AbortSignal) => Promise<void>) | undefined;
  /** Annotations of other clients that an object which was deleted comes back with, where this keeper has seen them. @default none */
  readonly carriedAnnotations?: readonly string[] | undefined;
  /** Told of the object whenever it was read. @default none */
  readonly observer?: ObjectObserver | undefined;
}

/**
 * Between two restorations, in milliseconds: the first ones follow at once. Another client that goes on resetting the object is answered
 * less and less often, until it has left the object alone for a while. So a fight costs at most about 20 restorations in its
 * first minute and 6 in each further one, of up to three writes each.
 */
const MIN_INTERVAL_MS = 100;
const MAX_INTERVAL_MS = 10_000;
const PROMPT_RESTORATIONS = 10;
const CALM_MS = 60_000;

/**
 * What is gone stays away for so long before it comes back, in milliseconds. Helm, Flux and Argo CD delete a webhook configuration first and roles
 * later, while replicas still run: one that comes back at once is left in a cluster without a webhook. Until then the roles are gone, or
 * the replica has been stopped.
 *
 * https://github.com/helm/helm/blob/20a1ca2345a667ecb611aed87b5c515c334c3de8/pkg/release/v1/util/kind_sorter.go (UninstallOrder)
 */
const MISSING_MS = 5_000;

type Plan =
  | { readonly kind: "nothing"; readonly lookAgainMs: number }
  | { readonly kind: "restore"; readonly wanted: WantedObject };

const NOTHING: Plan = { kind: "nothing", lookAgainMs: Number.POSITIVE_INFINITY };

/** Looks at one object and restores what is not as it is wanted. */
export class ObjectRepair {
  readonly #options: ObjectRepairOptions;
  readonly #writer: ObjectWriter;
  readonly #pace: LoopPace;
  #lastTurnAt = Number.NEGATIVE_INFINITY;
  /** Since when there is no object, as far as this keeper saw; `undefined` where there was one when it looked last. */
  #missingSince: number | undefined;
  /** Those of {@link ObjectRepairOptions.carriedAnnotations} that the object with this uid had when it was seen last. */
  #carried: { readonly uid: string | undefined; readonly annotations: Readonly<Record<string, string>> } = {
    uid: undefined,
    annotations: {},
  };
  /** What Helm wrote to the object, as it was read last. */
  #ofHelm: Marks = {};
  /** Whether it was said that restorations come less often, since they were prompt. */
  #toldSlowing = false;

  constructor(options: ObjectRepairOptions) {
    this.#options = options;
    this.#writer = new ObjectWriter(options);
    const interval = { minMs: MIN_INTERVAL_MS, maxMs: MAX_INTERVAL_MS, freeTurns: PROMPT_RESTORATIONS };
    this.#pace = new LoopPace({ clock: options.clock, ...interval });
  }

  /** Whether nothing needs to be done about an object. What others wrote to it is remembered. */
  isRight(live: KubeObject): boolean {
    this.#remember(live);
    const wanted = this.#wantedFor(live);
    return wanted !== undefined && this.#isKept(live, wanted);
  }

  /**
   * One look, and what follows from it.
   * @returns milliseconds until the object has to be looked at again, whatever is heard
   * @throws {ApiError} Conflict where another client wrote in between; what the requests and `freshen` throw.
   */
  async once(signal: AbortSignal): Promise<number> {
    const first = this.#planFor(await this.#read(signal));
    if (first.kind === "nothing") {
      return first.lookAgainMs;
    }
    await this.#takeTurn(signal);
    // In this order: what is wanted is then as new as what it is written over.
    const found = await this.#read(signal);
    await this.#options.freshen?.(signal);
    const plan = this.#planFor(found);
    if (plan.kind === "restore") {
      await this.#restore(plan.wanted, found, signal);
    }
    return 0;
  }

  async #read(signal: AbortSignal): Promise<KubeObject | undefined> {
    const { client, clock, resource, name, observer } = this.#options;
    const sentAfter = observer?.resourceVersion;
    const found = await client.find<KubeObject>(resource, { name }, { signal });
    observer?.saw(found, sentAfter);
    if (found === undefined) {
      this.#missingSince ??= clock.monotonic();
    } else {
      this.#remember(found);
    }
    return found;
  }

  #wantedFor(live: KubeObject | undefined): WantedObject | undefined {
    const wanted = this.#options.wanted(live);
    return wanted && besideHelm(wanted, live ?? { metadata: this.#ofHelm });
  }

  #remember(live: KubeObject): void {
    const { carriedAnnotations = [] } = this.#options;
    const { annotations = {}, uid } = live.metadata;
    this.#ofHelm = helmMarksOf(live.metadata);
    this.#missingSince = undefined;
    if (!this.#lacksCarried(live)) {
      const carried = Object.entries(annotations).filter(([name]) => carriedAnnotations.includes(name));
      this.#carried = { uid, annotations: Object.fromEntries(carried) };
    }
  }

  /** Whether an object took the place of one that had annotations to carry over, and does not have them yet. */
  #lacksCarried({ metadata: { annotations = {}, uid } }: KubeObject): boolean {
    const { uid: before, annotations: carried } = this.#carried;
    return uid !== before && Object.keys(carried).some((name) => !Object.hasOwn(annotations, name));
  }

  #isKept(live: KubeObject, wanted: WantedObject): boolean {
    return this.#writer.isKept(live, wanted) && !this.#lacksCarried(live);
  }

  #planFor(live: KubeObject | undefined): Plan {
    const wanted = this.#wantedFor(live);
    if (wanted === undefined) {
      return NOTHING;
    }
    if (live === undefined) {
      const lookAgainMs = this.#missingForMs();
      return lookAgainMs > 0 ? { kind: "nothing", lookAgainMs } : { kind: "restore", wanted };
    }
    return this.#isKept(live, wanted) ? NOTHING : { kind: "restore", wanted };
  }

  /** How long an object that is gone still stays away, in milliseconds. */
  #missingForMs(): number {
    const now = this.#options.clock.monotonic();
    return (this.#missingSince ?? now) + MISSING_MS - now;
  }

  async #takeTurn(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    if (clock.monotonic() - this.#lastTurnAt > CALM_MS) {
      this.#pace.reset();
      this.#toldSlowing = false;
    }
    if (this.#pace.isSlowing && !this.#toldSlowing) {
      this.#toldSlowing = true;
      logger.warn(this.#facts(), "Another client keeps changing an object; restoring it less often");
    }
    await this.#pace.turn(signal);
    this.#lastTurnAt = clock.monotonic();
  }

  async #restore(wanted: WantedObject, found: KubeObject | undefined, signal: AbortSignal): Promise<void> {
    const { logger, observer } = this.#options;
    let live = await this.#writer.apply(wanted, found, signal);
    observer?.saw(live);
    logger.info({ ...this.#facts(), wasMissing: found === undefined }, "Restored object");
    if (!isAsWanted(live, wanted)) {
      live = await this.#writer.replace(live, wanted, signal);
      logger.info(this.#facts(), "Removed what another client had added to object");
    }
    // Not applied: what is applied and later left out is taken away.
    if (this.#lacksCarried(live)) {
      live = await this.#writer.annotate(live, this.#carried.annotations, signal);
      this.#carried = { ...this.#carried, uid: live.metadata.uid };
    }
  }

  #facts(): { readonly resource: string; readonly name: string } {
    const { resource, name } = this.#options;
    return { resource: resource.resource, name };
  }
}
