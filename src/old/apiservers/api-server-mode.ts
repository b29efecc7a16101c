/** What is known of the API servers of a cluster. */
export interface ApiServerFacts {
  /** Addresses in the EndpointSlice of the service `kubernetes`. */
  readonly addresses: number;
  /** Whether every one of them answers when it is asked by itself. */
  readonly allReachable: boolean;
  /** Live identity Leases; `undefined` where they cannot be read. */
  readonly liveLeases: number | undefined;
}

/**
 * How the API servers can be asked.
 *
 * - `sole`: there is one, behind the kubeconfig's address
 * - `each`: one by one, at their own addresses
 * - `missing`: one by one, but more live than there are addresses: wait for the others
 * - `sampled`: there may be several behind one address, and which of them answers is up to chance
 */
export type ApiServerMode = "sole" | "each" | "missing" | "sampled";

/** How API servers of which this is known can be asked. */
export function apiServerModeOf({ addresses, allReachable, liveLeases }: ApiServerFacts): ApiServerMode {
  if (liveLeases === 1 && addresses <= 1) {
    return "sole";
  }
  // One address for several is a load balancer's.
  if (addresses < 2 || !allReachable) {
    return "sampled";
  }
  return liveLeases !== undefined && liveLeases > addresses ? "missing" : "each";
}
