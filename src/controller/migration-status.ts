import type {
  MigrationCondition,
  MigrationCounts,
  MigrationFailure,
  MigrationState,
  MigrationStatus,
} from "../api/migration.ts";
import { cutText } from "../cut-text.ts";
import { type ErrorCode, KsvmError, messageOf } from "../errors.ts";
import { mayPass, whose } from "../kube/errors.ts";
import { InTreeRunning } from "../migrator/in-tree.ts";
import type { MigrationEvent, MigrationResult, Tally } from "../migrator/types.ts";
import { configurationOf } from "../reencrypt/evidence.ts";

// What the status of a migration says: of a run, of its end, and of what it waits for.

/** What a migration does now, and why. */
export interface Phase {
  readonly type: MigrationState;
  /** One word: an error code of docs/errors.md, or one of docs/migration-api.md. */
  readonly reason?: string;
  readonly message?: string;
}

/** Characters of the message of a condition: every replica keeps those of all migrations. metav1.Condition has 32,768. */
const MAX_MESSAGE_LENGTH = 4_096;
/** Characters of the reason of one failure: API servers quote whole schemas. */
const MAX_REASON_LENGTH = 1_024;

/** The order of the conditions: the printer column shows the first one that is True. */
const ORDER: readonly MigrationState[] = ["Pending", "Suspended", "Waiting", "Running", "Succeeded", "Failed"];

/**
 * The conditions in a phase, without those for kstatus (src/api/kstatus.ts). One that waits is Running as well. A
 * condition that was never True is left out, and so is Pending where it is not True: it says nothing any more.
 * `lastUpdateTime` moves only with what the condition says.
 *
 * @param now RFC 3339
 */
export function conditionsIn(
  phase: Phase,
  before: readonly MigrationCondition[],
  now: string,
): readonly MigrationCondition[] {
  const isTrue = (type: MigrationState): boolean =>
    type === phase.type || (type === "Running" && phase.type === "Waiting");
  return ORDER.flatMap((type) => {
    const old = before.find((condition) => condition.type === type);
    if (!isTrue(type)) {
      return old === undefined || type === "Pending" ? [] : [unlessSame(old, { type, status: "False" }, now)];
    }
    const { message, reason } = type === phase.type ? phase : {};
    const why = {
      ...(reason === undefined ? {} : { reason }),
      ...(message === undefined ? {} : { message: cutText(message, MAX_MESSAGE_LENGTH) }),
    };
    return [unlessSame(old, { type, status: "True", ...why }, now)];
  });
}

function unlessSame(
  old: MigrationCondition | undefined,
  condition: MigrationCondition,
  now: string,
): MigrationCondition {
  const isSame =
    old?.status === condition.status && old.reason === condition.reason && old.message === condition.message;
  return isSame ? old : { ...condition, lastUpdateTime: now };
}

/** How many objects a run is through with. */
export function doneIn({ current, failed, gone, newer, rewritten }: Readonly<Tally>): number {
  return rewritten + current + newer + gone + failed;
}

/** The part of the status that says how far a run is. */
export function progressOf(tally: Readonly<Tally>): { readonly counts: MigrationCounts; readonly progress: string } {
  const done = doneIn(tally);
  // The estimate may fall behind what was seen.
  const total = Math.max(tally.total, done);
  const { current, failed, gone, newer, rewritten } = tally;
  const counts = { migrated: rewritten, skipped: current + newer + gone, failed, remaining: total - done };
  return { counts, progress: `${done}/${total}` };
}

/** What an event of a run says about what it does; `undefined` where it changes nothing. */
export function phaseIn(event: MigrationEvent): Phase | undefined {
  switch (event.type) {
    case "waiting":
      return { type: "Waiting", reason: WAITS_FOR[event.for], message: namingFlags(event.reason) };
    case "beginsAgain":
      return { type: "Running", reason: "WaitingForOthers", message: namingFlags(event.reason) };
    case "settling":
    case "settled":
    case "frozen":
    case "progress":
      return { type: "Running" };
    default:
      return undefined;
  }
}

