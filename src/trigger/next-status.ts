import { type CrdMode, HEARTBEAT_LIMIT_MS, isWholeRun, UNKNOWN_HASH } from "../api/migration.ts";
import { type CrdFacts, hasNotFlipped, isSameSpec } from "./crd-facts.ts";
import type { MigrationFacts } from "./migration-facts.ts";
import type { Observed } from "./observe.ts";
import type { StateFacts } from "./state-facts.ts";

/**
 * Why a StorageState gets the status that it gets.
 *
 * - `new`: there was none, or its CRD was deleted and created again
 * - `stale`: the heartbeat is too old, so that changes may have been missed
 * - `changed`: the storage version is another one
 * - `storedVersions`: the CRD lists versions that were not known of, or may have had another storage version since the
 *   last migration began
 * - `disagreement`: not all API servers encode alike
 * - `completed`: every object was rewritten
 * - `unchanged`
 */
export type Cause = "new" | "stale" | "changed" | "storedVersions" | "disagreement" | "completed" | "unchanged";

/** The status that a StorageState ought to have. */
export interface NextStatus {
  readonly cause: Cause;
  readonly persisted: readonly string[];
  readonly current: string;
}

/** Everything that a decision on one resource depends on. Times are of an API server's clock, since the Unix epoch. */
export interface Situation {
  readonly observed: Observed;
  /** When that was observed, in milliseconds. Heartbeats are written and judged by it. */
  readonly observedAt: number;
  readonly state: StateFacts | undefined;
  /** Those of this resource, as they were before it was observed: what one of them has done is seen then. */
  readonly migrations: readonly MigrationFacts[];
  /** Milliseconds. */
  readonly now: number;
  /** As of `--manage-stored-versions`. @default "manage" */
  readonly crdMode?: CrdMode;
}

/** The status that the StorageState ought to have. */
export function nextStatusOf(situation: Situation): NextStatus {
  const { agreed, crd, hashes } = situation.observed;
  // One of an earlier CRD of the same name, or one that was created and never filled, says nothing.
  const isOfEarlierCrd = crd !== undefined && situation.state?.crd !== undefined && situation.state.crd.uid !== crd.uid;
  const state = situation.state?.current === "" || isOfEarlierCrd ? undefined : situation.state;
  const unseen = crd === undefined ? [] : unseenHashes(state, crd, situation);
  const isUnsure = state === undefined || isStale(state, situation);
  // What was known stays: by it alone the next migration is forced where another client pruned storedVersions.
  const listed = union(isUnsure ? [UNKNOWN_HASH] : [], state?.persisted ?? [], unseen);
  if (agreed === undefined) {
    return { cause: "disagreement", persisted: union(listed, hashes), current: UNKNOWN_HASH };
  }
  if (state === undefined) return { cause: "new", persisted: listed, current: agreed };
  if (isUnsure) return { cause: "stale", persisted: union(listed, [agreed]), current: agreed };
  if (state.current !== agreed) return { cause: "changed", persisted: union(listed, [agreed]), current: agreed };

  const isOpen = !isOnly(state.persisted, agreed);
  if (listed.length > state.persisted.length || (isOpen && mayHaveFlipped(state, situation))) {
    return { cause: "storedVersions", persisted: listed, current: agreed };
  }
  return isOpen && situation.migrations.some((one) => proves(one, situation))
    ? { cause: "completed", persisted: [agreed], current: agreed }
    : { cause: "unchanged", persisted: state.persisted, current: agreed };
}

/**
 * Whether the last look was too long ago. A CRD shows that nothing was missed: its storage version is what it was and
 * cannot have gone there and back, and its storedVersions lists nothing else.
 */
function isStale(state: StateFacts, { observed: { agreed, crd }, observedAt }: Situation): boolean {
  const isFresh = Math.abs(observedAt - state.heartbeat) <= HEARTBEAT_LIMIT_MS;
  const isVouchedFor = crd !== undefined && crd.isClean && hasNotFlipped(state.crd, crd) && state.current === agreed;
  return !isFresh && !isVouchedFor;
}

/**
 * The versions in storedVersions, where they say something new: a change there and back between two looks. What was
 * there at the last look is not new: with `--manage-stored-versions=false` it is never pruned. Where a clean CRD may
 * have had another storage version since the last look, another client may have pruned it, unless every object was
 * rewritten since.
 */
function unseenHashes(state: StateFacts | undefined, crd: CrdFacts, situation: Situation): readonly string[] {
  const record = state?.crd;
  if (crd.isClean) {
    const isKnown =
      state === undefined ||
      hasNotFlipped(record, crd) ||
      situation.migrations.some((one) => !foundNothing(one) && proves(one, situation));
    return isKnown ? [] : [UNKNOWN_HASH, crd.hash];
  }
  const isSeen =
    isSameSpec(record, crd) && crd.storedVersions.every((version) => record?.storedVersions.includes(version));
  return isSeen ? [] : crd.storedHashes;
}

/**
 * Whether a CRD whose storedVersions is not managed may have had another storage version since the migration began that
 * is to prove something: its spec is another one than the last look saw.
 */
function mayHaveFlipped(state: StateFacts, { crdMode = "manage", observed: { crd } }: Situation): boolean {
  const isChanged = crd !== undefined && state.crd !== undefined && !isSameSpec(state.crd, crd);
  return crdMode === "rewrite" && isChanged && !crd.isClean;
}

/**
 * Whether a migration shows that every object is stored as `agreed` says.
 *
 * One that managed a CRD ends with its uid and generation: the spec was the same from before it began until it pruned.
 * So it proves that for as long as the CRD is of that generation and nothing is added to storedVersions, whoever
 * created it. Others have to be for the very hash, and to have begun after the last change that is known of: earlier
 * ones were removed or disowned with it.
 */
export function proves(migration: MigrationFacts, { crdMode = "manage", observed, state }: Situation): boolean {
  const { agreed, crd } = observed;
  if (migration.state !== "Succeeded") return false;
  // It looked at storedVersions alone, which another client may have pruned.
  if (foundNothing(migration)) {
    return crd !== undefined && isFor(migration, agreed) && !mayHaveOther(state?.persisted ?? [], agreed);
  }
  // The reason alone shows that another migrator of migration.k8s.io, or a user, has not called it Succeeded.
  if (!isWholeRun(migration.reason)) return false;
  if (crd?.isClean === true && migration.provenCrd === `${crd.uid}/${crd.generation}`) return true;
  return (crd === undefined || crdMode === "rewrite") && isFor(migration, agreed);
}

function foundNothing({ reason }: MigrationFacts): boolean {
  return reason === "NothingToDo";
}

/**
 * Whether objects may have been stored in another version since the trigger knows the resource, so that only a rewrite
 * shows that none is left. `Unknown` alone is a resource that it never knew.
 */
export function mayHaveOther(persisted: readonly string[], agreed: string | undefined): boolean {
  return persisted.length > 1 || persisted.some((hash) => hash !== agreed && hash !== UNKNOWN_HASH);
}

/** Whether a migration was created for what is observed now. */
export function isFor({ hash }: MigrationFacts, agreed: string | undefined): boolean {
  return hash !== undefined && hash === agreed;
}

/** Whether the list is exactly the one hash. */
export function isOnly(hashes: readonly string[], hash: string): boolean {
  return hashes.length === 1 && hashes[0] === hash;
}

function union(...lists: readonly (readonly string[])[]): readonly string[] {
  return [...new Set(lists.flat())];
}
