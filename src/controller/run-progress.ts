import { compareResourceVersions } from "../api/resource-version.ts";
import type { Advance } from "../retry/run-budget.ts";

/**
 * Whether the runs of a migration get further than all runs before. Each of them may begin at the first object and write
 * each one again, where it is forced or on a built-in resource: progress is only the write of an object that was last
 * written before the first watermark of the migration. A write takes the object beyond that watermark, so each object
 * counts once; one that was created since never counts. Else an error that comes after the last object would count as a new
 * one each time.
 */
export class RunProgress {
  #firstWatermark: string | undefined;
  #furthest = 0;

  /** Tells of an object that is done. @returns whether the migration got further than ever before */
  advanced({ done, written, watermark }: Advance): boolean {
    this.#firstWatermark ??= watermark;
    if (written === undefined) {
      return false;
    }
    const order = compareResourceVersions(written, this.#firstWatermark);
    if (order !== undefined) {
      return order <= 0;
    }
    // Where resourceVersions cannot be compared, the number of objects has to do.
    const isFurther = done > this.#furthest;
    this.#furthest = Math.max(this.#furthest, done);
    return isFurther;
  }
}
