import { type ApiService, apiServiceNameOf, isAggregated } from "../../api/api-service.ts";
import { systemClock } from "../../clock.ts";
import { isStale, type PlanEntry, readEntries } from "../../inventory/plan.ts";
import type { Client } from "../../kube/client.ts";
import { ApiError } from "../../kube/errors.ts";
import type { RunFormat } from "../flags/run-flags.ts";
import { eventLine } from "../render/document.ts";
import { EXIT } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine } from "../render/printable.ts";
import type { Chosen } from "../shared/choose-resources.ts";

/** What is stale. */
export interface Stale extends Chosen {
  /** Those that look clean, since another migrator may have pruned them wrongly: every object is to be written. */
  readonly doubted: readonly string[];
}

/** What `ksvm migrate --all` migrates. Says what is left out; a group that cannot be read makes the work incomplete. */
export async function staleResources(
  client: Client,
  { stdout, stderr, signal }: CliIo,
  format: RunFormat,
): Promise<Stale> {
  const unread: string[] = [];
  const onUnavailable = (groupVersion: string, reason: string): void => {
    unread.push(groupVersion);
    stderr.write(`warning: ${groupVersion} is left out: its API server says: ${oneLine(reason)}\n`);
  };
  const entries = await readEntries(client, { onUnavailable }, signal);
  const stopped = entries.filter((entry) => isStale(entry) && entry.help !== undefined);
  const stale = entries.filter((entry) => isStale(entry) && entry.help === undefined);
  const doubted = stale.filter(({ storageVersion, storedVersions }) => storedVersions?.join() === storageVersion);
  const unknown = entries.filter(({ action }) => action === "unknown");
  for (const { help = "", name, note = "" } of stopped) {
    stderr.write(`note: ${oneLine(`${name} is left out: ${note}; help: ${help}`)}\n`);
  }
  if (unknown.length > 0) {
    // Each has a reason where there are StorageStates.
    const text = unknown.some(({ note }) => note !== undefined)
      ? `${unknown.length} built-in resources are left out, because the StorageStates do not show how they are ` +
        `stored: ${namesOf(unknown).join(", ")}; for the reasons, run ksvm plan`
      : "built-in resources are left out: without StorageStates, ksvm cannot tell which of them are stale";
    stderr.write(`note: ${oneLine(text)}\n`);
  }
  if (stale.length === 0) {
    const message =
      stopped.length === 0
        ? "nothing to do: storedVersions of every CRD is its storage version"
        : "nothing to do: whatever is stale is left out";
    stdout.write(`${format === "json" ? eventLine(systemClock.now(), { type: "note", message }) : message}\n`);
  }
  const isIncomplete = (await Promise.all(unread.map((one) => isDown(client, one, signal)))).includes(false);
  return { names: namesOf(stale), doubted: namesOf(doubted), code: isIncomplete ? EXIT.incomplete : EXIT.done };
}

/** An aggregated API server may be down for weeks, and has a storage of its own. */
async function isDown(client: Client, groupVersion: string, signal: AbortSignal): Promise<boolean> {
  const [group = "", version = ""] = groupVersion.split("/");
  const path = `/apis/apiregistration.k8s.io/v1/apiservices/${encodeURIComponent(apiServiceNameOf(group, version))}`;
  try {
    const found = await client.find<ApiService>(path, { signal });
    const conditions = found?.status?.conditions ?? [];
    return isAggregated(found) && !conditions.some(({ type, status }) => type === "Available" && status === "True");
  } catch (error) {
    if (error instanceof ApiError) return false;
    throw error;
  }
}

function namesOf(some: readonly PlanEntry[]): readonly string[] {
  return some.map(({ name }) => name);
}
