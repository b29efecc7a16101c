import { holderOf, type Lease, type LeaseSpec } from "../../api/lease.ts";
import type { ObjectMeta } from "../../api/meta.ts";
import type { Clock } from "../../clock.ts";
import { DoubtfulAnswer } from "../kube/errors.ts";
import { MERGE_PATCH } from "../kube/resources.ts";

/** A moment on both clocks of a {@link Clock}, in milliseconds: a machine that sleeps stops the monotonic one. */
export interface Moment {
  readonly monotonic: number;
  readonly now: number;
}

/** Now. */
export function momentOf(clock: Clock): Moment {
  return { monotonic: clock.monotonic(), now: clock.now() };
}

/** Milliseconds since that moment. A monotonic clock may stand still while the machine sleeps, and a wall clock may be set back: the later one counts. */
export function msSince({ monotonic, now }: Moment, clock: Clock): number {
  return Math.max(clock.monotonic() - monotonic, clock.now() - now);
}

/** The time as a `metav1.MicroTime`. */
export function microTime(clock: Clock): string {
  return new Date(clock.now()).toISOString().replace("Z", "000Z");
}

/** What a write of a Lease changes. */
export interface LeaseChange {
  readonly spec: LeaseSpec;
  readonly annotations?: ObjectMeta["annotations"] | undefined;
}

/** A write of a Lease that arrives only if no other client wrote it since it was read. */
export function leasePatch(
  { metadata: { uid, resourceVersion } }: Lease,
  change: LeaseChange,
): { readonly type: string; readonly body: object } {
  const { annotations, spec } = change;
  return { type: MERGE_PATCH, body: { metadata: { uid, resourceVersion, annotations }, spec } };
}

/**
 * The Lease that an answer to a write of it is: only one that shows `identity` as its holder says that it was written.
 * @throws {DoubtfulAnswer}
 */
export function heldLeaseIn(lease: Lease, name: string, identity: string): Lease {
  const holder = holderOf(lease);
  if (holder !== identity) {
    throw new DoubtfulAnswer(`Cannot hold Lease "${name}": the answer to the write shows "${holder}" as its holder`);
  }
  return lease;
}
