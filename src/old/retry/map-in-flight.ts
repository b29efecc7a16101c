import { systemClock } from "../../clock.ts";
import { Pacer } from "./pacer.ts";

/** How {@link mapInFlight} goes about it. */
export interface MapInFlightOptions {
  /** Items under way at the same time, at least 1. */
  readonly most: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * What `work` makes of each item, in their order.
 * @throws as `Pacer.forEach()`.
 */
export async function mapInFlight<T, R>(
  items: readonly T[],
  work: (item: T) => Promise<R>,
  { most, signal = new AbortController().signal }: MapInFlightOptions,
): Promise<R[]> {
  // Without a limit on requests per second the clock decides nothing.
  const pacer = new Pacer({ clock: systemClock, maxInFlight: most, maxQps: Number.POSITIVE_INFINITY });
  const results: R[] = [];
  const workAt = async ([index, item]: readonly [number, T]): Promise<void> => {
    results[index] = await work(item);
  };
  await pacer.forEach(items.entries(), workAt, signal);
  return results;
}