const WAITS_FOR = { apiServer: "ApiServerMissing", webhook: "WaitingForWebhook", inTree: "InTreeMigration" } as const;

/** The reasons of a wait, beside the codes of errors. */
export const OWN_REASONS = [...Object.values(WAITS_FOR), "WaitingForOthers", "Queued"] as const;

/** The phase that a run ends in, where no error ended it. */
export function phaseAfter({ epoch, outcome, tally }: MigrationResult): Phase {
  const encryption = configurationOf(epoch);
  switch (outcome) {
    case "incomplete": {
      const rest = encryption === undefined ? "storedVersions was not pruned" : "the old key is still needed";
      const message = `${tally?.failed ?? 0} objects could not be migrated; ${rest}`;
      return { type: "Failed", reason: "ObjectsNotMigrated", message };
    }
    case "nothing-to-do":
      return { type: "Succeeded", reason: "NothingToDo", message: "storedVersions was the storage version alone" };
    case "migrated":
    case "dry-run": {
      if (encryption === undefined) return { type: "Succeeded", reason: "Migrated" };
      const message = `every object is encrypted by configuration ${encryption}`;
      return { type: "Succeeded", reason: "Reencrypted", message };
    }
  }
}

/**
 * What passes without the user of the migration, or once an administrator has repaired the installation. The engine has
 * tried again for a while already.
 */
const PASSES: ReadonlySet<ErrorCode> = new Set([
  "AlreadyMigrating",
  "ApiServerMissing",
  // The next run lifts the freeze.
  "CleanupFailed",
  "Conflict",
  // Until all API servers were restarted with an EncryptionConfiguration.
  "EncryptionUnknown",
  "Forbidden",
  "ForeignFreeze",
  "FreezeNotProven",
  "KubeconfigInvalid",
  // The namespace of the Lease.
  "NotFound",
  "OwnershipLost",
  // Every object is rewritten: the next run prunes.
  "PruneFailed",
  "RetryBudgetExceeded",
  "ServerUnreachable",
  "ServerUntrusted",
  // The CRD changed in each of several attempts.
  "StorageVersionChanged",
  "Unauthorized",
] satisfies readonly ErrorCode[]);

/**
 * The phase of a migration whose run ended with an error: it waits for what may pass, however long that takes, and has
 * failed otherwise. docs/errors.md has this in words.
 */
export function phaseAfterError(error: unknown): Phase {
  const message = namingFlags(messageOf(error));
  if (error instanceof InTreeRunning) return { type: "Waiting", reason: WAITS_FOR.inTree, message };
  const kind = whose(error);
  if (kind === "webhook") return { type: "Waiting", reason: WAITS_FOR.webhook, message };
  const code = error instanceof KsvmError ? error.code : "Internal";
  const passes = mayPass(error) || kind === "expired" || PASSES.has(code);
  const reason = passes && code === "ApiRequestFailed" ? "WaitingForOthers" : code;
  return { type: passes ? "Waiting" : "Failed", reason, message };
}

/** The user of a migration object has passed no flag: the message says whose flags it names. */
export function namingFlags(message: string): string {
  return /--(?:apiserver-endpoints|ignore-apiserver)\b/.test(message)
    ? `${message} (flags of "ksvm controller")`
    : message;
}

/** The part of the status that says what came of a run. */
export function reportIn({ crd, epoch, outcome, storageVersion, tally }: MigrationResult): Partial<MigrationStatus> {
  // Of a CRD, its uid and generation. Without a freeze the epoch is that of the API servers.
  const proven = outcome === "migrated" && storageVersion !== undefined ? (crd ?? epoch) : undefined;
  const failures = (tally?.failures ?? []).map(
    ({ reason, ...object }): MigrationFailure => ({ ...object, reason: cutText(reason, MAX_REASON_LENGTH) }),
  );
  return {
    ...(tally === undefined ? {} : progressOf(tally)),
    ...(proven === undefined ? {} : { crd: proven }),
    ...(failures.length === 0 ? {} : { failures }),
  };
}
