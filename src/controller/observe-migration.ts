import type { Counts } from "../old/migrator/rewrite/counts.ts";
import type { EventSink, MigrationEvent } from "../old/migrator/events.ts";
import type { Metrics, MigrationEnd, ObjectOutcome } from "../observability/metrics.ts";
import type { ResourceSeries } from "../observability/resource-series.ts";

/** The metrics of one migration. */
export interface MigrationObserver {
  readonly event: EventSink;
  /** The run brought the migration to its end. */
  readonly completed: (result: MigrationEnd) => void;
  /** Takes away what is true only while the migration runs. Counters stay. */
  readonly end: () => void;
}

/** Told of the freezes that migrations set, by the CRD's name. */
export interface FreezeSink {
  frozen(crdName: string): void;
  lifted(crdName: string): void;
  /** The migration has ended, whether or not it lifted its freeze. */
  ended(crdName: string): void;
}

const NOTHING = { migrated: 0, failed: 0, skipped: 0 };

/**
 * Maps the events of a migration of `resource` (`plural.group`) to metrics. It has counters once the API server has shown
 * that the resource exists: users may name thousands that do not.
 */
export function observeMigration(
  metrics: Metrics,
  resource: string,
  { freezes, series }: { readonly freezes: FreezeSink; readonly series: Pick<ResourceSeries, "use"> },
): MigrationObserver {
  let seen = NOTHING;
  let isFound = false;
  let retriedBefore = 0;
  const count = (outcome: ObjectOutcome, objects: number): void => {
    // A resource without objects, and what never happens, take no series.
    if (objects > 0) {
      metrics.objects.inc({ resource, outcome }, objects);
    }
  };
  const found = (): void => {
    series.use(resource);
    if (!isFound) {
      count("retried", retriedBefore);
    }
    isFound = true;
  };
  const retried = (): void => {
    if (isFound) {
      series.use(resource);
      count("retried", 1);
    } else {
      retriedBefore++;
    }
  };
  // A run that goes back to an earlier page counts what lies behind it once more: each object counts once here.
  const mostOf = ({ done, migrated, failed }: Readonly<Counts>): typeof seen => ({
    migrated: Math.max(seen.migrated, migrated),
    failed: Math.max(seen.failed, failed),
    skipped: Math.max(seen.skipped, done - migrated - failed),
  });
  const progress = (counts: Readonly<Counts>): void => {
    const { done, total = done } = counts;
    const most = mostOf(counts);
    count("migrated", most.migrated - seen.migrated);
    count("failed", most.failed - seen.failed);
    count("skipped", most.skipped - seen.skipped);
    metrics.remaining.set({ resource }, Math.max(0, total - done));
    seen = most;
  };
  const event = (happened: MigrationEvent): void => {
    switch (happened.type) {
      case "frozen":
        // Every attempt begins with it, and counts from zero unless it says that it resumes.
        seen = NOTHING;
        found();
        freezes.frozen(resource);
        return;
      case "resumed":
        seen = mostOf(happened.counts);
        return;
      case "unfrozen":
        freezes.lifted(resource);
        return;
      case "progress":
        found();
        progress(happened.counts);
        return;
      case "retrying":
        retried();
        return;
      case "pruned":
        found();
        metrics.pruned.inc({ resource }, happened.removed.length);
        return;
      default:
    }
  };
  const completed = (result: MigrationEnd): void => {
    // A resource that was migrated, or had no need of it, exists.
    if (isFound || result === "Succeeded") {
      found();
    }
    metrics.completed.inc({ resource: isFound ? resource : "", result });
  };
  const end = (): void => {
    metrics.remaining.remove({ resource });
    metrics.inFlightLimit.remove({ resource });
    freezes.ended(resource);
  };
  return { event, completed, end };
}
