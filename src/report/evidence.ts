import type { MigrationResult } from "../migrator/result.ts";
import type { Verification } from "../verify/verification.ts";

/** Where something was told, and when. */
interface Told {
  readonly resource: string;
  /** The file, as the user named it. */
  readonly source: string;
  /** RFC 3339, by the clock of the machine that ran the command. */
  readonly time: string;
  /** Since the first line about that resource in the same file, in milliseconds. */
  readonly elapsedMs: number;
}

/**
 * What a command said of one resource in the end, read from a file of its `-o json`. A user gives the file, so a report says that this
 * comes from a file, and concludes nothing from it alone.
 */
export type Evidence = Told &
  (
    | { readonly kind: "result"; readonly result: MigrationResult }
    | { readonly kind: "verification"; readonly verification: Verification }
    | { readonly kind: "error"; readonly code: string; readonly message: string }
    /** The file ends while the command was at work on the resource: it was killed, or it has not ended yet. */
    | { readonly kind: "unfinished" }
  );

/** One kind of {@link Evidence}. */
export type EvidenceOf<Kind extends Evidence["kind"]> = Extract<Evidence, { kind: Kind }>;

/** The newest one of each resource; of two with the same time the one that was read last. */
export function newestByResource<T extends Evidence>(all: readonly T[]): ReadonlyMap<string, T> {
  const newest = new Map<string, T>();
  for (const one of all) {
    const known = newest.get(one.resource);
    if (known === undefined || Date.parse(known.time) <= Date.parse(one.time)) {
      newest.set(one.resource, one);
    }
  }
  return newest;
}

/** What was done, as against what was verified. */
export function workIn(all: readonly Evidence[]): readonly Exclude<Evidence, { kind: "verification" }>[] {
  return all.filter((one) => one.kind !== "verification");
}

/** What was verified. */
export function verificationsIn(all: readonly Evidence[]): readonly EvidenceOf<"verification">[] {
  return all.filter((one) => one.kind === "verification");
}
