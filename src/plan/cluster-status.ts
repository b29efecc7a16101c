import { inTreeMigrations } from "../in-tree/in-tree-migrations.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { DoubtfulAnswer } from "../old/kube/errors.ts";
import { unlessForbidden } from "../old/kube/unless-forbidden.ts";
import { type FreezeLine, readFreezeLines } from "./freeze-lines.ts";
import {
  inTreeLineOf,
  type LeftOutLine,
  type MigrationLine,
  readMigrationLines,
  sortedLines,
} from "./migration-lines.ts";
import { type ControllerLine, isRunOf, readControllerLine, readRunLines, type RunLine } from "./run-lines.ts";
import { readStorageLines, type StorageLine } from "./storage-lines.ts";

/** What is going on in a cluster. Field names are those of `ksvm status -o json`. */
export interface ClusterStatus {
  readonly controller: ControllerLine;
  readonly migrations: readonly MigrationLine[];
  /** Runs that hold a Lease, or left a checkpoint there. */
  readonly runs: readonly RunLine[];
  readonly freezes: readonly FreezeLine[];
  /** Resources of which not everything is stored alike. */
  readonly storage?: readonly StorageLine[];
  /** Migrations that cannot be read, so that no controller carries them out; missing where there is none. */
  readonly leftOut?: readonly LeftOutLine[];
  /** What this user may not see, so that it is missing above, and why; missing where there is none. */
  readonly unknown?: readonly string[];
}

/**
 * Reads every migration, every run and every freeze. What this user may not see is named, beside migrations and CRDs.
 * @throws {ApiError}
 */
export async function readClusterStatus(client: ApiClient, options: CallOptions = {}): Promise<ClusterStatus> {
  const unknown: string[] = [];
  const onUnknown = (what: string): void => void unknown.push(what);
  const inTree = "migrations of Kubernetes' own migrator";
  const inTreeRead = orUnknown(
    () =>
      inTreeMigrations(client, options).catch((error: unknown) => {
        // During an upgrade to 1.37 an API server of 1.36 lists their group and does not serve it.
        if (!(error instanceof DoubtfulAnswer)) throw error;
        onUnknown(`${inTree}: ${error.message}`);
        return undefined;
      }),
    () => onUnknown(`${inTree}: this user may not list them`),
  );
  const [{ leftOut, lines }, inTreeFound, freezes, controller, runs, storage] = await Promise.all([
    readMigrationLines(client, options),
    inTreeRead,
    inTreeRead.then((found) => readFreezeLines(client, found, options)),
    readControllerLine(client, options),
    readRunLines(client, onUnknown, options),
    readStorageLines(client, options),
  ]);
  return {
    controller,
    migrations: sortedLines([...lines, ...(inTreeFound ?? []).map(inTreeLineOf)]),
    runs,
    freezes,
    ...(storage.length === 0 ? {} : { storage }),
    ...(leftOut.length === 0 ? {} : { leftOut }),
    ...(unknown.length === 0 ? {} : { unknown: unknown.toSorted() }),
  };
}

async function orUnknown<T>(read: () => Promise<T>, onForbidden: () => void): Promise<T | undefined> {
  let isRead = false;
  const value = await unlessForbidden(async () => {
    const found = await read();
    isRead = true;
    return found;
  });
  if (!isRead) {
    onForbidden();
  }
  return value;
}

/** The part of a status that is about one resource or one migration. */
export function statusOf(status: ClusterStatus, name: string): ClusterStatus {
  const migrations = status.migrations.filter((line) => line.name === name || line.resource === name);
  const resources = new Set([name, ...migrations.map(({ resource }) => resource)]);
  const leftOut = status.leftOut?.filter((line) => line.name === name) ?? [];
  const { leftOut: _all, storage: stored, ...rest } = status;
  const storage = stored?.filter(({ resource }) => resources.has(resource)) ?? [];
  const freezes = status.freezes.filter(({ crd }) => resources.has(crd));
  const runs = status.runs.filter((run) => [...resources].some((resource) => isRunOf(run, resource)));
  const parts = { ...(storage.length === 0 ? {} : { storage }), ...(leftOut.length === 0 ? {} : { leftOut }) };
  return { ...rest, migrations, runs, freezes, ...parts };
}
