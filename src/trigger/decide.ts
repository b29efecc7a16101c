import { isFinal, UNKNOWN_HASH } from "../api/migration.ts";
import type { Resource } from "../old/kube/resources.ts";
import { formatCrdRecord, storedVersionsMarkOf } from "./crd-facts.ts";
import type { MigrationFacts } from "./migration-facts.ts";
import {
  type Cause,
  isFor,
  mayHaveOther,
  isOnly,
  type NextStatus,
  nextStatusOf,
  proves,
  type Shown,
  type Situation,
} from "./next-status.ts";
import { isLiftFinal, retryOf } from "./retry-plan.ts";

/** A migration to create. */
export interface NewMigration {
  readonly resource: Resource;
  readonly hash: string;
  readonly attempt: number;
  readonly isLowPriority: boolean;
  /** Whether objects of a CRD are rewritten also where its storedVersions is the storage version alone. */
  readonly isForced: boolean;
  readonly storedVersions?: string;
  readonly storageVersion?: string;
}

/** What is to be done about one resource, in the order of the fields. */
export interface Decision {
  readonly cause: Cause;
  /** Migrations to delete. */
  readonly remove: readonly MigrationFacts[];
  /** Migrations that are kept and prove nothing: they ended, began, or may have begun before the last change. */
  readonly disown: readonly MigrationFacts[];
  /** The new status; missing where it stays. */
  readonly status?: Pick<NextStatus, "persisted" | "current">;
  /** What the StorageState is to remember of its CRD; missing where that stays. */
  readonly crdRecord?: string;
  /** Migrations of other owners that are taken for the one that is needed, if no client changed them since. */
  readonly adopt: readonly MigrationFacts[];
  readonly create?: NewMigration;
  /** Milliseconds after which to look again; missing where only an event or the next poll calls for it. */
  readonly lookAgainMs?: number;
  /** Why no migration runs although one is needed. */
  readonly waiting?: string;
}

/** Milliseconds between looks at API servers that do not agree. */
export const DISAGREEMENT_POLL_MS = 10_000;

/**
 * Decides what to do about one resource. It looks at what there is, not at what was done: a run that was cut short
 * anywhere is completed by the next.
 */
export function decide(situation: Situation): Decision {
  const next = nextStatusOf(situation);
  const { observed, state } = situation;
  const isNewSpell = startsAnew(next, situation);
  const left = leftovers(situation, isNewSpell);
  const isSame =
    state !== undefined && state.current === next.current && state.persisted.join(" ") === next.persisted.join(" ");
  const base = {
    cause: next.cause,
    ...left,
    ...(isSame ? {} : { status: { persisted: next.persisted, current: next.current } }),
    ...crdRecordOf(situation),
  };
  if (observed.agreed === undefined) {
    const waiting = observed.disagreement ?? "";
    return { ...base, adopt: [], lookAgainMs: DISAGREEMENT_POLL_MS, waiting };
  }
  return isOnly(next.persisted, observed.agreed)
    ? { ...base, adopt: [] }
    : { ...base, ...migrationFor(situation, next, { ...left, isNewSpell }) };
}

/** Whether what migrations did so far no longer counts: objects may be written otherwise since. */
function startsAnew({ cause }: NextStatus, { state }: Situation): boolean {
  return cause === "disagreement" ? state?.current !== UNKNOWN_HASH : cause !== "completed" && cause !== "unchanged";
}

function leftovers(situation: Situation, isNewSpell: boolean): Pick<Decision, "remove" | "disown"> {
  const { migrations, observed, state } = situation;
  const lastEnd = migrations
    .filter((one) => one.isOurs && isFinal(one.state))
    .toSorted((a, b) => byAge(a, b, situation))
    .at(-1);
  const shown = { ...observed, persisted: state?.persisted ?? [] };
  const remove = migrations.filter(
    (one) =>
      isLeftover(one, isFor(one, observed), isNewSpell) ||
      (isInVain(one, shown) && one !== lastEnd && !mayBeFinal(one, situation)),
  );
  const disown = migrations.filter((one) => isNewSpell && mayProve(one, observed) && !remove.includes(one));
  return { remove, disown };
}

/**
 * Whether it may come to count as a proof though it began, or may have, before the last change. One that is Pending here may
 * have run: changes of migrations may arrive late. The write that disowns it conflicts then, and the next look decides.
 */
function mayProve(migration: MigrationFacts, observed: Situation["observed"]): boolean {
  return isFinal(migration.state)
    ? !migration.isOurs && migration.state === "Succeeded" && isFor(migration, observed)
    : migration.hash !== undefined;
}

