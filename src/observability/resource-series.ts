import type { Metrics, MigrationEnd, ObjectOutcome } from "./metrics.ts";

/** So many resources have counters: a cluster has a hundred and one for each CRD. */
const MAX_RESOURCES = 5_000;
const OUTCOMES: readonly ObjectOutcome[] = ["migrated", "skipped", "failed"];
const ENDS: readonly MigrationEnd[] = ["Succeeded", "Failed"];

/** The metrics that have a series for each resource. */
type OfResources = Pick<Metrics, "completed" | "objects" | "pruned">;

/**
 * The resources that have counters of their own. Users create migrations of what they like, and CRDs come and go: no more than
 * a fixed number is kept, and none of a resource that is gone.
 */
export class ResourceSeries {
  readonly #metrics: OfResources;
  readonly #max: number;
  /** What was used last comes last. */
  readonly #used = new Set<string>();

  /** @param max resources that have counters at most. @default 5,000 */
  constructor(metrics: OfResources, max = MAX_RESOURCES) {
    this.#metrics = metrics;
    this.#max = max;
  }

  /** Says that a resource gets counters. One too many drops those of the resource that was used longest ago. */
  use(resource: string): void {
    this.#used.delete(resource);
    this.#used.add(resource);
    const [oldest] = this.#used;
    if (this.#used.size > this.#max && oldest !== undefined) {
      this.#drop(oldest);
    }
  }

  /** Drops the counters of the resources that are gone. */
  dropGone(isGone: (resource: string) => boolean): void {
    [...this.#used].filter(isGone).forEach((resource) => this.#drop(resource));
  }

  #drop(resource: string): void {
    this.#used.delete(resource);
    for (const outcome of OUTCOMES) {
      this.#metrics.objects.remove({ resource, outcome });
    }
    for (const result of ENDS) {
      this.#metrics.completed.remove({ resource, result });
    }
    this.#metrics.pruned.remove({ resource });
  }
}
