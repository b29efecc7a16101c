import { type NamedObject, namedObjectOf } from "../../kube/named-object.ts";
import type { ObjectOutcome } from "./rewrite-context.ts";

/** How far a run is, in objects. */
export interface Counts {
  /** Looked at, whatever came of it. */
  done: number;
  /** Written by this run. */
  migrated: number;
  /** Stored in the storage version all along. */
  current: number;
  /** Written after the watermark: by another client, by an earlier attempt, or by a request whose answer was lost. */
  newer: number;
  /** Deleted during the run. */
  gone: number;
  /** Still stored as they were. */
  failed: number;
  /** Of the migrated ones: changed beyond the encoding, by another owner's admission webhook, or by the API server, which empties managedFields that name a version that is gone. */
  changed: number;
  /** Estimate of what there is to look at in all; `undefined` until the first page came. */
  total: number | undefined;
}

/** An object that could not be migrated, and why. */
export interface ObjectFailure extends NamedObject {
  readonly reason: string;
}

/** Characters of a reason that are kept: a message may quote the object, which may have megabytes. */
const MAX_REASON_LENGTH = 1_000;

/** How many objects a report names; the rest is only counted. */
export const MAX_NAMED_OBJECTS = 100;

const NOTHING: Readonly<Counts> = {
  done: 0,
  migrated: 0,
  current: 0,
  newer: 0,
  gone: 0,
  failed: 0,
  changed: 0,
  total: undefined,
};

/** Sums up what became of the objects of a run. */
export class Tally {
  readonly counts: Counts;
  /** The first {@link MAX_NAMED_OBJECTS} failures. */
  readonly failures: ObjectFailure[];
  /** The first {@link MAX_NAMED_OBJECTS} objects that were changed beyond their encoding. */
  readonly changedObjects: NamedObject[];

  /** @param before goes on from a copy of this one. @default nothing was counted */
  constructor(before?: Tally) {
    this.counts = { ...(before?.counts ?? NOTHING) };
    this.failures = [...(before?.failures ?? [])];
    this.changedObjects = [...(before?.changedObjects ?? [])];
  }

  /** One that goes on from what an earlier run counted. */
  static after(counts: Pick<Counts, "current" | "gone" | "newer"> = NOTHING): Tally {
    const tally = new Tally();
    const { current, gone, newer } = counts;
    Object.assign(tally.counts, { current, gone, newer, done: current + gone + newer });
    return tally;
  }

  /** Nothing of what was counted stands any more. */
  clear(): void {
    Object.assign(this.counts, NOTHING);
    this.failures.length = 0;
    this.changedObjects.length = 0;
  }

  /**
   * The list began at the first object again. What was not written, and did not change, is looked at once more; what was
   * written lies beyond the watermark now.
   */
  startOver(): void {
    this.counts.done -= this.counts.current + this.counts.failed;
    this.counts.current = 0;
    this.counts.failed = 0;
    this.failures.length = 0;
  }

  /** Adds one object. */
  add(object: NamedObject, outcome: ObjectOutcome): void {
    const named = namedObjectOf(object);
    this.counts.done++;
    this.counts[outcome.kind]++;
    if (outcome.kind === "failed" && this.failures.length < MAX_NAMED_OBJECTS) {
      this.failures.push({ ...named, reason: keptReasonOf(outcome.reason) });
    }
    if (outcome.kind === "migrated" && outcome.changed) {
      this.counts.changed++;
      if (this.changedObjects.length < MAX_NAMED_OBJECTS) {
        this.changedObjects.push(named);
      }
    }
  }
}

/** A reason as it is kept. A copy: a slice by itself would keep the whole text in memory. */
export function keptReasonOf(reason: string): string {
  return reason.length <= MAX_REASON_LENGTH ? reason : `${Buffer.from(reason.slice(0, MAX_REASON_LENGTH)).toString()}…`;
}
