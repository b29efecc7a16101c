import type { Counts } from "../migrator/rewrite/counts.ts";
import type { MigrationEvent } from "../migrator/events.ts";

/**
 * Whether the attempts of a migration get further than all attempts before. An attempt that is forced, or on a built-in
 * resource, begins at the first object and writes each one again: what the attempt before wrote as well is no progress, else
 * an error that comes after the last object would count as a new one each time.
 */
export class RunProgress {
  #furthest = 0;
  #migrated = 0;
  #isResumed = false;

  /** Says that an attempt begins, with counts of its own. */
  begins(): void {
    this.#migrated = 0;
    this.#isResumed = false;
  }

  /** Takes an event of the attempt in. @returns whether it shows that the migration got further than ever before */
  event(event: MigrationEvent): boolean {
    switch (event.type) {
      case "startingAgain":
        // Its counts may go on where they were, or begin at zero.
        this.#isResumed = false;
        return false;
      case "resumed":
        // What was written since its watermark is not written again.
        this.#isResumed = true;
        return false;
      case "progress":
        return this.#advanced(event.counts);
      default:
        return false;
    }
  }

  #advanced({ done, migrated }: Readonly<Counts>): boolean {
    const hasWritten = migrated > this.#migrated;
    const isFurther = this.#isResumed || done > this.#furthest;
    this.#migrated = migrated;
    this.#furthest = Math.max(this.#furthest, done);
    return hasWritten && isFurther;
  }
}
