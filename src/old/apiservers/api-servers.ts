import type { ApiClient } from "../kube/client.ts";
import type { LiveLease } from "./control-plane-objects.ts";

/**
 * Opens a client with connections of its own. Where `onConnect` is given there is one at a time, which is told of whenever it was made: two requests
 * with one connection have ended at one API server.
 */
export type OpenNew = (onConnect?: () => void) => ApiClient;

/** The API servers of a cluster, each of which must have frozen the CRD and must write the new version. */
export type ApiServers = {
  /** The identity Leases that live; missing where they cannot be read or were not asked for. */
  readonly identities?: readonly string[];
  /** The identity Leases whose API servers are gone, as the user says. @default none */
  readonly ignored?: readonly string[];
  /** When the newest of them joined, in milliseconds since the Unix epoch; missing where it cannot be told. */
  readonly newestJoin?: number;
  /** Whether one of them was silent, or not to be found, so short a time ago that a late write may still land. */
  readonly silent?: boolean;
} & (
  | {
      readonly mode: "each";
      readonly clients: readonly ApiClient[];
      /** The address of the only API server, where that of its client may be the one of the kubeconfig. @default that of its client */
      readonly soleAt?: string;
    }
  /**
   * Asked on new connections, each of which may end at another API server; the caller closes what it opens. `clients` has
   * one for each API server that was told apart, where that was asked for.
   */
  | {
      readonly mode: "sampled";
      readonly server: string;
      readonly open: OpenNew;
      readonly clients?: readonly ApiClient[];
    }
);

/** How many API servers behind one address were told apart; 0 where none had to be. */
export function toldApart(apiServers: ApiServers): number {
  return apiServers.mode === "sampled" ? (apiServers.clients?.length ?? 0) : 0;
}

/** The addresses of the API servers, for a user. */
export function serversOf(apiServers: ApiServers): readonly string[] {
  return apiServers.mode === "each"
    ? apiServers.clients.map(({ transport }) => transport.server)
    : [`${apiServers.server} (sampled)`];
}

/**
 * Tells one set of API servers from another, so that what was seen of one is not believed of the other. That one is gone is what the
 * user of a run says: where it lived all the same, it may have written what a later run must not leave out.
 */
export function fingerprintOf(apiServers: ApiServers): string {
  const { mode, identities = [], ignored = [], newestJoin = 0 } = apiServers;
  const without = ignored.map((name) => `without=${name}`).toSorted();
  const soleAt = soleAddressOf(apiServers);
  const servers = soleAt === undefined ? serversOf(apiServers) : [soleAt];
  return [mode, ...servers, ...identities, newestJoin, ...without].join(" ");
}

/** The address by which the only API server is known, through whichever it is asked; `undefined` where that does not differ, or it is not the only one. */
export function soleAddressOf(apiServers: ApiServers): string | undefined {
  return apiServers.mode === "each" ? apiServers.soleAt : undefined;
}

/** Which API servers the Leases stand for, and when the newest of them joined. */
export function identityOf(leases: readonly LiveLease[]): Pick<ApiServers, "identities" | "newestJoin"> {
  const joins = leases.map(({ createdAt }) => createdAt).filter((time) => !Number.isNaN(time));
  const identities = leases.map(({ name }) => name).toSorted((a, b) => a.localeCompare(b));
  return joins.length === 0 ? { identities } : { identities, newestJoin: Math.max(...joins) };
}
