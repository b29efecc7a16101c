import { createHash } from "node:crypto";
import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import { groupVersionPath, type Resource } from "../kube/objects.ts";

/** One entry of the discovery document of a version. */
export interface DiscoveredResource {
  readonly name: string;
  readonly kind: string;
  readonly namespaced: boolean;
  readonly verbs: readonly string[];
  readonly storageVersionHash?: string;
}

/** What one API server serves in a version, subresources included; nothing where it does not serve the version. */
export async function discover(
  apiServer: Client,
  version: Pick<Resource, "group" | "version">,
  limits: { readonly signal: AbortSignal; readonly timeoutMs?: number },
): Promise<readonly DiscoveredResource[]> {
  const path = groupVersionPath(version);
  try {
    const list = await apiServer.get<{ resources: readonly DiscoveredResource[] | null }>(path, limits);
    return list.resources ?? [];
  } catch (error) {
    if (whose(error) === "gone") return [];
    throw error;
  }
}

/**
 * What discovery shows for objects that are stored in a version.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/endpoints/discovery/storageversionhash.go
 */
export function storageVersionHash(group: string, version: string, kind: string): string {
  return createHash("sha256").update(`${group}/${version}/${kind}`).digest().subarray(0, 8).toString("base64");
}
