import { specKeyOf } from "../api/crd.ts";
import { isWholeRun, UNKNOWN_HASH, type CrdMode } from "../api/migration.ts";
import { MAX_HASHES } from "../api/parse-storage-state.ts";
import { type CrdFacts, type CrdRecord, formatCrdRecord, hasNotFlipped, isRecorded, isSameSpec } from "./crd-facts.ts";
import type { MigrationFacts } from "./migration-facts.ts";
import type { Observed } from "./survey.ts";

/** What is stored of a resource's StorageState. */
export interface StateFacts {
  readonly uid: string;
  readonly resourceVersion: string;
  readonly persisted: readonly string[];
  /** Empty where the status was never written. */
  readonly current: string;
  /** Milliseconds since the Unix epoch; NaN where there was none. */
  readonly heartbeat: number;
  readonly crd: CrdRecord | undefined;
  /** Whether a trigger of this program made it. */
  readonly isOurs: boolean;
}

/**
 * Why a StorageState gets the status that it gets.
 *
 * - `new`: there was none, or its CRD was deleted and created again
 * - `stale`: the heartbeat is too old, so that changes may have been missed
 * - `changed`: the storage version is another one
 * - `storedVersions`: the CRD lists versions that were not known of, or may have had another storage version since the last
 *   migration began
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

/** Everything that a decision on one resource depends on. */
export interface Situation {
  readonly observed: Observed;
  readonly state: StateFacts | undefined;
  /** What this process saw first of the CRD since it last wrote the StorageState. @default what is observed */
  readonly firstSeen?: CrdRecord;
  /** Those of this resource. */
  readonly migrations: readonly MigrationFacts[];
  /** Milliseconds since this process saw first that a migration had ended, by uid. @default each has ended just now */
  readonly endedForMs?: ReadonlyMap<string, number>;
  /** Milliseconds since the Unix epoch. */
  readonly now: number;
  /** Whether this process looked at the resource last, and not too long ago. @default false */
  readonly isFollowed?: boolean;
  /** Milliseconds after which a heartbeat is too old, unless {@link isFollowed}. */
  readonly staleAfterMs: number;
  /** As of `--manage-stored-versions`. @default "manage" */
  readonly crdMode?: CrdMode;
}

/** The status that the StorageState ought to have. */
export function nextStatusOf(situation: Situation): NextStatus {
  const next = unboundedStatusOf(situation);
  return { ...next, persisted: bounded(next.persisted) };
}

/** More hashes than a StorageState takes say no more than `Unknown` does. */
function bounded(persisted: readonly string[]): readonly string[] {
  return persisted.length <= MAX_HASHES ? persisted : union([UNKNOWN_HASH], persisted.slice(1 - MAX_HASHES));
}

function unboundedStatusOf(situation: Situation): NextStatus {
  const state = knownStateOf(situation);
  const { agreed, hashes } = situation.observed;
  if (agreed === undefined) {
    const isSure = state !== undefined && !isStale(situation, state);
    const known = union(isSure ? [] : [UNKNOWN_HASH], state?.persisted ?? begunOf(situation.state));
    const persisted = union(known, [...unseenHashesOf(state, situation), ...hashes]);
    return { cause: "disagreement", persisted, current: UNKNOWN_HASH };
  }
  if (state === undefined) {
    // By the known ones alone the next migration is forced where another client prunes storedVersions before it.
    const known = union(begunOf(situation.state), unseenHashesOf(state, situation));
    return { cause: "new", persisted: union([UNKNOWN_HASH], known), current: agreed };
  }
  return nextOf(state, agreed, situation);
}

/**
 * What a look has begun to write of a CRD that was created again: one that ended before it could say of which CRD that is. Where it is of the earlier
 * CRD, whose objects were not all rewritten, that costs a rewrite.
 */
function begunOf(state: StateFacts | undefined): readonly string[] {
  return state?.persisted.includes(UNKNOWN_HASH) === true ? state.persisted : [];
}

function nextOf(state: StateFacts, agreed: string, situation: Situation): NextStatus {
  const listed = bounded(union(state.persisted, unseenHashesOf(state, situation)));
  if (isStale(situation, state)) {
    // What was known stays: by it alone the next migration is forced where another client pruned storedVersions.
    return { cause: "stale", persisted: union([UNKNOWN_HASH], [...listed, agreed]), current: agreed };
  }
  if (state.current !== agreed) {
    return { cause: "changed", persisted: union(listed, [agreed]), current: agreed };
  }
  const isOpen = !isOnly(state.persisted, agreed);
  const shown = { ...situation.observed, persisted: listed };
  const rewrote = situation.migrations.filter((one) => showsAll(one, shown));
  if (listed.length > state.persisted.length || (isOpen && mayHaveFlipped(situation, state, rewrote.length > 0))) {
    return { cause: "storedVersions", persisted: listed, current: agreed };
  }
  return isOpen && rewrote.some((one) => isOfSpec(one, shown))
    ? { cause: "completed", persisted: [agreed], current: agreed }
    : { cause: "unchanged", persisted: state.persisted, current: agreed };
}

/**
 * Whether the storage version of a CRD may have gone there and back since the migration that is to prove something began.
 * A migration that manages storedVersions left its storage version alone in there, and every other one that was written
 * since is added by the API server. Without that only a spec that did not change shows it: from look to look while no
 * migration has ended, and since the last look when one has.
 */
function mayHaveFlipped(
  { crdMode = "manage", observed: { crd } }: Situation,
  state: StateFacts,
  hasProof: boolean,
): boolean {
  if (crd === undefined) {
    return false;
  }
  return crdMode === "manage"
    ? hasProof && !crd.isClean
    : !crd.isClean && state.crd !== undefined && !isSameSpec(state.crd, crd);
}

