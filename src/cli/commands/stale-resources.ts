import { type ApiService, apiServiceNameOf, isAggregated } from "../../api/api-service.ts";
import { systemClock } from "../../clock.ts";
import type { ApiClient } from "../../old/kube/client.ts";
import { ApiError } from "../../old/kube/errors.ts";
import { API_SERVICES } from "../../old/kube/resources.ts";
import { planAll } from "../../plan/inventory.ts";
import type { RunFormat } from "../flags/run-flags.ts";
import { eventLine } from "../render/document.ts";
import { EXIT } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine } from "../render/printable.ts";
import type { Chosen } from "../shared/choose-resources.ts";

/** What is stale. */
export interface Stale extends Chosen {
  /** Whether a CRD is among them that looks clean, since another migrator may have pruned it wrongly. */
  readonly isDoubted: boolean;
}

/**
 * What `ksvm migrate --all-stale` migrates. Says what is left out; a group that cannot be read makes the work
 * incomplete.
 */
export async function staleResources(
  client: ApiClient,
  { stdout, stderr, signal }: CliIo,
  format: RunFormat,
): Promise<Stale> {
  const unread: string[] = [];
  const warn = (groupVersion: string, reason: string): void => {
    unread.push(groupVersion);
    stderr.write(`warning: ${groupVersion} is left out: its API server says: ${oneLine(reason)}\n`);
  };
  const { entries, hasStorageStates } = await planAll(client, warn, { signal });
  const unknown = entries.filter(({ action }) => action === "unknown").map(({ name }) => name);
  const stale = entries.filter(({ action }) => action !== "none" && action !== "unknown");
  if (unknown.length > 0) {
    stderr.write(`note: ${oneLine(leftOutText(unknown, hasStorageStates))}\n`);
  }
  if (stale.length === 0) {
    const message = "nothing to do: storedVersions of every CRD is its storage version";
    stdout.write(`${format === "json" ? eventLine(systemClock.now(), { type: "note", message }) : message}\n`);
  }
  return {
    names: stale.map(({ name }) => name),
    isDoubted: stale.some(({ pruneDoubt }) => pruneDoubt !== undefined),
    code: (await isIncomplete(client, unread, signal)) ? EXIT.incomplete : EXIT.done,
  };
}

function leftOutText(unknown: readonly string[], hasStorageStates: boolean): string {
  return hasStorageStates
    ? `${unknown.length} built-in resources are left out, because the StorageStates do not show how they are stored: ` +
        `${unknown.join(", ")}; for the reasons, run ksvm plan`
    : "built-in resources are left out: without StorageStates, ksvm cannot tell which of them are stale";
}

async function isIncomplete(client: ApiClient, unread: readonly string[], signal: AbortSignal): Promise<boolean> {
  for (const groupVersion of unread) {
    if (!(await isKnownDown(client, groupVersion, signal))) {
      return true;
    }
  }
  return false;
}

/** An aggregated API server may be down for weeks, and has a storage of its own. */
async function isKnownDown(client: ApiClient, groupVersion: string, signal: AbortSignal): Promise<boolean> {
  const [group = "", version = ""] = groupVersion.split("/");
  try {
    const found = await client.findIfServed<ApiService>(
      API_SERVICES,
      { name: apiServiceNameOf(group, version) },
      { signal },
    );
    const conditions = found?.status?.conditions ?? [];
    return isAggregated(found) && !conditions.some(({ type, status }) => type === "Available" && status === "True");
  } catch (error) {
    if (error instanceof ApiError) {
      return false;
    }
    throw error;
  }
}
