import { type ApiService, isAggregated } from "../api/api-service.ts";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { type GroupVersion, listedVersions, resourcesOf } from "../old/kube/discovery.ts";
import { ApiError } from "../old/kube/errors.ts";
import { failureKindOf } from "../old/kube/failure.ts";
import { API_SERVICES, apiVersionOf } from "../old/kube/resources.ts";
import { backoffMs } from "../old/retry/backoff.ts";
import type { Retrier } from "../old/retry/retrier.ts";
import { type DiscoveredVersion, type Selection, type SkippedResource, selectMigratable } from "./migratable.ts";

/** What {@link discoverMigratable} needs. */
export interface DiscoverContext {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  readonly signal: AbortSignal;
  /** Milliseconds for versions of groups that cannot be read, all of them together. @default 30000 */
  readonly discoveryPatienceMs?: number;
  /** Milliseconds for one answer: an aggregated API server that hangs holds up no other. @default 10000 */
  readonly answerTimeoutMs?: number;
}

/** What discovery shows. */
export interface Discovery extends Selection {
  /** Versions of groups that could not be read and may have resources to migrate, as `*.group/version`. */
  readonly unread: readonly SkippedResource[];
}

interface Failure extends GroupVersion {
  readonly reason: string;
  /** Whether the cluster itself says that the API server behind an APIService is not available. */
  readonly isDown: boolean;
  readonly retryAfterSeconds: number | undefined;
}

/**
 * An API server that has just started, or whose watch caches are being filled, answers 429 and 503 for some seconds.
 */
const DEFAULT_PATIENCE_MS = 30_000;
const DEFAULT_ANSWER_TIMEOUT_MS = 10_000;

/**
 * Every resource of the cluster that can be migrated, and those that are left out. What cannot be read of the groups
 * keeps no other from being migrated. It is tried again for a while; a group whose APIService is not available is not
 * waited for.
 * @throws {ApiError} where the groups cannot be listed.
 */
export async function discoverMigratable(context: DiscoverContext): Promise<Discovery> {
  const { client, clock, discoveryPatienceMs = DEFAULT_PATIENCE_MS, retrier, signal } = context;
  const deadline = clock.monotonic() + discoveryPatienceMs;
  const found = new Map<string, DiscoveredVersion>();
  for (let attempt = 0; ; attempt++) {
    // Listed each time: a CRD may be deleted in between, and its group with it.
    const listed = await retrier.run(() => listedVersions(client.transport, { signal }), signal);
    const failures = await readInto(found, listed, context);
    const leftMs = deadline - clock.monotonic();
    if (failures.every(({ isDown }) => isDown) || leftMs <= 0) {
      return discoveryOf(listed, found, failures);
    }
    const retryAfterSeconds = Math.max(0, ...failures.map((failure) => failure.retryAfterSeconds ?? 0));
    await clock.sleep(Math.min(leftMs, backoffMs(attempt, retrier.random(), retryAfterSeconds)), signal);
  }
}

/** Reads what was not read yet. @returns what cannot be read */
async function readInto(
  found: Map<string, DiscoveredVersion>,
  listed: readonly GroupVersion[],
  context: DiscoverContext,
): Promise<readonly Failure[]> {
  const failures: Failure[] = [];
  for (const groupVersion of listed.filter((one) => !found.has(nameOf(one)))) {
    const answer = await readVersion(groupVersion, context);
    if ("reason" in answer) {
      failures.push(answer);
    } else {
      found.set(nameOf(groupVersion), answer);
    }
  }
  return failures;
}

async function readVersion(groupVersion: GroupVersion, context: DiscoverContext): Promise<DiscoveredVersion | Failure> {
  const { answerTimeoutMs = DEFAULT_ANSWER_TIMEOUT_MS, client, clock, signal } = context;
  const limit = clock.timeout(answerTimeoutMs);
  const within = AbortSignal.any([signal, limit]);
  try {
    return { ...groupVersion, resources: await resourcesOf(client.transport, groupVersion, { signal: within }) };
  } catch (error) {
    signal.throwIfAborted();
    if (!limit.aborted && failureKindOf(error) === undefined) {
      throw error;
    }
    const reason = error instanceof ApiError ? error.said.trim() : messageOf(error);
    const retryAfterSeconds = error instanceof ApiError ? error.retryAfter : undefined;
    return { ...groupVersion, reason, retryAfterSeconds, isDown: await isKnownDown(groupVersion, context) };
  }
}

/** An API server behind an APIService may be down for weeks: that must not fail the initializer each time. */
async function isKnownDown({ group, version }: GroupVersion, { client, signal }: DiscoverContext): Promise<boolean> {
  const name = `${version}.${group}`;
  try {
    return isUnavailable(await client.findIfServed<ApiService>(API_SERVICES, { name }, { signal }));
  } catch (error) {
    signal.throwIfAborted();
    if (failureKindOf(error) === undefined) {
      throw error;
    }
    return false;
  }
}

function isUnavailable(found: ApiService | undefined): boolean {
  const conditions = found?.status?.conditions ?? [];
  const isAvailable = conditions.some(({ type, status }) => type === "Available" && status === "True");
  return isAggregated(found) && !isAvailable;
}

function discoveryOf(
  listed: readonly GroupVersion[],
  found: ReadonlyMap<string, DiscoveredVersion>,
  failures: readonly Failure[],
): Discovery {
  const { migratable, skipped } = selectMigratable(listed.flatMap((one) => found.get(nameOf(one)) ?? []));
  const down = failures.filter(({ isDown }) => isDown);
  const unread = failures.filter(({ isDown }) => !isDown);
  return { migratable, skipped: [...down.map(skippedOf), ...skipped], unread: unread.map(skippedOf) };
}

function skippedOf({ group, isDown, reason, version }: Failure): SkippedResource {
  const why = isDown ? "its API server does not answer discovery" : "discovery cannot be read";
  return { resource: `*.${nameOf({ group, version })}`, reason: `${why}: ${reason}`, group, mayBeStored: true };
}

function nameOf({ group, version }: GroupVersion): string {
  return apiVersionOf(group, version);
}
