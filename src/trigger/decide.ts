import { isFinal, UNKNOWN_HASH } from "../api/migration.ts";
import { formatCrdRecord } from "./crd-facts.ts";
import type { MigrationFacts } from "./migration-facts.ts";
import {
  type Cause,
  isFor,
  isOnly,
  mayHaveOther,
  type NextStatus,
  nextStatusOf,
  proves,
  type Situation,
} from "./next-status.ts";
import type { Observed } from "./observe.ts";

/** A migration to create. */
export interface NewMigration {
  readonly resource: Pick<Observed, "group" | "version" | "resource">;
  readonly hash: string;
  readonly attempt: number;
  readonly isLowPriority: boolean;
  /** Whether objects of a CRD are rewritten also where its storedVersions is the storage version alone. */
  readonly isForced: boolean;
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
  const record = observed.crd && formatCrdRecord(observed.crd);
  const isRecorded = record === undefined || record === (state?.crd && formatCrdRecord(state.crd));
  const base = {
    cause: next.cause,
    ...left,
    ...(isSame ? {} : { status: { persisted: next.persisted, current: next.current } }),
    ...(isRecorded ? {} : { crdRecord: record }),
  };
  if (observed.agreed === undefined) return { ...base, adopt: [], waiting: observed.disagreement ?? "" };
  return isOnly(next.persisted, observed.agreed)
    ? { ...base, adopt: [] }
    : { ...base, ...migrationFor(situation, next, { ...left, isNewSpell }) };
}

/** Whether what migrations did so far no longer counts: objects may be written otherwise since. */
function startsAnew({ cause }: NextStatus, { state }: Situation): boolean {
  return cause === "disagreement" ? state?.current !== UNKNOWN_HASH : cause !== "completed" && cause !== "unchanged";
}

function leftovers(situation: Situation, isNewSpell: boolean): Pick<Decision, "remove" | "disown"> {
  const { migrations, observed } = situation;
  const lastEnd = migrations
    .filter((one) => one.isOurs && isFinal(one.state))
    .toSorted((a, b) => a.createdAt - b.createdAt || a.attempt - b.attempt)
    .at(-1);
  // Of those one is kept for each resource, until a later migration ends.
  const isInVain = (one: MigrationFacts): boolean =>
    one.isOurs && (one.state === "Failed" || (one.state === "Succeeded" && !proves(one, situation)));
  const remove = migrations.filter(
    (one) =>
      isLeftover(one, observed.agreed, isNewSpell) ||
      (isInVain(one) && one !== lastEnd && !isLiftFinal(one, observed.agreed)),
  );
  // One that is Pending here may have run: changes of migrations may arrive late. The write that disowns it conflicts
  // then, and the next look decides.
  const mayProve = (one: MigrationFacts): boolean =>
    isFinal(one.state)
      ? !one.isOurs && one.state === "Succeeded" && isFor(one, observed.agreed)
      : one.hash !== undefined;
  const disown = migrations.filter((one) => isNewSpell && mayProve(one) && !remove.includes(one));
  return { remove, disown };
}

/** One that a user stopped is neither deleted nor replaced: it is taken for the one that is needed when it goes on. */
function isStopped(migration: MigrationFacts): boolean {
  return migration.isSuspended && !isFinal(migration.state);
}

function isLeftover(migration: MigrationFacts, agreed: string | undefined, isNewSpell: boolean): boolean {
  const { hash, isOurs, state } = migration;
  if (isStopped(migration)) return false;
  const isForNow = isFor(migration, agreed);
  // Once it is known that API servers disagree, what a user starts all the same is the user's.
  if (state === "Running" || state === "Waiting") return isNewSpell || (hash !== undefined && !isForNow);
  return isOurs && state !== "Failed" && (!isForNow || (state === "Succeeded" && isNewSpell));
}

