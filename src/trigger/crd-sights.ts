import type { Clock } from "../clock.ts";
import { type CrdFacts, type CrdRecord, formatCrdRecord, parseCrdRecord } from "./crd-facts.ts";
import type { Observation } from "./observer.ts";

/** API servers follow a CRD within moments. Only when they do not in this time it is called a disagreement. */
const CRD_PATIENCE_MS = 3_000;

/** What looks saw of CRDs that no StorageState tells yet: a look may wait for API servers, or fail to write what it saw. */
export class CrdSights {
  readonly #clock: Clock;
  /** Since when each look sees that API servers have not followed a CRD, on the monotonic clock: a look may take seconds. */
  readonly #behind = new Map<string, number>();
  /** What a look saw first of each CRD of which no StorageState was written. */
  readonly #first = new Map<string, CrdRecord>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Takes note of a CRD. @returns what the first of these looks saw of it */
  saw(crd: CrdFacts): CrdRecord {
    const before = this.#first.get(crd.name);
    if (before?.uid === crd.uid) {
      return before;
    }
    // As a StorageState remembers it: many versions take no more than a digest of them.
    const first = parseCrdRecord(formatCrdRecord(crd)) ?? crd;
    this.#first.set(crd.name, first);
    return first;
  }

  /**
   * Takes note of the CRDs that a look found and discovery does not show just now, as while an API server does not answer for their group: another
   * client may prune one before it does. @returns the look
   */
  withHidden(look: Observation): Observation {
    const shown = new Set([...look.observed, ...look.leftOut].map(({ name }) => name));
    [...look.crds.values()].filter(({ name }) => !shown.has(name)).forEach((crd) => this.saw(crd));
    return look;
  }

  /** Notes that the StorageState tells by now what was seen. */
  written(name: string): void {
    this.#first.delete(name);
  }

  /** Whether API servers that have not followed a CRD may be given another moment. */
  isPatientWith(name: string): boolean {
    const now = this.#clock.monotonic();
    const since = this.#behind.get(name) ?? now;
    this.#behind.set(name, since);
    return now - since <= CRD_PATIENCE_MS;
  }

  /** Notes that all API servers have followed a CRD. */
  followed(name: string): void {
    this.#behind.delete(name);
  }

  /** Forgets what is no more. */
  keepOnly(isThere: (name: string) => boolean): void {
    for (const sights of [this.#behind, this.#first]) {
      [...sights.keys()].filter((name) => !isThere(name)).forEach((name) => sights.delete(name));
    }
  }
}
