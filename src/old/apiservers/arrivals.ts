import type { ApiClient } from "../kube/client.ts";
import type { CallContext } from "../retry/call-context.ts";

/** Which API servers came and went, for what rests on having seen all of them. */
export interface Arrivals {
  /** How many changes are known so far, at the least. Where it is the same before one look and after a later one, there was none. */
  readonly count: number;
  /** The newest of them, in words. */
  readonly newest: string;
  /**
   * When one may last have come or gone, on the monotonic clock, in milliseconds; `undefined` where nothing is watched. What was
   * before a watch is not known: one may have left right before it. Now, as long as no wait that counted from then has come to its end.
   */
  readonly changedAt: number | undefined;
  /** The resourceVersion up to which `count` has every change; empty while nothing is watched, and where that had a gap. */
  readonly seenTo: string;
  /**
   * Takes note of how new a list of the identity Leases is. Where it is older than what was seen before it was asked for, etcd was restored from a backup,
   * and what came and went since is not known: that counts as a change.
   * @param seenBefore `seenTo` as it was when the list was asked for
   */
  listed(seenBefore: string, resourceVersion: string): void;
  /**
   * Waits until `count` has every change up to now.
   * @throws {StartAgain} where the watch does not get there; {KsvmError} Forbidden where this user may not watch.
   */
  catchUp(context: Pick<CallContext, "client" | "signal">): Promise<void>;
  /**
   * Notes that late writes were waited for, to the end, while `count` was this: the next run does without that wait. A wait that was
   * broken off tells nothing: an API server may have stood still in it, with a write under way.
   */
  settled(count: number): void;
  /**
   * Watches while `work` is done. Work that is done at the same time, or within other work, shares one watch.
   * @param signal where it is aborted, `work` begins at once, and sees that: the watch may wait for an API server that does not answer.
   *   @default never
   */
  during<T>(client: ApiClient, work: () => Promise<T>, signal?: AbortSignal): Promise<T>;
}

/** What a run that has ended rests on: that is proven once `arrivals` has caught up and its count is still this one. */
export interface CountedArrivals {
  readonly arrivals: Arrivals;
  readonly count: number;
}

/** Where a user says which API servers there are, and may not watch them. */
export const UNSEEN_ARRIVALS: Arrivals = {
  count: 0,
  newest: "",
  changedAt: undefined,
  seenTo: "",
  listed: () => undefined,
  catchUp: async () => undefined,
  settled: () => undefined,
  during: (_, work) => work(),
};
