import { systemClock } from "../clock.ts";
import type { Send } from "../kube/http.ts";
import type { MigrationEvent, Tally } from "../migrator/types.ts";
import type { Loop } from "../observability/loops.ts";
import type { Metrics, MigrationEnd, ObjectOutcome } from "../observability/metrics.ts";
import type { ResourceSeries } from "../observability/resource-series.ts";
import type { Looked, TriggerWatch } from "../trigger/trigger-watch.ts";
import { doneIn } from "./migration-status.ts";

// What happens, as metrics.

/** Measures all requests. One that no answer came to has the code 0. */
export function measured({ requestDuration }: Pick<Metrics, "requestDuration">): (send: Send) => Send {
  return (send) => async (request) => {
    const start = systemClock.monotonic();
    let code = 0;
    try {
      const answer = await send(request);
      code = answer.status;
      return answer;
    } finally {
      requestDuration.observe({ method: request.method, code }, (systemClock.monotonic() - start) / 1_000);
    }
  };
}

/** The metrics of one migration. */
export interface MigrationObserver {
  readonly event: (event: MigrationEvent) => void;
  /** The run brought the migration to its end. */
  readonly completed: (result: MigrationEnd) => void;
  /** Takes away what is true only while the migration runs. Counters stay. */
  readonly end: () => void;
}

const NOTHING = { migrated: 0, failed: 0, skipped: 0 };

interface ObserveOptions {
  /** The CRDs that the runs of this replica froze. A run that cannot lift its freeze leaves it here. */
  readonly freezes: Set<string>;
  /** Beats with every event. */
  readonly loop: Pick<Loop, "beat" | "end">;
  /** Milliseconds since the Unix epoch. */
  readonly now: () => number;
  readonly series: Pick<ResourceSeries, "use">;
}

/**
 * Maps the events of a migration of `resource` (`plural.group`) to metrics. It has counters once the API server has shown
 * that the resource exists: users may name thousands that do not.
 */
export function observeMigration(
  metrics: Metrics,
  resource: string,
  { freezes, loop, now, series }: ObserveOptions,
): MigrationObserver {
  loop.beat();
  let seen = NOTHING;
  let counted: Readonly<Tally> | undefined;
  let isFound = false;
  const found = (): void => {
    series.use(resource);
    isFound = true;
  };
  const count = (outcome: ObjectOutcome, objects: number): void => {
    // A resource without objects, and what never happens, take no series.
    if (objects > 0) metrics.objects.inc({ resource, outcome }, objects);
  };
  const progress = (tally: Readonly<Tally>): void => {
    // Each attempt has a tally of its own, which counts from zero.
    if (tally !== counted) seen = NOTHING;
    counted = tally;
    const { failed, rewritten: migrated } = tally;
    const done = doneIn(tally);
    const skipped = done - migrated - failed;
    count("migrated", migrated - seen.migrated);
    count("failed", failed - seen.failed);
    count("skipped", skipped - seen.skipped);
    metrics.remaining.set({ resource }, Math.max(0, tally.total - done));
    seen = { migrated, failed, skipped };
  };
  return {
    event(event) {
      loop.beat();
      switch (event.type) {
        case "frozen":
          found();
          // A freeze that an earlier run left, and this one took over, began with that one.
          if (!freezes.has(resource)) metrics.freezeStarted.set({ resource }, now() / 1_000);
          freezes.add(resource);
          return;
        case "unfrozen":
          freezes.delete(resource);
          metrics.freezeStarted.remove({ resource });
          return;
        case "progress":
          found();
          progress(event.tally);
          return;
        case "pruned":
          found();
          metrics.pruned.inc({ resource }, event.removed.length);
          return;
        default:
      }
    },
    completed(result) {
      // A resource that was migrated, or had no need of it, exists.
      if (isFound || result === "Succeeded") found();
      metrics.completed.inc({ resource: isFound ? resource : "", result });
    },
    end() {
      loop.end();
      metrics.remaining.remove({ resource });
    },
  };
}

/** The metrics of the trigger. */
export interface TriggerObserver extends TriggerWatch {
  /** Takes away what is true only while the trigger runs. */
  readonly end: () => void;
}

type TriggerMetrics = Pick<
  Metrics,
  | "storedVersionsStale"
  | "triggerDisagreements"
  | "triggerLastLook"
  | "triggerRetries"
  | "triggerUnknown"
  | "triggerWaiting"
>;

/** Maps what a trigger sees to metrics. Only of a CRD with something to prune is there a series of its own. */
export function observeTrigger(metrics: TriggerMetrics): TriggerObserver {
  const counted = [
    { gauge: metrics.triggerUnknown, is: ({ isUnknown }: Looked) => isUnknown },
    { gauge: metrics.triggerDisagreements, is: ({ isDisagreement }: Looked) => isDisagreement },
    { gauge: metrics.triggerWaiting, is: ({ isWaiting }: Looked) => isWaiting },
  ].map((one) => ({ ...one, names: new Set<string>() }));
  const stale = new Set<string>();
  const looked = (name: string, facts: Looked | undefined): void => {
    for (const { gauge, is, names } of counted) {
      if (facts !== undefined && is(facts)) names.add(name);
      else names.delete(name);
      gauge.set(names.size);
    }
    if (facts !== undefined && facts.staleVersions > 0) {
      stale.add(name);
      metrics.storedVersionsStale.set({ resource: name }, facts.staleVersions);
    } else if (stale.delete(name)) {
      metrics.storedVersionsStale.remove({ resource: name });
    }
  };
  const known = (): readonly string[] => [...new Set([...stale, ...counted.flatMap(({ names }) => [...names])])];
  return {
    looked,
    polled: (now, there) => {
      metrics.triggerLastLook.set(now / 1_000);
      for (const name of known()) if (there?.has(name) === false) looked(name, undefined);
    },
    retried: (what) => metrics.triggerRetries.inc({ what }),
    end: () => {
      for (const name of known()) looked(name, undefined);
      metrics.triggerLastLook.set(0);
    },
  };
}
