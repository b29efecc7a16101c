import type { CustomResourceDefinition } from "../../api/crd.ts";
import { wallOffsetOf } from "../../clock.ts";
import { KsvmError, messageOf } from "../../errors.ts";
import { failureKindOf } from "../kube/failure.ts";
import { type Moment, msSince } from "../lease/lease-write.ts";
import { findCrd } from "../../resources/read-crd.ts";
import { DENIAL_PATIENCE_MS } from "../retry/patience.ts";
import type { RunContext } from "./run-context.ts";

/** Between two looks at a CRD while objects are written, in milliseconds. */
const LOOK_EVERY_MS = 5_000;
/** Where the last look was answered longer ago than this, in milliseconds, a write waits for the next one. */
const MAX_AGE_MS = 10_000;
/** Between two tries where the CRD may not be read, in milliseconds. */
const RETRY_EVERY_MS = 1_000;

/**
 * Looks at a CRD again and again while its objects are written. A page may take minutes, so it is the writes that begin a look. Unless it is
 * outdated, no write waits for one that takes no longer than usual. A look costs as much as the CRD is large. The time of a suspension counts: other clients go on.
 */
export class CrdLooks {
  readonly #context: RunContext;
  readonly #crdName: string;
  readonly #saw: (crd: CustomResourceDefinition) => void;
  /** When a look was answered last; `undefined` before the first {@link now}: until then there are no others. */
  #answered: Moment | undefined;
  #underWay: Promise<void> | undefined;
  /** The look that begins once the one under way has ended. */
  #next: Promise<void> | undefined;
  /** How often {@link outdate} was called, and how often before the last look that was answered began. */
  #outdated = 0;
  #covered = 0;

  /** @param saw told of the CRD as each look shows it, where it is there */
  constructor(context: RunContext, crdName: string, saw: (crd: CustomResourceDefinition) => void) {
    this.#context = context;
    this.#crdName = crdName;
    this.#saw = saw;
  }

  /** Whether the last look is so long ago that nothing may be written by it. */
  get areOld(): boolean {
    return this.#ageMs >= MAX_AGE_MS || this.#covered < this.#outdated;
  }

  /** No write may rest on a look that began before this call. */
  outdate(): void {
    this.#outdated++;
  }

  /**
   * To be awaited before an object is written: resolves where there was a look a moment ago.
   * @throws {KsvmError} where the CRD cannot be read; {WaitingForOthers} where that may pass.
   */
  async recent(): Promise<void> {
    if (this.#ageMs >= LOOK_EVERY_MS || this.areOld) {
      this.#underWay ??= this.#again();
      await (this.areOld ? this.#underWay : undefined);
    }
  }

  /**
   * Looks at the CRD as it is now.
   * @throws {ApiError | KsvmError}
   */
  async now(): Promise<void> {
    const { client, clock, retrier, signal } = this.#context;
    const wallOffset = wallOffsetOf(clock);
    const outdated = this.#outdated;
    const crd = await retrier.run(() => findCrd(client, this.#crdName, { signal }), signal);
    // Where the machine was suspended during the request, the answer may be as old as that.
    const monotonic = clock.monotonic();
    this.#answered = { monotonic, now: monotonic + wallOffset };
    this.#covered = Math.max(this.#covered, outdated);
    if (crd !== undefined) {
      this.#saw(crd);
    }
  }

  /**
   * Resolves after a look that begins from now on; those that wait for it share it.
   * @throws as {@link recent}
   */
  fromNow(): Promise<void> {
    this.#next ??= this.#afterThisOne();
    return this.#next;
  }

  async #afterThisOne(): Promise<void> {
    await this.#underWay?.catch(() => undefined);
    // A caller that asks from here on waits for another look.
    this.#next = undefined;
    this.#underWay ??= this.#again();
    await this.#underWay;
  }

  get #ageMs(): number {
    return this.#answered === undefined ? 0 : msSince(this.#answered, this.#context.clock);
  }

  /** Where nobody waits for it and it fails, the next one follows. */
  #again(): Promise<void> {
    const look = this.#patiently()
      .catch((error: unknown) => {
        throw besidesObjects(this.#crdName, "it cannot be seen what storedVersions lists", error);
      })
      .finally(() => (this.#underWay = undefined));
    look.catch(() => undefined);
    return look;
  }

  /** An API server that has just started knows no roles yet: a refusal counts once it has lasted. */
  async #patiently(): Promise<void> {
    const { clock, signal } = this.#context;
    for (let since: number | undefined; ; ) {
      try {
        return await this.now();
      } catch (error) {
        const kind = failureKindOf(error);
        since ??= clock.monotonic();
        if ((kind !== "denied" && kind !== "unserved") || clock.monotonic() - since >= DENIAL_PATIENCE_MS) {
          throw error;
        }
      }
      await clock.sleep(RETRY_EVERY_MS, signal);
    }
  }
}

/** The error of a request for a CRD, which must not be taken for one of the object that waits for it. */
export function besidesObjects(crdName: string, what: string, error: unknown): unknown {
  if (!(error instanceof KsvmError) || failureKindOf(error) === undefined) {
    return error;
  }
  return new KsvmError(error.code, `Cannot continue with "${crdName}": ${what}: ${messageOf(error)}`, { cause: error });
}
