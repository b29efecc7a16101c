import type { Metrics } from "../observability/metrics.ts";
import type { Looked, TriggerWatch } from "../trigger/trigger-watch.ts";

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
      if (facts !== undefined && is(facts)) {
        names.add(name);
      } else {
        names.delete(name);
      }
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
    // A metric says it once the StorageState does.
    disagreed: () => undefined,
    looked,
    polled: (now, there) => {
      metrics.triggerLastLook.set(now / 1_000);
      known()
        .filter((name) => there?.has(name) === false)
        .forEach((name) => looked(name, undefined));
    },
    retried: (what) => metrics.triggerRetries.inc({ what }),
    end: () => {
      known().forEach((name) => looked(name, undefined));
      metrics.triggerLastLook.set(0);
    },
  };
}
