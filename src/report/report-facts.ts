import { type ClusterStatus, readClusterStatus } from "../plan/cluster-status.ts";
import { type CountedEntry, planCluster, planNamed } from "../plan/inventory.ts";
import type { CallContext } from "../retry/call-context.ts";
import { versionIn } from "../kube/discovery.ts";
import { systemClock } from "../clock.ts";
import type { Evidence } from "./evidence.ts";

/** A group and version of which no resource could be listed. */
export interface UnavailableGroup {
  readonly groupVersion: string;
  readonly reason: string;
}

/** Everything that a report is made from. */
export interface ReportFacts {
  /** The address of the API server that was asked. */
  readonly server: string;
  /** Its version, such as `v1.36.3`. */
  readonly serverVersion: string;
  /** Milliseconds since the Unix epoch, by the clock of that API server. */
  readonly now: number;
  /** What the report is limited to, as the user named it; empty for the whole cluster. */
  readonly names: readonly string[];
  readonly entries: readonly CountedEntry[];
  /** Of the whole cluster. */
  readonly status: ClusterStatus;
  readonly unavailable: readonly UnavailableGroup[];
  readonly evidence: readonly Evidence[];
}

/**
 * Reads what a report is made from; sends reads alone.
 * @param names of resources, see `findName`; empty for all
 * @throws {KsvmError} ResourceNotFound or ResourceAmbiguous; {ApiError | TransportError} where the user may not list CRDs or migrations,
 *   or no answer came.
 */
export async function readReportFacts(
  { client, retrier, signal }: CallContext,
  names: readonly string[],
): Promise<Omit<ReportFacts, "evidence">> {
  const about = await retrier.run(async () => {
    const { body, serverTime } = await client.transport.request({ method: "GET", path: "/version", signal });
    return { serverVersion: versionIn(body), now: serverTime ?? systemClock.now() };
  }, signal);
  const { entries, unavailable } = await retrier.run(async () => {
    const left: UnavailableGroup[] = [];
    const onUnavailable = (groupVersion: string, reason: string): void => void left.push({ groupVersion, reason });
    const planned =
      names.length === 0 ? planCluster(client, onUnavailable, { signal }) : planNamed(client, names, { signal });
    return { entries: await planned, unavailable: left };
  }, signal);
  const status = await retrier.run(() => readClusterStatus(client, { signal }), signal);
  return { server: client.transport.server, ...about, names, entries, status, unavailable };
}
