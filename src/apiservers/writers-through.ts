import { ApiClient } from "../kube/client.ts";
import type { Fence } from "../kube/transport-options.ts";

/**
 * Clients that write through one API server each, where each has an address of its own. That of `client` is `client` itself; the caller closes
 * the others.
 * @param clients those that ask the API servers
 */
export function writersThrough(client: ApiClient, clients: readonly ApiClient[], fence: Fence): readonly ApiClient[] {
  return clients.map(({ transport: { server } }) =>
    server === client.transport.server ? client : new ApiClient(client.transport.another({ server })).fencedBy(fence),
  );
}

/** Ends the connections of {@link writersThrough}. */
export async function closeWriters(client: ApiClient, writers: readonly ApiClient[]): Promise<void> {
  await Promise.all(writers.filter((one) => one !== client).map(({ transport }) => transport.close()));
}
