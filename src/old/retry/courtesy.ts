import type { Clock } from "../../clock.ts";
import { failureKindOf } from "../kube/failure.ts";
import { withDeadline } from "./deadline.ts";
import type { Pacer } from "./pacer.ts";

/** Milliseconds from one look to the next. */
const FEEL_EVERY_MS = 100;
/** The same while no request of the work is answered: a look would tell of an outage, and add to it. */
const IDLE_EVERY_MS = 2_000;
/** A read that waits longer is given up, and tells enough. */
const LONG_MS = 1_000;

/** What {@link feelWhile} needs. */
export interface Feeling {
  readonly pacer: Pacer;
  readonly clock: Clock;
  /** A small read, as other clients send it. What it answers does not matter. */
  readonly feel: (signal: AbortSignal) => Promise<unknown>;
}

/**
 * Sends a small read ten times a second while `work` is under way, and tells the limiter how long each one waited: other
 * clients wait as long. A read that fails does not fail the work.
 * @throws what `work` throws.
 */
export async function feelWhile<T>({ pacer, clock, feel }: Feeling, work: () => Promise<T>): Promise<T> {
  const { courteous: limiter } = pacer;
  if (limiter === undefined) {
    return work();
  }
  const done = new AbortController();
  const feeling = (async () => {
    for (let answers = -1; !done.signal.aborted; ) {
      const isGoingOn = pacer.answers !== answers;
      answers = pacer.answers;
      const begunAt = clock.monotonic();
      if (await isTold(clock, feel, done.signal)) {
        limiter.felt(begunAt, clock.monotonic());
      }
      await clock.sleep(isGoingOn ? FEEL_EVERY_MS : IDLE_EVERY_MS, done.signal).catch(() => undefined);
    }
  })();
  limiter.feels = true;
  try {
    return await work();
  } finally {
    limiter.feels = false;
    done.abort();
    await feeling;
  }
}

/** Whether a read tells how long others wait: it was answered, whatever the answer is, or was not for {@link LONG_MS}. */
async function isTold(clock: Clock, feel: Feeling["feel"], signal: AbortSignal): Promise<boolean> {
  const tooLong = new Error("A read was not answered in time");
  try {
    await withDeadline({ clock, ms: LONG_MS, signal, errorOf: () => tooLong }, feel);
    return true;
  } catch (error) {
    const kind = failureKindOf(error);
    return error === tooLong || (kind !== undefined && kind !== "transient");
  }
}
