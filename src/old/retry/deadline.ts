import type { Clock } from "../../clock.ts";

/** Until when {@link withDeadline} lets something take its time. */
export interface DeadlineOptions {
  readonly clock: Clock;
  /** Milliseconds that the work may take. */
  readonly ms: number;
  /** Ends the work as well. */
  readonly signal: AbortSignal;
  /** What the work's signal is aborted with when the time is up. */
  readonly errorOf: () => Error;
}

/** Why the timer ends. An abort without a reason makes a DOMException, which takes as long as the rest of what is done here. */
export const DONE = new Error("the work is done");

/** Runs `work` with a signal that is aborted when its time is up, or with the outer one. */
export async function withDeadline<T>(
  { clock, ms, signal, errorOf }: DeadlineOptions,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const timeUp = new AbortController();
  const done = new AbortController();
  const timer = clock.sleep(ms, done.signal).then(
    () => timeUp.abort(errorOf()),
    () => undefined,
  );
  try {
    return await work(AbortSignal.any([signal, timeUp.signal]));
  } finally {
    done.abort(DONE);
    await timer;
  }
}

/** Waits for `work` until the signal is aborted, and then throws its reason; the work itself goes on. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(signal.reason as Error);
  if (signal.aborted) {
    onAbort();
  }
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
