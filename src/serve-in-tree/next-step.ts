import { isWholeRun, type MigrationState } from "../api/migration.ts";
import { type InTreeMigration, inTreeResourceOf, isInTreeUnfinished } from "../in-tree/in-tree-migrations.ts";
import type { ServedEnd } from "./served-status.ts";

/** The migration of ours that does the work of one of Kubernetes' own migrator, as far as it is known. */
export interface Companion {
  readonly name: string;
  readonly uid: string;
  /** `plural.group` of what it migrates. */
  readonly resource: string;
  /** Whether it has every object written again, also where the resource looks migrated. */
  readonly isThorough: boolean;
  readonly state: MigrationState;
  /** Why it is in this state. */
  readonly reason: string;
  readonly message: string;
}

/** What is to be done next for a migration of Kubernetes' own migrator. */
export type Step =
  /** Say that it runs. */
  | { readonly type: "begin" }
  /** Note the resourceVersion that its resource has now, which needs the resource to be there. */
  | { readonly type: "note" }
  /** Create the migration of ours that does the work. */
  | { readonly type: "work" }
  /** Have the CRD say whether that is at work: where it waits for others, it holds no freeze. */
  | { readonly type: "follow"; readonly isAtWork: boolean }
  /** Say how it ended. */
  | { readonly type: "end"; readonly end: ServedEnd }
  /** Have the CRD say so, too, and say that it does not run any more. */
  | { readonly type: "complete" };

/** As upstream begins what it says of a failure. */
const FAILURE = "migration encountered unhandled error";

/** What is to be done next; `undefined` where nothing is left to do. */
export function nextStepOf(migration: InTreeMigration, companion: Companion | undefined): Step | undefined {
  const isRunning = isTrue(migration, "Running");
  if (!isInTreeUnfinished(migration)) {
    return isRunning ? { type: "complete" } : undefined;
  }
  if (!isRunning) {
    return { type: "begin" };
  }
  if (migration.status?.resourceVersion === undefined) {
    return { type: "note" };
  }
  return companion === undefined || !doesWorkOf(migration, companion) ? { type: "work" } : stepAfter(companion);
}

/** A client that may create migrations of ours may take the name first, with one that ends at once: its end says nothing. */
function doesWorkOf(migration: InTreeMigration, { isThorough, resource }: Companion): boolean {
  return isThorough && resource === inTreeResourceOf(migration);
}

function stepAfter({ message, name, reason, state }: Companion): Step {
  switch (state) {
    case "Succeeded":
      return isWholeRun(reason)
        ? { type: "end", end: { type: "Succeeded", message: "" } }
        : failedWith(`another program than ksvm called ${name} Succeeded`);
    case "Failed":
      return failedWith(`${reason}: ${message}`);
    default:
      return { type: "follow", isAtWork: state === "Running" };
  }
}

function failedWith(why: string): Step {
  return { type: "end", end: { type: "Failed", message: `${FAILURE}: ${why}` } };
}

/**
 * Those that something is to be done for: of each resource the ones that are over and not completed, and else one: that which runs, or
 * the oldest.
 */
export function activeOf(migrations: readonly InTreeMigration[]): readonly InTreeMigration[] {
  const incomplete = migrations.filter((one) => !isInTreeUnfinished(one) && isTrue(one, "Running"));
  const busy = new Set(incomplete.map(inTreeResourceOf));
  const first = new Map<string, InTreeMigration>();
  for (const migration of migrations.filter(isInTreeUnfinished)) {
    const resource = inTreeResourceOf(migration);
    const known = first.get(resource);
    if (!busy.has(resource) && (known === undefined || compare(migration, known) < 0)) {
      first.set(resource, migration);
    }
  }
  return [...incomplete, ...first.values()];
}

function compare(a: InTreeMigration, b: InTreeMigration): number {
  const order = Number(isTrue(b, "Running")) - Number(isTrue(a, "Running"));
  return order || textOrder(createdAt(a), createdAt(b)) || textOrder(a.metadata.name, b.metadata.name);
}

function createdAt({ metadata: { creationTimestamp = "" } }: InTreeMigration): string {
  return creationTimestamp;
}

function textOrder(a: string, b: string): number {
  return a === b ? 0 : a < b ? -1 : 1;
}

function isTrue({ status }: InTreeMigration, type: string): boolean {
  return (status?.conditions ?? []).some((condition) => condition.type === type && condition.status === "True");
}

/** Those that no migration of Kubernetes' own migrator needs any more, or that do not do its work: they are to be deleted. */
export function leftOverOf(
  companions: Iterable<Companion>,
  migrations: readonly InTreeMigration[],
): readonly Companion[] {
  const wanted = new Map(migrations.map((one) => [companionNameOf(one), one]));
  return [...companions].filter((companion) => {
    const migration = wanted.get(companion.name);
    const isOver = companion.state === "Succeeded" || companion.state === "Failed";
    if (migration === undefined) {
      return true;
    }
    // One that ended says what its migration has not: which objects failed, and why.
    return isInTreeUnfinished(migration) ? !doesWorkOf(migration, companion) : !isOver;
  });
}

/** By the uid: one that is deleted and created again under the same name is another one. */
export function companionNameOf({ metadata: { uid } }: Pick<InTreeMigration, "metadata">): string {
  return `in-tree-${uid}`;
}
