import type { Clock } from "../clock.ts";
import type { Counts } from "../migrator/counts.ts";
import type { EventSink, MigrationEvent } from "../migrator/events.ts";
import type { Metrics, ObjectOutcome } from "./metrics.ts";

/** The metrics of one migration. */
export interface MigrationObserver {
  readonly event: EventSink;
  /** Takes away what is true only while the migration runs. Counters stay. */
  readonly end: () => void;
}

const NOTHING = { done: 0, migrated: 0, failed: 0 };

type Seen = Readonly<Pick<Counts, keyof typeof NOTHING>>;

/** Maps the events of a migration of `resource` (`plural.group`) to metrics. */
export function observeMigration(
  metrics: Metrics,
  resource: string,
  { clock }: { readonly clock: Pick<Clock, "now"> },
): MigrationObserver {
  let seen: Seen = NOTHING;
  const count = (outcome: ObjectOutcome, objects: number): void => {
    metrics.objects.inc({ resource, outcome }, Math.max(0, objects));
  };
  const progress = (counts: Readonly<Counts>): void => {
    count("migrated", counts.migrated - seen.migrated);
    count("failed", counts.failed - seen.failed);
    count("skipped", skippedOf(counts) - skippedOf(seen));
    metrics.remaining.set({ resource }, Math.max(0, (counts.total ?? counts.done) - counts.done));
    seen = counts;
  };
  const event = (happened: MigrationEvent): void => {
    switch (happened.type) {
      case "frozen":
        // Every attempt begins with it, and counts from zero.
        seen = NOTHING;
        metrics.freezeStarted.set({ resource }, clock.now() / 1_000);
        return;
      case "unfrozen":
        metrics.freezeStarted.remove({ resource });
        return;
      case "progress":
        progress(happened.counts);
        return;
      case "retrying":
        count("retried", 1);
        return;
      case "pruned":
        metrics.pruned.inc({ resource }, happened.removed.length);
        return;
      default:
    }
  };
  const end = (): void => {
    for (const gauge of [metrics.remaining, metrics.inFlightLimit, metrics.freezeStarted]) {
      gauge.remove({ resource });
    }
  };
  return { event, end };
}

/** Stored in the storage version already, written since the run began, or deleted. */
function skippedOf({ done, migrated, failed }: Seen): number {
  return done - migrated - failed;
}
