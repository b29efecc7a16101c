import { type CrdFacts, type CrdRecord, formatCrdRecord, parseCrdRecord } from "./crd-facts.ts";
import type { Observation } from "./observer.ts";

/**
 * What looks saw of CRDs that no StorageState tells yet: a look may wait for API servers, or fail to write what it saw. It belongs to a process: one
 * that loses its Lease for seconds leads again, and another client may prune a CRD in between.
 */
export class CrdSights {
  /** What a look saw first of each CRD of which no StorageState was written. */
  readonly #first = new Map<string, CrdRecord>();

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
   * Takes note of the CRDs that a look found, also of those that discovery does not show just now, as while an API server does not answer for their
   * group: another client may prune one before its StorageState can be read, or written. @returns the look
   */
  noted(look: Observation): Observation {
    const leftOut = new Set(look.leftOut.map(({ name }) => name));
    this.sawAll([...look.crds.values()].filter(({ name }) => !leftOut.has(name)));
    return look;
  }

  /**
   * Looks after something else, and takes note of what the look found also where that failed.
   * @returns what came of it, and the look
   * @throws what either of them throws.
   */
  async notedAfter<T>(first: Promise<T>, look: () => Promise<Observation>): Promise<readonly [T, Observation]> {
    const [done] = await Promise.allSettled([first]);
    const found = this.noted(await look());
    if (done.status === "rejected") {
      throw done.reason;
    }
    return [done.value, found];
  }

  /** Takes note of CRDs, also while discovery shows nothing. */
  sawAll(crds: Iterable<CrdFacts>): void {
    [...crds].forEach((crd) => this.saw(crd));
  }

  /** Notes that the StorageState tells by now what was seen. */
  written(name: string): void {
    this.#first.delete(name);
  }

  /** Forgets what is no more. */
  keepOnly(isThere: (name: string) => boolean): void {
    [...this.#first.keys()].filter((name) => !isThere(name)).forEach((name) => this.#first.delete(name));
  }
}
