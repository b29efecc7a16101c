import { FirstWrite } from "../old/retry/first-write.ts";
import type { Advance } from "../old/retry/run-budget.ts";

/**
 * Whether the runs of a migration get further than all runs before. Each of them may begin at the first object and write
 * each one again, where it is forced or on a built-in resource: progress is only the first write of an object, see
 * {@link FirstWrite}. Else an error that comes after the last object would count as a new one each time.
 */
export class RunProgress {
  readonly #firstWrite = new FirstWrite();
  #furthest = 0;

  /** Tells of an object that is done. @returns whether the migration got further than ever before */
  advanced({ done, written, watermark }: Advance): boolean {
    const isFirst = this.#firstWrite.isFirst(written, watermark);
    if (isFirst !== undefined) {
      return isFirst;
    }
    // Where resourceVersions cannot be compared, the number of objects has to do.
    const isFurther = done > this.#furthest;
    this.#furthest = Math.max(this.#furthest, done);
    return isFurther;
  }
}
