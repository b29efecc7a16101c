import type { CustomResourceDefinition } from "../api/crd.ts";
import { systemClock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { ApiClient, CallOptions } from "../kube/client.ts";
import { ApiError } from "../kube/errors.ts";
import { CRDS } from "../kube/resources.ts";
import { discoverResources, findBuiltIn } from "./built-in.ts";
import { Pacer } from "./pacer.ts";
import { findCrd } from "./read-crd.ts";
import { type PlanEntry, planBuiltIn, planCrd } from "./plan.ts";

/** A plan entry with the number of objects, as far as it can be told. */
export interface CountedEntry extends PlanEntry {
  /** Missing where the objects cannot be listed; the note says why. */
  readonly objects?: number;
}

/** CRDs on one page: they may be a megabyte each. */
const CRD_PAGE_SIZE = 50;
const COUNTS_IN_FLIGHT = 8;

/**
 * Plans for the named resources.
 * @throws {KsvmError} ResourceNotFound for a name that does not exist.
 */
export async function planNamed(
  client: ApiClient,
  names: readonly string[],
  options: CallOptions = {},
): Promise<readonly CountedEntry[]> {
  const entries: PlanEntry[] = [];
  for (const name of names) {
    const crd = await findCrd(client, name, options);
    entries.push(crd === undefined ? planBuiltIn(await findBuiltIn(client, name, options)) : planCrd(crd));
  }
  return countAll(client, entries, options);
}

/**
 * Plans for every CRD and every built-in resource of the cluster, CRDs first.
 * @throws {ApiError | TransportError}
 */
export async function planCluster(
  client: ApiClient,
  onUnavailable: (groupVersion: string, reason: string) => void,
  options: CallOptions = {},
): Promise<readonly CountedEntry[]> {
  const crds = await planCrds(client, options);
  const names = new Set(crds.map(({ name }) => name));
  const resources = await discoverResources(client, onUnavailable, options);
  const builtIns = resources.map(planBuiltIn).filter(({ name }) => !names.has(name));
  return countAll(client, [...crds, ...builtIns], options);
}

/** Plans for every CRD, without counting objects. */
export async function planCrds(client: ApiClient, options: CallOptions = {}): Promise<readonly PlanEntry[]> {
  const entries: PlanEntry[] = [];
  for await (const page of client.pages<CustomResourceDefinition>(CRDS, { limit: CRD_PAGE_SIZE, ...options })) {
    entries.push(...page.map(planCrd));
  }
  return entries.toSorted((a, b) => a.name.localeCompare(b.name));
}

async function countAll(
  client: ApiClient,
  entries: readonly PlanEntry[],
  options: CallOptions,
): Promise<readonly CountedEntry[]> {
  const counted: CountedEntry[] = [...entries];
  const pacer = new Pacer({ clock: systemClock, maxInFlight: COUNTS_IN_FLIGHT, maxQps: Number.POSITIVE_INFINITY });
  const countAt = async ([index, entry]: readonly [number, PlanEntry]): Promise<void> => {
    counted[index] = await count(client, entry, options);
  };
  await pacer.forEach([...entries.entries()], countAt, options.signal ?? new AbortController().signal);
  return counted;
}

async function count(client: ApiClient, entry: PlanEntry, options: CallOptions): Promise<CountedEntry> {
  if (entry.request === undefined) {
    return entry;
  }
  try {
    const page = await client.listMetadata(entry.request, { limit: 1, ...options });
    return { ...entry, objects: page.items.length + (page.metadata.remainingItemCount ?? 0) };
  } catch (error) {
    if (!(error instanceof ApiError)) {
      throw error;
    }
    const note = `objects cannot be listed: ${messageOf(error.said)}`;
    return { ...entry, note: entry.note === undefined ? note : `${entry.note}; ${note}` };
  }
}
