import { SeenServers } from "../apiservers/seen-servers.ts";
import { ServerArrivals } from "../apiservers/server-arrivals.ts";
import { SettledChanges } from "../apiservers/settled-changes.ts";
import { systemClock } from "../clock.ts";
import type { ApiClient } from "../kube/client.ts";
import { clusterOf, type ConnectionConfig, userOf } from "../kube/connect/cluster-config.ts";
import type { ExecSpec } from "../kube/connect/exec-credential.ts";
import { proxyOf } from "../kube/connect/proxy.ts";
import type { RequestObserver } from "../kube/transport-options.ts";
import type { RunEnvironment } from "../migrator/assemble-run.ts";

/** Many more clusters than one process migrates at a time. One that is reached by a tunnel may have another address for each call. */
const MAX_CLUSTERS = 1_000;

/** What this process has seen of the API servers of each cluster, in the order of the last calls. */
const seenServers = new Map<string, SeenServers>();

/**
 * An API server that was behind or silent in one call may have a late write under way in the next call, of any CRD. Several clusters may
 * share one address: a proxy, the TLS server name, or a gateway that reads the certificate of an exec plugin chooses between them. If two
 * clusters shared one record, the API servers of the first would look as if they had left the second.
 */
function seenOf(config: ConnectionConfig): SeenServers {
  const { server, tlsServerName } = clusterOf(config);
  const url = URL.parse(server);
  const proxy = url === null ? undefined : proxyOf(config, url);
  // One configuration may name the default port, and another one not.
  const address = (url?.href ?? server).replace(/\/+$/, "");
  const { args, command } = (userOf(config).exec ?? {}) as ExecSpec;
  const cluster = JSON.stringify([address, proxy, tlsServerName, command, args ?? []]);
  const seen = seenServers.get(cluster) ?? new SeenServers(systemClock);
  seenServers.delete(cluster);
  seenServers.set(cluster, seen);
  const [oldest = ""] = seenServers.keys();
  if (seenServers.size > MAX_CLUSTERS) {
    seenServers.delete(oldest);
  }
  return seen;
}

/**
 * What the runs of one call share, and what of it calls share with each other. A call that ends closes its connection, which would wait for
 * a watch of another call on it, and another call may be of a user with other rights: so each has its own watch of the identity Leases.
 */
export function environmentOf(client: ApiClient): RunEnvironment {
  const seen = seenOf(client.transport.config);
  const arrivals = new ServerArrivals(systemClock, seen.departures);
  return { client, clock: systemClock, seen, watched: { arrivals, settled: new SettledChanges() } };
}

/** For the connection of a call, whose first requests no run sends: one that an API server does not answer for a while counts all the same. */
export function observerOf(config: ConnectionConfig): RequestObserver {
  return seenOf(config).observer;
}
