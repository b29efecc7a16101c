import { type CustomResourceDefinition, isClean, storageVersionOf, storedVersionsOf } from "../api/crd.ts";
import { isFinal } from "../api/migration.ts";
import { CRD_FIELD_MANAGER, STORAGE_MIGRATING_CONDITION } from "../api/names.ts";
import { freezeOwnerOf } from "../api/owner.ts";
import { lastVersionsChangeOf } from "../apiservers/settle.ts";
import { hasMigratingCondition } from "../freeze/freeze-rule.ts";
import { lastPruneOf } from "./last-prune.ts";
import type { MigrationLine } from "./migration-lines.ts";
import { pruneDoubtTextOf } from "./plan.ts";
import { type LeftStored, leftStoredOf, unprovenOf } from "./succeeded-work.ts";

/** How far what is waited for is. */
export interface WaitVerdict {
  /** `incomplete` has failed for some objects, `failed` as a whole. */
  readonly state: "done" | "pending" | "failed" | "incomplete";
  /** Why, in words. */
  readonly text: string;
}

/** What a CRD is waited for: that nothing is left to migrate, whichever migrator does it. */
export interface AwaitedCrd {
  /** `undefined` where it is gone. */
  readonly crd: CustomResourceDefinition | undefined;
  /** Every migration of it. */
  readonly migrations: readonly MigrationLine[];
  /**
   * Whether the end of its migrations is waited for. storedVersions may keep what it lists then, as with `--manage-stored-versions=false`.
   * @default false: it is waited for
   */
  readonly isForEnd?: boolean;
}

/**
 * Decides about a CRD. That storedVersions is the storage version alone is what counts, and not what a migration says of itself,
 * but for two: Kubernetes' own migrator prunes storedVersions also where its migration failed, and of one that re-encrypts storedVersions
 * says nothing.
 */
export function crdVerdictOf({ crd, isForEnd = false, migrations }: AwaitedCrd): WaitVerdict {
  if (crd === undefined) {
    return { state: "failed", text: "the CRD was deleted" };
  }
  const unfinished = migrations.find(({ state }) => !isFinal(state));
  if (unfinished !== undefined) {
    return { state: "pending", text: lineText(unfinished) };
  }
  const ended = migrations.filter((line) => isOfVersions(line, crd));
  const against = unprovenKeysOf(isForEnd ? ended.filter(isForKeys) : ended) ?? failureAgainst(crd, newestOf(ended));
  if (against !== undefined) {
    return against;
  }
  return isClean(crd) ? cleanVerdictOf(crd, newestOf(ended)) : staleVerdictOf(crd, isForEnd ? ended : []);
}

function failureAgainst(crd: CustomResourceDefinition, last: MigrationLine | undefined): WaitVerdict | undefined {
  // Kubernetes' own migrator prunes whether or not it fails.
  const counts = last?.controller === "in-tree" || !isClean(crd);
  return last?.state === "Failed" && counts ? failureOf(last) : undefined;
}

function cleanVerdictOf(crd: CustomResourceDefinition, last: MigrationLine | undefined): WaitVerdict {
  return doubtedVerdictOf(crd, last) ?? { state: "done", text: `storedVersions is ${storageVersionOf(crd)} alone` };
}

/** Where the newest one is to re-encrypt, and failed, or another migrator may have called it Succeeded. */
function unprovenKeysOf(ended: readonly MigrationLine[]): WaitVerdict | undefined {
  const last = newestOf(ended);
  if (last === undefined || !isForKeys(last)) {
    return undefined;
  }
  const verdict = last.state === "Failed" ? failureOf(last) : successVerdictOf(last, undefined);
  return verdict.state === "done" ? undefined : verdict;
}

/** Whether it is to re-encrypt. */
export function isForKeys({ reencrypts }: MigrationLine): boolean {
  return reencrypts === true;
}

/** @param ended those whose end is waited for; one that re-encrypts says nothing of storedVersions, and Kubernetes' own prunes what it can */
function staleVerdictOf(crd: CustomResourceDefinition, ended: readonly MigrationLine[]): WaitVerdict {
  const last = newestOf(ended.filter((line) => !isForKeys(line)));
  if (last?.controller !== "ksvm") {
    return { state: "pending", text: staleText(crd) };
  }
  return last.state === "Failed" ? failureOf(last) : successVerdictOf(last, crd);
}

/** Kubernetes' own migrator prunes before it has rewritten anything, and its migration may be gone by now. */
function doubtedVerdictOf(crd: CustomResourceDefinition, last: MigrationLine | undefined): WaitVerdict | undefined {
  const text = pruneDoubtTextOf(crd);
  if (text === undefined || isRewrittenSince(crd, last)) {
    return undefined;
  }
  const isAtWork = hasMigratingCondition(crd) || freezeOwnerOf(crd) !== undefined;
  return { state: isAtWork ? "pending" : "failed", text };
}