/** One that a user stopped is neither deleted nor replaced: it is taken for the one that is needed when it goes on. */
function isStopped(migration: MigrationFacts): boolean {
  return migration.isSuspended && !isFinal(migration.state);
}

function isLeftover(migration: MigrationFacts, isForNow: boolean, isNewSpell: boolean): boolean {
  return !isStopped(migration) && isPassed(migration, isForNow, isNewSpell);
}

function isPassed({ hash, isOurs, state }: MigrationFacts, isForNow: boolean, isNewSpell: boolean): boolean {
  if (state === "Running" || state === "Waiting") {
    // Once it is known that API servers disagree, what a user starts all the same is the user's.
    return isNewSpell || (hash !== undefined && !isForNow);
  }
  return isOurs && state !== "Failed" && (!isForNow || (state === "Succeeded" && isNewSpell));
}

/** What another client has lifted, as far as can be told: while API servers disagree it is not known whether it is lifted for good. */
function mayBeFinal(migration: MigrationFacts, situation: Situation): boolean {
  const isUnknown = situation.observed.agreed === undefined && migration.reason === "FreezeLifted";
  return isUnknown || isLiftFinal(migration, situation);
}

/** Of these one is kept for each resource, the newest, until a later migration ends; and one whose freeze another client lifted for good. */
function isInVain(migration: MigrationFacts, shown: Shown): boolean {
  const { isOurs, state } = migration;
  return isOurs && (state === "Failed" || (state === "Succeeded" && !proves(migration, shown)));
}

/**
 * The one that ended later, as far as this process saw that, is the newer one: both were created by the clocks of API servers, which differ and are
 * set back. Attempts are counted apart for each thing that is tried.
 */
function byAge(a: MigrationFacts, b: MigrationFacts, { endedForMs }: Situation): number {
  const [endedA = 0, endedB = 0] = [endedForMs?.get(a.uid), endedForMs?.get(b.uid)];
  return endedB - endedA || a.createdAt - b.createdAt || a.attempt - b.attempt;
}

function crdRecordOf({ observed: { crd }, state }: Situation): Pick<Decision, "crdRecord"> {
  const record = crd === undefined ? undefined : formatCrdRecord(crd);
  const before = state?.crd === undefined ? undefined : formatCrdRecord(state.crd);
  return record === undefined || record === before ? {} : { crdRecord: record };
}

/** The migration that is needed: one that is there already, one of another owner that has not begun, or a new one. */
function migrationFor(
  situation: Situation,
  next: NextStatus,
  { remove, disown, isNewSpell }: Pick<Decision, "remove" | "disown"> & { readonly isNewSpell: boolean },
): Pick<Decision, "adopt" | "create" | "lookAgainMs" | "waiting"> {
  const { observed } = situation;
  const unfinished = situation.migrations.filter((one) => !isFinal(one.state) && !remove.includes(one));
  if (unfinished.some((one) => isFor(one, observed) && !disown.includes(one))) {
    return { adopt: [] };
  }
  const pending = unfinished.filter(({ state }) => state === "Pending" || state === "Suspended");
  if (pending.length > 0) {
    return { adopt: pending.slice(0, 1) };
  }
  if (unfinished.some(isStopped)) {
    // It is being stopped just now, and is adopted when it has been.
    return { adopt: [] };
  }
  const retry = retryOf(situation, isNewSpell);
  if (retry.kind === "wait") {
    const { lookAgainMs, reason } = retry;
    return { adopt: retry.mark, waiting: reason, ...(lookAgainMs === undefined ? {} : { lookAgainMs }) };
  }
  return { adopt: [], create: newMigration(situation, next, retry.attempt) };
}

function newMigration({ observed }: Situation, { persisted, current }: NextStatus, attempt: number): NewMigration {
  const { crd, group, resource, storageVersion, version } = observed;
  // Nothing says that a built-in resource whose hash is what it was is stored otherwise; it was only not looked at.
  const isOnlyUnseen = crd === undefined && persisted.length === 2 && persisted.includes(UNKNOWN_HASH);
  return {
    resource: { group, version, resource },
    hash: current,
    attempt,
    isForced: crd?.isClean === true && mayHaveOther(persisted, current),
    isLowPriority: isOnlyUnseen && persisted.includes(current),
    ...(crd === undefined ? {} : { storedVersions: storedVersionsMarkOf(crd) }),
    ...(storageVersion === undefined ? {} : { storageVersion }),
  };
}
