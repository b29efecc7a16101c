import { HEARTBEAT_LIMIT_MS, resourceNameOf } from "../../api/migration.ts";
import type { ReadStorageState } from "../../api/parse-storage-state.ts";
import { systemClock } from "../../clock.ts";
import { versionIn } from "../../kube/discovery.ts";
import { ApiError } from "../../kube/errors.ts";
import type { SkippedResource } from "../../resources/migratable.ts";
import { doubtOf, readStorageStates } from "../../resources/storage-states.ts";
import { type StoredResources, storedResources } from "../../resources/stored-resources.ts";
import type { CallContext } from "../../retry/call-context.ts";
import { countObjects } from "../inventory.ts";
import { asksForCount, checkResource, type ReleaseEntry, type ResourceFacts, type Target } from "./check-release.ts";
import { TABLE_RELEASES } from "../../resources/decodable-kinds.ts";
import { minorReleaseOf } from "../../resources/known-versions.ts";

/** Whether a cluster can go to another release. Field names are those of `ksvm check --control-plane -o json`. */
export interface ReleaseCheck {
  /** The minor release that was asked about. */
  readonly release: string;
  /** The patch release whose API server the table was made from. */
  readonly tableOf: string;
  /** What the API server that was asked runs. */
  readonly running: string;
  readonly items: readonly ReleaseEntry[];
  /** How many CRDs there are: whatever the release, the CRD itself says how its objects are read. */
  readonly crds: number;
  /** What else there is to know. */
  readonly notes: readonly string[];
}

interface Judge {
  readonly now: number;
  readonly states: ReadonlyMap<string, ReadStorageState>;
}

/**
 * Compares how the objects of built-in resources may be stored with what the API server of a release can read.
 * @param release a minor release of the table
 * @throws {KsvmError} RetryBudgetExceeded where the API server does not answer; Forbidden where this user may not list CRDs or APIServices.
 */
export async function checkControlPlane(context: CallContext, release: string): Promise<ReleaseCheck> {
  const { client, retrier, signal } = context;
  const found = await storedResources({ ...context, clock: systemClock });
  const states = (await retrier.run(() => readStorageStates(client, { signal }), signal)) ?? new Map<string, never>();
  const version = await retrier.run(
    () => client.transport.request({ method: "GET", path: "/version", signal }),
    signal,
  );
  const running = versionIn(version.body);
  const target = { release, isOlder: isOlder(release, running) };
  // The heartbeats are of a replica in the cluster: the clock of this machine may be another one.
  const judge = { now: version.serverTime ?? systemClock.now(), states };
  const items: ReleaseEntry[] = [];
  for (const resource of found.builtIn) {
    const { storageVersionHash: hash = "", kind } = resource;
    const name = resourceNameOf(resource);
    items.push(await entryOf(context, target, { name, kind, request: resource, hash, ...stateOf(name, hash, judge) }));
  }
  return {
    release,
    tableOf: TABLE_RELEASES[release] ?? "",
    running,
    items: [...items, ...unknownEntries(found, judge)],
    crds: found.crds.length,
    notes: notesOf(found, states.size > 0),
  };
}

function isOlder(release: string, running: string): boolean {
  const [, minor] = release.split(".");
  const [, runningMinor] = (minorReleaseOf(running) ?? release).split(".");
  return Number(minor) < Number(runningMinor);
}

function stateOf(name: string, hash: string, { now, states }: Judge): Pick<ResourceFacts, "persisted" | "doubt"> {
  const state = states.get(name);
  const doubt = doubtOf(state, { hash, now, heartbeatLimitMs: HEARTBEAT_LIMIT_MS });
  return { persisted: state?.status?.persistedStorageVersionHashes ?? [], doubt };
}

async function entryOf(context: CallContext, target: Target, facts: ResourceFacts): Promise<ReleaseEntry> {
  const entry = checkResource(target, facts);
  return asksForCount(entry) ? checkResource(target, { ...facts, objects: await countOf(context, facts) }) : entry;
}

/** Objects that cannot be counted are there. */
async function countOf({ client, retrier, signal }: CallContext, facts: ResourceFacts): Promise<number | undefined> {
  try {
    return await retrier.run(() => countObjects(client, facts.request, { signal }), signal);
  } catch (error) {
    if (error instanceof ApiError) {
      return undefined;
    }
    throw error;
  }
}

/** What discovery does not show, and etcd may hold. */
function unknownEntries(found: StoredResources, { states }: Judge): readonly ReleaseEntry[] {
  const { aggregatedGroups, builtIn, crds, leftOut, unread } = found;
  const isOwn = ({ group, resource }: SkippedResource): boolean =>
    !aggregatedGroups.includes(group ?? groupOf(resource)) && !crds.includes(resource);
  const hidden = [...unread, ...leftOut.filter(isOwn)].map(({ reason, resource }) =>
    unknownEntry(resource, reason, []),
  );
  const known = new Set([...builtIn.map(resourceNameOf), ...crds]);
  const unserved = [...states.keys()].filter((name) => !known.has(name) && !aggregatedGroups.includes(groupOf(name)));
  return [
    ...hidden,
    ...unserved.map((name) =>
      unknownEntry(
        name,
        "it has a StorageState, and the API server does not serve it: objects of it may be left in etcd",
        [`serve it again and migrate it; or, if etcd has none of them: kubectl delete storagestates ${name}`],
      ),
    ),
  ];
}

function unknownEntry(name: string, reason: string, steps: readonly string[]): ReleaseEntry {
  return { name, verdict: "unknown", reason, stored: [], steps };
}

function groupOf(name: string): string {
  return name.includes(".") ? name.slice(name.indexOf(".") + 1) : "";
}

function notesOf({ aggregatedGroups, crds }: StoredResources, hasStates: boolean): readonly string[] {
  const aggregated = [...new Set(aggregatedGroups)];
  return [
    ...(hasStates
      ? []
      : [
          "there are no StorageStates, or this user may not list them: without ksvm controller and its trigger nothing records in " +
            "which versions objects may be stored",
        ]),
    ...(crds.length > 0
      ? [
          `the objects of ${crds.length} CRDs are read by what their CRD says, whatever the release: ksvm plan --crds-only is about those`,
        ]
      : []),
    ...(aggregated.length > 0
      ? [
          `what aggregated API servers store is not looked at (${aggregated.join(", ")}): they are upgraded on their own`,
        ]
      : []),
  ];
}
