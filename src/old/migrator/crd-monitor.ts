import type { CustomResourceDefinition } from "../../api/crd.ts";
import { isNewer } from "../../api/resource-version.ts";
import type { Clock } from "../../clock.ts";
import { KsvmError, messageOf } from "../../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { listNamed } from "../kube/list-named.ts";
import { CRDS } from "../kube/resources.ts";
import { watchObject } from "../kube/watch.ts";
import { brokenExpectation, type CrdExpectation } from "../freeze/crd-expectation.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import type { Retrier } from "../retry/retrier.ts";
import { StartAgain } from "../retry/start-again.ts";

/** What a {@link CrdMonitor} needs. */
export interface CrdMonitorOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  readonly expected: CrdExpectation;
  /** Called once, with the reason, when the run must end. */
  readonly onBroken: (reason: unknown) => void;
  /** Told of each state of the CRD that meets the expectation. @default nobody is */
  readonly onSeen?: (crd: CustomResourceDefinition) => void;
}

/** How long the watch may lag behind a CRD that was read, in milliseconds, before the run gives up. */
const CATCH_UP_TIMEOUT_MS = 30_000;
const CATCH_UP_POLL_MS = 50;
/** Between two watches, where one after the other ends in a gap. */
const MIN_INTERVAL_MS = 1_000;
const MAX_INTERVAL_MS = 10_000;

/**
 * Watches one CRD during a run, every change of it, so that a storage version that went there and back is seen too.
 * It watches the whole object: a watch of the metadata would show that the spec changed and not how, and a GET after
 * it would miss a change that was undone.
 */
export class CrdMonitor {
  readonly #options: CrdMonitorOptions;
  readonly #abort = new AbortController();
  #generation: number | undefined;
  #seen = "";
  #broken: unknown;
  /** Why the watch cannot be opened just now. */
  #failure: unknown;
  #done: Promise<void> = Promise.resolve();

  constructor(options: CrdMonitorOptions) {
    this.#options = options;
  }

  /** Starts to watch at `crd`, which must meet the expectation. */
  start(crd: CustomResourceDefinition): void {
    this.#generation = crd.metadata.generation;
    this.#seen = crd.metadata.resourceVersion;
    this.#done = this.#watch().catch((error: unknown) => {
      if (!this.#abort.signal.aborted) {
        this.#break(error);
      }
    });
  }

  /** Stops watching and waits until the watch has ended. */
  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#done;
  }

  /**
   * Resolves once every change up to `crd` has been looked at.
   * @throws the reason why the run must end; {StartAgain} where the watch does not catch up.
   */
  async verifyUpTo(crd: CustomResourceDefinition, signal: AbortSignal): Promise<void> {
    this.judge(crd);
    await this.toldUpTo(crd, signal);
  }

  /**
   * Resolves once the watch has told of every change of the spec before `crd`, which a look has shown.
   * @throws as {@link verifyUpTo}
   */
  async toldUpTo(crd: CustomResourceDefinition, signal: AbortSignal): Promise<void> {
    const { clock, expected } = this.#options;
    const deadline = clock.monotonic() + CATCH_UP_TIMEOUT_MS;
    // Every change of the spec moves the generation, so an unmoved one needs no watch as proof.
    while (crd.metadata.generation !== this.#generation && isNewer(crd.metadata.resourceVersion, this.#seen)) {
      this.#throwIfBroken();
      if (clock.monotonic() > deadline) {
        const why = this.#failure === undefined ? "" : `; it fails: ${messageOf(this.#failure)}`;
        const text = `Cannot be sure of the storage version of "${expected.name}": the watch of the CRD lags behind${why}`;
        throw new StartAgain("WatchFailed", text);
      }
      await clock.sleep(CATCH_UP_POLL_MS, signal);
    }
    this.#throwIfBroken();
  }

  /**
   * Takes note of the CRD as it was at some time of the run. An API server whose watch is late may be behind itself, and convert objects as before.
   * @throws the reason why the run must end.
   */
  judge(crd: CustomResourceDefinition): void {
    const reason = brokenExpectation(this.#options.expected, crd);
    if (reason !== undefined) {
      this.#break(reason);
      throw reason;
    }
    this.#options.onSeen?.(crd);
  }

  async #watch(): Promise<void> {
    const { client, clock, expected } = this.#options;
    const pace = new LoopPace({ clock, minMs: MIN_INTERVAL_MS, maxMs: MAX_INTERVAL_MS });
    while (!this.#abort.signal.aborted) {
      await pace.turn(this.#abort.signal);
      const events = watchObject<CustomResourceDefinition>(client.transport, CRDS, {
        name: expected.name,
        resourceVersion: this.#seen,
        signal: this.#abort.signal,
        clock,
        onOpen: () => (this.#failure = undefined),
        onFailure: (error) => (this.#failure = error),
      });
      for await (const event of events) {
        if (event.type === "GAP") {
          await this.#bridgeGap();
        } else if (event.type === "DELETED") {
          throw this.#deleted();
        } else if (event.type !== "BOOKMARK") {
          this.judge(event.object);
          // Every change up to this generation was seen, so a gap after it only matters where it moves again.
          this.#generation = event.object.metadata.generation;
          this.#seen = event.object.metadata.resourceVersion;
        }
      }
    }
  }

  /**
   * Changes were missed. They do not matter if the generation did not move in between: the spec is what it was. A restarted
   * API server refuses to watch from the resourceVersion of the CRD itself, however often it is read: from that of a list
   * it does not.
   */
  async #bridgeGap(): Promise<void> {
    const { client, expected, retrier } = this.#options;
    const { signal } = this.#abort;
    const list = () => listNamed<CustomResourceDefinition>(client.transport, CRDS, expected, { signal });
    const { object: crd, resourceVersion } = await retrier.run(list, signal);
    if (crd === undefined) {
      throw this.#deleted();
    }
    this.judge(crd);
    if (crd.metadata.generation !== this.#generation) {
      throw new StartAgain(
        "WatchFailed",
        `Cannot be sure of the storage version of "${expected.name}": the CRD changed while the watch of it was interrupted; run again`,
      );
    }
    this.#seen = resourceVersion;
  }

  #deleted(): KsvmError {
    return new KsvmError("CrdReplaced", `Cannot continue with "${this.#options.expected.name}": the CRD was deleted`);
  }

  #break(reason: unknown): void {
    if (this.#broken === undefined) {
      this.#broken = reason;
      this.#options.onBroken(reason);
    }
  }

  #throwIfBroken(): void {
    if (this.#broken !== undefined) {
      throw this.#broken;
    }
  }
}