/** The StorageState, unless it is one of an earlier CRD of the same name or was created and never filled. */
function knownStateOf({ observed: { crd }, state }: Situation): StateFacts | undefined {
  const isOfEarlierCrd = crd !== undefined && state?.crd !== undefined && state.crd.uid !== crd.uid;
  return state === undefined || state.current === "" || isOfEarlierCrd ? undefined : state;
}

/**
 * Whether the last look was too long ago. A CRD shows that nothing was missed: its storage version is what it was and cannot
 * have gone there and back, and its storedVersions lists nothing else.
 */
function isStale(situation: Situation, state: StateFacts): boolean {
  const { isFollowed = false, now, observed, staleAfterMs } = situation;
  const { crd, agreed } = observed;
  const isFresh = isFollowed || Math.abs(now - state.heartbeat) <= staleAfterMs;
  const isVouchedFor = crd !== undefined && crd.isClean && hasNotFlipped(state.crd, crd) && state.current === agreed;
  return !isFresh && !isVouchedFor;
}

/**
 * The versions in storedVersions, where they say something new: a change there and back between two looks. What was
 * there at the last look is not new: with `--manage-stored-versions=false` it is never pruned. Where another client may
 * have pruned them since such a change, they are unknown, unless every object was rewritten since.
 */
function unseenHashesOf(state: StateFacts | undefined, situation: Situation): readonly string[] {
  const { crd } = situation.observed;
  if (crd === undefined) {
    return [];
  }
  if (crd.isClean) {
    const isBelieved = state === undefined ? isFirstSight(situation, crd) : isKnown(state, crd, situation);
    return isBelieved ? [] : [UNKNOWN_HASH, crd.hash];
  }
  return isSeen(state?.crd, crd) ? [] : crd.storedHashes;
}

/**
 * Whether no look has seen a clean CRD otherwise. One that ended between the creation of the StorageState and its status left what it saw: a version
 * that another client has pruned since, or a storage version that may have gone there and back. So does one that waited for API servers, or failed.
 */
function isFirstSight({ firstSeen, state }: Situation, crd: CrdFacts): boolean {
  const now = formatCrdRecord(crd);
  return [firstSeen, state?.crd].every((record) => record?.uid !== crd.uid || formatCrdRecord(record) === now);
}

/** Whether the last look saw this spec, and all these storedVersions. */
function isSeen(record: CrdRecord | undefined, crd: CrdFacts): boolean {
  return isSameSpec(record, crd) && isRecorded(record, crd.storedVersions);
}

/** Whether a clean CRD had no other storage version since the last look, or every object was rewritten since. */
function isKnown({ crd: record, persisted }: StateFacts, crd: CrdFacts, { migrations, observed }: Situation): boolean {
  const shown = { ...observed, persisted };
  return hasNotFlipped(record, crd) || migrations.some((one) => !foundNothing(one) && proves(one, shown));
}

/** What a migration is to prove. */
export type Shown = Pick<Observed, "agreed" | "crd" | "storageVersion"> & { readonly persisted: readonly string[] };

/**
 * Whether a migration shows that every object is stored as `agreed` says: ksvm showed so when it ended, and the CRD has the
 * spec that it had then. One of another generation may have had another storage version in between, whatever its
 * storedVersions lists: another client may have pruned it.
 */
export function proves(migration: MigrationFacts, shown: Shown): boolean {
  return showsAll(migration, shown) && isOfSpec(migration, shown);
}

/**
 * Whether a migration showed, when it ended, that every object is stored as `agreed` says: it was created for that very
 * hash, after the last change that is known of (earlier ones were removed with it), and the StorageVersion is what it was
 * before. One that found nothing to do looked at storedVersions alone, which another client may have pruned.
 */
function showsAll(migration: MigrationFacts, { agreed, persisted, storageVersion }: Shown): boolean {
  const isFound = foundNothing(migration) && mayHaveOther(persisted, agreed);
  return migration.state === "Succeeded" && !isFound && isFor(migration, { agreed, storageVersion });
}

/**
 * One that found nothing to do rests on storedVersions, which is looked at again. Of a built-in resource, which has neither that nor a spec,
 * the reason alone shows that another migrator of migration.k8s.io, or a user, has not called it Succeeded.
 */
function isOfSpec(migration: MigrationFacts, { crd }: Shown): boolean {
  if (crd === undefined) {
    return isWholeRun(migration.reason);
  }
  return foundNothing(migration) || migration.provenCrd === specKeyOf(crd);
}

function foundNothing({ reason }: MigrationFacts): boolean {
  return reason === "NothingToDo";
}

/**
 * Whether objects may have been stored in another version since the trigger knows the resource, so that only a rewrite shows
 * that none is left. `Unknown` alone is a resource that it never knew.
 */
export function mayHaveOther(persisted: readonly string[], agreed: string | undefined): boolean {
  return persisted.length > 1 || persisted.some((hash) => hash !== agreed && hash !== UNKNOWN_HASH);
}

/** Whether a migration was created for what is observed now. */
export function isFor(
  migration: MigrationFacts,
  { agreed, storageVersion }: { agreed?: string | undefined; storageVersion?: string | undefined },
): boolean {
  return migration.hash !== undefined && migration.hash === agreed && migration.storageVersion === storageVersion;
}

/** Whether the list is exactly the one hash. */
export function isOnly(hashes: readonly string[], hash: string): boolean {
  return hashes.length === 1 && hashes[0] === hash;
}

function union(hashes: readonly string[], others: readonly string[]): readonly string[] {
  return [...new Set([...hashes, ...others])];
}
