import { MAX_HASH_LENGTH } from "../api/parse-storage-state.ts";
import { apiVersionOf } from "../old/kube/resources.ts";
import type { Clock } from "../clock.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { type GroupVersion, listedVersions, resourcesOf } from "../old/kube/discovery.ts";
import { isNotFound } from "../old/kube/absent.ts";
import { TransportError } from "../old/kube/errors.ts";
import type { Transport } from "../old/kube/transport.ts";
import { mapInFlight } from "../old/retry/map-in-flight.ts";
import type { DiscoveredResource, ServerDiscovery, UnavailableVersion } from "./survey.ts";

/** How discovery is read. */
export interface DiscoverOptions {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Reads one group; the core group is the empty name. @default all groups */
  readonly group?: string;
}

const IN_FLIGHT = 8;
/** An aggregated API that hangs must not hold up the others, in milliseconds. */
const ANSWER_TIMEOUT_MS = 5_000;

/**
 * Reads the discovery of one API server from the unaggregated endpoints, which alone have a storageVersionHash. A
 * version that is listed and does not answer is named in `unavailable`.
 * @throws {ApiError | TransportError} where the list of groups cannot be read.
 */
export async function discover(transport: Transport, options: DiscoverOptions): Promise<ServerDiscovery> {
  const groupVersions = await answered(transport, options, () => groupVersionsOf(transport, options));
  const unavailable: UnavailableVersion[] = [];
  const resourcesIn = async (groupVersion: GroupVersion): Promise<readonly DiscoveredResource[]> => {
    try {
      const resources = await resourcesOf(transport, groupVersion, { signal: answerWithin(options) });
      return resources.map(({ name, kind, verbs, storageVersionHash }) => ({
        ...groupVersion,
        resource: name,
        kind,
        verbs,
        hash: hashOf(storageVersionHash),
      }));
    } catch (error) {
      options.signal.throwIfAborted();
      unavailable.push({ ...groupVersion, reason: messageOf(error), isMissing: isNotFound(error) });
      return [];
    }
  };
  const found = await mapInFlight(groupVersions, resourcesIn, { most: IN_FLIGHT, signal: options.signal });
  return { server: transport.server, resources: found.flat(), unavailable };
}

/** An aggregated API answers what it likes. One that no StorageState takes tells as little as none. */
function hashOf(value: unknown): string {
  return typeof value === "string" && value.length <= MAX_HASH_LENGTH ? value : "";
}

/** The name of a version of a group, as `apiVersion` has it. */
export function nameOfVersion({ group, version }: GroupVersion): string {
  return apiVersionOf(group, version);
}

/** A time limit that ran out names neither the API server nor what it was asked. */
async function answered<T>({ server }: Transport, { signal }: DiscoverOptions, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    signal.throwIfAborted();
    throw error instanceof KsvmError ? error : new TransportError("GET /apis", server, error);
  }
}

/** The versions that the API server lists, the preferred one of each group first. */
async function groupVersionsOf(transport: Transport, options: DiscoverOptions): Promise<readonly GroupVersion[]> {
  const signal = answerWithin(options);
  const listed = await listedVersions(transport, { signal });
  // Of one group, too, the list of all groups says whether it is served: a 404 for the group alone could be a proxy's.
  return listed.filter(({ group }) => options.group === undefined || group === options.group);
}

function answerWithin({ clock, signal }: DiscoverOptions): AbortSignal {
  return AbortSignal.any([signal, clock.timeout(ANSWER_TIMEOUT_MS)]);
}