/** By a run of ours that pruned, or a migration of ours that began, after that of Kubernetes' own migrator had ended. */
function isRewrittenSince(crd: CustomResourceDefinition, last: MigrationLine | undefined): boolean {
  const condition = crd.status?.conditions?.find(({ type }) => type === STORAGE_MIGRATING_CONDITION);
  const endedAt = timeOf(condition?.lastTransitionTime);
  const prune = lastPruneOf(crd);
  const isPruned = prune?.manager === CRD_FIELD_MANAGER && timeOf(prune.time) > endedAt;
  return isPruned || (isOurSuccess(last) && timeOf(last.created) >= endedAt);
}

/** Another migrator of migration.k8s.io may call one Succeeded, and proves nothing. */
function isOurSuccess(last: MigrationLine | undefined): last is MigrationLine {
  return last?.controller === "ksvm" && last.state === "Succeeded" && last.crd !== undefined;
}

/** `NaN`, which nothing is later than, where it is missing. */
function timeOf(time: string | undefined): number {
  return Date.parse(time ?? "");
}

function staleText(crd: CustomResourceDefinition): string {
  const owner = freezeOwnerOf(crd);
  const now = owner === undefined ? "no migration is under way" : `${owner.identity} migrates it`;
  return `storedVersions is ${storedVersionsOf(crd).join(",") || "empty"}, and ${now}`;
}

/** Decides about migrations by what they say: of one name, or of a built-in resource. At least one is expected. */
export function migrationsVerdictOf(migrations: readonly MigrationLine[]): WaitVerdict {
  const unfinished = migrations.find(({ state }) => !isFinal(state));
  const last = newestOf(migrations);
  if (last === undefined) {
    return { state: "failed", text: "the migration was deleted" };
  }
  if (unfinished !== undefined) {
    return { state: "pending", text: lineText(unfinished) };
  }
  return last.state === "Failed" ? failureOf(last) : { state: "done", text: lineText(last) };
}

/**
 * What one that has succeeded comes to: it is believed as far as its CRD bears it out, or its reason, since another migrator of migration.k8s.io may
 * have written that it has. Kubernetes' own answers for its own.
 * @param crd `undefined` where there is none, or this user may not tell
 */
export function successVerdictOf(last: MigrationLine, crd: CustomResourceDefinition | undefined): WaitVerdict {
  const left = last.controller === "ksvm" ? leftOf(last, crd) : undefined;
  const text = left === undefined ? lineText(last) : `${lineText(last)}; ${left.text}`;
  return { state: left?.isMigrated === false ? "incomplete" : "done", text };
}

function leftOf(last: MigrationLine, crd: CustomResourceDefinition | undefined): LeftStored | undefined {
  const { crd: proven, reason, reencrypts, resource } = last;
  if (reencrypts === true) {
    return unprovenOf(reason, `ksvm reencrypt ${resource}`);
  }
  if (crd === undefined) {
    // With a CRD alone there may be nothing to do: this user may not read it, or it was deleted.
    return reason === "NothingToDo" ? undefined : unprovenOf(reason, `ksvm migrate ${resource} --standalone`);
  }
  // Of versions that changed later it says nothing.
  return isOfVersions(last, crd) ? leftStoredOf(crd, { proven }) : undefined;
}

function failureOf(line: MigrationLine): WaitVerdict {
  return { state: (line.counts?.failed ?? 0) > 0 ? "incomplete" : "failed", text: lineText(line) };
}

/** One from before the last change of the versions has nothing to say about them; about keys it has. */
export function isOfVersions({ created = "", reencrypts }: MigrationLine, crd: CustomResourceDefinition): boolean {
  const changedAt = lastVersionsChangeOf(crd);
  return changedAt === undefined || reencrypts === true || Date.parse(created) >= changedAt;
}

/** The one that was created last; of several in one second, which is all that an API server tells, the one that ended last. */
export function newestOf(migrations: readonly MigrationLine[]): MigrationLine | undefined {
  return migrations.toSorted((a, b) => timesOf(a).localeCompare(timesOf(b))).at(-1);
}

function timesOf({ created = "", ended = "" }: MigrationLine): string {
  return `${created} ${ended}`;
}

function lineText({ message, name, progress, state }: MigrationLine): string {
  const parts = [`migrations/${name} is ${state}`, ...(progress === undefined ? [] : [progress])];
  return `${parts.join(" ")}${message === undefined ? "" : `: ${message}`}`;
}
