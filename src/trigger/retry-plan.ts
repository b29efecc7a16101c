import { storedVersionsMarkOf } from "./crd-facts.ts";
import type { MigrationFacts } from "./migration-facts.ts";
import { isFor, type Situation } from "./next-status.ts";

/** Whether a migration that failed, or proved nothing in the end, is tried again. */
export type Retry =
  | { readonly kind: "now"; readonly attempt: number }
  | {
      readonly kind: "wait";
      readonly reason: string;
      /** Missing where only a change of the CRD or a user ends the wait. */
      readonly lookAgainMs?: number;
      /** Failed migrations of other owners that are to remember what they failed for. */
      readonly mark: readonly MigrationFacts[];
    };

/** The first retry comes after a minute, each later one after twice as long, and never later than six hours. */
const FIRST_RETRY_MS = 60_000;
const LAST_RETRY_MS = 6 * 3_600_000;

/** Milliseconds between the end of the `attempt`th failed migration and the next one. */
function retryDelayMs(attempt: number): number {
  return Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** (attempt - 1));
}

/**
 * Whether the newest one in vain for what is observed now is behind us. One that succeeded and proves nothing, since the CRD
 * changed before that was noticed or since another program called it Succeeded, is tried again at once; later each time where that goes on.
 * @param isNewSpell whether what succeeded is no longer looked at
 */
export function retryOf(situation: Situation, isNewSpell: boolean): Retry {
  const { migrations, now, observed } = situation;
  const ended = migrations.toSorted((a, b) => endOf(a, situation) - endOf(b, situation));
  const failures = ended.filter(({ state }) => state === "Failed");
  const lifted = failures.findLast((one) => isLiftFinal(one, situation));
  if (lifted !== undefined) {
    const mark = lifted.hash === undefined ? [lifted] : [];
    return { kind: "wait", reason: `another client lifted the freeze of "${lifted.name}"`, mark };
  }
  const isInVain = (one: MigrationFacts): boolean =>
    one.state === "Failed" ? hasSameStoredVersions(one, situation) : one.state === "Succeeded" && !isNewSpell;
  const inVain = ended.filter((one) => isInVain(one) && isFor(one, observed));
  const last = inVain.at(-1);
  if (last === undefined) {
    return { kind: "now", attempt: 1 };
  }
  const lookAgainMs = endOf(last, situation) + delayAfter(last) - now;
  return lookAgainMs > 0
    ? { kind: "wait", reason: describe(last, situation), lookAgainMs, mark: [] }
    : { kind: "now", attempt: Math.max(...inVain.map(({ attempt }) => attempt)) + 1 };
}

/** An end that is to come in more than this time is none, in milliseconds. What API servers tell as now is up to a second old. */
const MAX_AHEAD_MS = 60_000;

/**
 * When it ended, as far as can be told, and no later than this process saw that. The end is by the clock of the replica that led then, which may be
 * ahead or behind; the creation and `now` are by API servers, whose clocks differ and are set. Counted by a time that is still to come, the wait would
 * not be over before such a clock has caught up.
 */
function endOf({ createdAt, endedAt, uid }: MigrationFacts, { endedForMs, now }: Situation): number {
  const told = endedAt - now > MAX_AHEAD_MS ? createdAt : Math.max(createdAt, endedAt);
  return Math.min(told, now - (endedForMs?.get(uid) ?? 0));
}

function delayAfter({ attempt, state }: MigrationFacts): number {
  if (state === "Failed") {
    return retryDelayMs(attempt);
  }
  return attempt === 1 ? 0 : retryDelayMs(attempt - 1);
}

function describe({ attempt, name, provenCrd, reason, state }: MigrationFacts, { observed }: Situation): string {
  const isForeign = observed.crd === undefined || (provenCrd === undefined && reason !== "NothingToDo");
  const why = isForeign ? "another program than ksvm called it Succeeded" : "its CRD changed since";
  return `"${name}" ${state === "Failed" ? "failed" : `proves nothing: ${why}`} (attempt ${attempt})`;
}

function hasSameStoredVersions(migration: MigrationFacts, { observed: { crd } }: Situation): boolean {
  return crd === undefined || migration.storedVersions === storedVersionsMarkOf(crd);
}

/**
 * A freeze that another client lifted is not put back by itself, until the storage version or storedVersions is another one
 * (DESIGN.md, "Break-glass is final"). An unmarked migration failed for what is there now.
 */
export function isLiftFinal(migration: MigrationFacts, situation: Situation): boolean {
  const { agreed, crd } = situation.observed;
  if (migration.reason !== "FreezeLifted" || crd === undefined) {
    return false;
  }
  const isUnmarked = migration.hash === undefined;
  return isUnmarked || (migration.hash === agreed && hasSameStoredVersions(migration, situation));
}