/** The migration that is needed: one that is there already, one of another owner that has not begun, or a new one. */
function migrationFor(
  situation: Situation,
  { current, persisted }: NextStatus,
  { remove, disown, isNewSpell }: Pick<Decision, "remove" | "disown"> & { readonly isNewSpell: boolean },
): Pick<Decision, "adopt" | "create" | "lookAgainMs" | "waiting"> {
  const { agreed, crd, group, resource, version } = situation.observed;
  const unfinished = situation.migrations.filter((one) => !isFinal(one.state) && !remove.includes(one));
  if (unfinished.some((one) => isFor(one, agreed) && !disown.includes(one))) return { adopt: [] };
  const pending = unfinished.filter(({ state }) => state === "Pending" || state === "Suspended");
  if (pending.length > 0) return { adopt: pending.slice(0, 1) };
  // It is being stopped just now, and is adopted when it has been.
  if (unfinished.some(isStopped)) return { adopt: [] };
  const attempt = nextAttempt(situation, isNewSpell);
  if (typeof attempt !== "number") return attempt;
  // Nothing says that a built-in resource whose hash is what it was is stored otherwise; it was only not looked at.
  const isOnlyUnseen = crd === undefined && persisted.length === 2 && persisted.includes(UNKNOWN_HASH);
  const create: NewMigration = {
    resource: { group, version, resource },
    hash: current,
    attempt,
    isForced: crd?.isClean === true && mayHaveOther(persisted, current),
    isLowPriority: isOnlyUnseen && persisted.includes(current),
  };
  return { adopt: [], create };
}

/** The first retry comes after a minute, each later one after twice as long, and never later than six hours. */
const FIRST_RETRY_MS = 60_000;
const LAST_RETRY_MS = 6 * 3_600_000;

/**
 * Whether the newest one in vain for what is observed now is behind us. One that succeeded and proves nothing, since
 * the CRD changed before that was noticed or since another program called it Succeeded, is tried again at once; later
 * each time where that goes on.
 *
 * @returns the number of the next attempt, or what it waits for
 */
function nextAttempt(
  { migrations, now, observed }: Situation,
  isNewSpell: boolean,
): number | Pick<Decision, "adopt" | "waiting" | "lookAgainMs"> {
  const { agreed } = observed;
  const ended = migrations.toSorted((a, b) => endOf(a, now) - endOf(b, now));
  const lifted = ended.findLast((one) => isLiftFinal(one, agreed));
  if (lifted !== undefined) {
    // One of another owner is marked with what it failed for.
    const adopt = lifted.hash === undefined ? [lifted] : [];
    return { adopt, waiting: `another client lifted the freeze of "${lifted.name}"` };
  }
  const inVain = ended.filter(
    (one) => (one.state === "Failed" || (one.state === "Succeeded" && !isNewSpell)) && isFor(one, agreed),
  );
  const last = inVain.at(-1);
  if (last === undefined) return 1;
  const retries = last.state === "Failed" ? last.attempt : last.attempt - 1;
  const delayMs = retries === 0 ? 0 : Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** (retries - 1));
  const lookAgainMs = endOf(last, now) + delayMs - now;
  return lookAgainMs > 0
    ? { adopt: [], waiting: reasonToWait(last, observed), lookAgainMs }
    : Math.max(...inVain.map(({ attempt }) => attempt)) + 1;
}

/**
 * When it ended, as far as can be told. That is by the clock of the replica that led then; `now` and the creation are
 * by API servers. A clock that is ahead must not have the wait last until the others have caught up.
 */
function endOf({ createdAt, endedAt }: MigrationFacts, now: number): number {
  return endedAt - now > 60_000 ? createdAt : Math.min(now, Math.max(createdAt, endedAt));
}

function reasonToWait({ attempt, name, provenCrd, reason, state }: MigrationFacts, { crd }: Observed): string {
  const isForeign = crd === undefined || (provenCrd === undefined && reason !== "NothingToDo");
  const why = isForeign ? "another program than ksvm called it Succeeded" : "its CRD changed since";
  return `"${name}" ${state === "Failed" ? "failed" : `proves nothing: ${why}`} (attempt ${attempt})`;
}

/**
 * A freeze that another client lifted is not put back by itself, until the storage version is another one. A migration
 * without a hash failed for what is there now.
 */
function isLiftFinal({ hash, reason, state }: MigrationFacts, agreed: string | undefined): boolean {
  return state === "Failed" && reason === "FreezeLifted" && (hash === undefined || hash === agreed);
}
