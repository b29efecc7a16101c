import type { CallContext } from "../retry/call-context.ts";
import type { Arrivals, CountedArrivals } from "./arrivals.ts";

interface Due extends CountedArrivals {
  readonly onProven: () => void;
}

/**
 * Waits, beside other work, until it is proven that no API server came or went until after the last write of a run. An API server tells
 * how far its watch is seconds later, which would be the longest part of a run on a small resource. What comes while one wait is
 * under way shares the next one.
 */
export class ArrivalProofs {
  readonly #context: Pick<CallContext, "client" | "signal">;
  #due: Due[] = [];
  #proving: Promise<void> | undefined;

  constructor(context: Pick<CallContext, "client" | "signal">) {
    this.#context = context;
  }

  /**
   * To be called after the last write.
   * @param onProven called once that is proven; never where one came or went, or where that cannot be told
   */
  add(rested: CountedArrivals, onProven: () => void): void {
    this.#due.push({ ...rested, onProven });
    this.#proving ??= this.#prove().finally(() => (this.#proving = undefined));
  }

  /** Waits until nothing is under way. What is not proven by then never is. */
  async ended(): Promise<void> {
    await this.#proving;
  }

  async #prove(): Promise<void> {
    while (this.#due.length > 0) {
      const due = this.#due.splice(0);
      const caughtUp = await this.#catchUp(new Set(due.map(({ arrivals }) => arrivals)));
      for (const { arrivals, count, onProven } of due) {
        if (caughtUp.has(arrivals) && arrivals.count === count) {
          onProven();
        }
      }
    }
  }

  /** @returns those of which everything up to now is counted */
  async #catchUp(all: ReadonlySet<Arrivals>): Promise<ReadonlySet<Arrivals>> {
    const caughtUp = new Set<Arrivals>();
    for (const arrivals of all) {
      const isDone = await arrivals.catchUp(this.#context).then(
        () => true,
        () => false,
      );
      if (isDone) {
        caughtUp.add(arrivals);
      }
    }
    return caughtUp;
  }
}
