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

/** What a {@link Tally} holds. */
type Tallied = Readonly<Pick<Tally, "counts" | "failures" | "changedObjects" | "kept" | "keptObjects">>;

const NONE: Tallied = { counts: NOTHING, failures: [], changedObjects: [], kept: 0, keptObjects: [] };

/** Sums up what became of the objects of a run. */
export class Tally {
  readonly counts: Counts;
  /** The first {@link MAX_NAMED_OBJECTS} failures. */
  readonly failures: ObjectFailure[];
  /** The first {@link MAX_NAMED_OBJECTS} objects that were changed beyond their encoding. */
  readonly changedObjects: NamedObject[];
  /** Objects whose managedFields go on naming another version, where they were to name the storage version. */
  kept: number;
  /** The first {@link MAX_NAMED_OBJECTS} of those, and why. */
  readonly keptObjects: ObjectFailure[];

  /** @param before goes on from a copy of this one. @default nothing was counted */
  constructor(before: Tallied = NONE) {
    this.counts = { ...before.counts };
    this.failures = [...before.failures];
    this.changedObjects = [...before.changedObjects];
    this.kept = before.kept;
    this.keptObjects = [...before.keptObjects];
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
    this.#forgetKept();
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
    // Whenever they were written, they are looked at once more.
    this.#forgetKept();
  }

  /** Adds one object. */
  add(object: NamedObject, outcome: ObjectOutcome): void {
    const named = namedObjectOf(object);
    this.#keep(named, outcome);
    if (outcome.isCounted !== true) {
      this.counts.done++;
      this.counts[outcome.kind]++;
    }
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

  #keep(named: NamedObject, { keptFields }: ObjectOutcome): void {
    if (keptFields === undefined) {
      return;
    }
    this.kept++;
    if (this.keptObjects.length < MAX_NAMED_OBJECTS) {
      this.keptObjects.push({ ...named, reason: keptReasonOf(keptFields) });
    }
  }

  #forgetKept(): void {
    this.kept = 0;
    this.keptObjects.length = 0;
  }
}

/** A reason as it is kept. A copy: a slice by itself would keep the whole text in memory. */
function keptReasonOf(reason: string): string {
  return reason.length <= MAX_REASON_LENGTH ? reason : `${Buffer.from(reason.slice(0, MAX_REASON_LENGTH)).toString()}…`;
}
