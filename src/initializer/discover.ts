import type { ApiClient } from "../kube/client.ts";
import { preferredVersions, resourcesOf } from "../kube/discovery.ts";
import { ApiError } from "../kube/errors.ts";
import { apiVersionOf } from "../kube/resources.ts";
import type { Retrier } from "../migrator/retrier.ts";
import { type DiscoveredVersion, type Selection, type SkippedResource, selectMigratable } from "./migratable.ts";

interface DiscoverContext {
  readonly client: ApiClient;
  readonly retrier: Retrier;
  readonly signal: AbortSignal;
}

/**
 * Every resource of the cluster that can be migrated, and those that are left out. A group whose API server does not
 * answer is among these: it must not keep the others from being migrated.
 * @throws {ApiError | TransportError} where the groups cannot be listed.
 */
export async function discoverMigratable(context: DiscoverContext): Promise<Selection> {
  const { client, retrier, signal } = context;
  const groups = await retrier.run(() => preferredVersions(client.transport, { signal }), signal);
  const found: DiscoveredVersion[] = [];
  const unavailable: SkippedResource[] = [];
  for (const { group, version, versions } of groups) {
    for (const candidate of new Set([version, ...versions])) {
      const answer = await discoverVersion(context, { group, version: candidate });
      if (typeof answer === "string") {
        const reason = `its API server does not answer discovery: ${answer}`;
        unavailable.push({ resource: `*.${apiVersionOf(group, candidate)}`, reason });
      } else {
        found.push(answer);
      }
    }
  }
  const { migratable, skipped } = selectMigratable(found);
  return { migratable, skipped: [...unavailable, ...skipped] };
}

/** What the API server says instead, where it does not serve it. */
async function discoverVersion(
  { client, signal }: DiscoverContext,
  groupVersion: { readonly group: string; readonly version: string },
): Promise<DiscoveredVersion | string> {
  try {
    return { ...groupVersion, resources: await resourcesOf(client.transport, groupVersion, { signal }) };
  } catch (error) {
    if (error instanceof ApiError) {
      return error.said.trim();
    }
    throw error;
  }
}
