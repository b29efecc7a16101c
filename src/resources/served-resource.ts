import { KsvmError } from "../errors.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { type ApiResource, type GroupVersion, listedVersions, resourcesOf } from "../old/kube/discovery.ts";
import { ApiError } from "../old/kube/errors.ts";
import {
  type DiscoveredVersion,
  missingVerbs,
  selectMigratable,
  type ServedResource,
  servedResourceOf,
} from "./migratable.ts";

/**
 * Every resource that is stored and can be rewritten, each once, in its group's preferred version; custom resources
 * too. A group whose API server does not answer is left out and reported.
 */
export async function discoverResources(
  client: ApiClient,
  onUnavailable: (groupVersion: string, reason: string) => void,
  options: CallOptions = {},
): Promise<readonly ServedResource[]> {
  const versions: DiscoveredVersion[] = [];
  for (const listed of await listedVersions(client.transport, options)) {
    versions.push({ ...listed, resources: await resourcesOrNone(client, listed, onUnavailable, options) });
  }
  return selectMigratable(versions).migratable;
}

/**
 * Finds a resource by its name.
 * @throws {KsvmError} ResourceNotFound where discovery does not list it; ResourceNotMigratable where it cannot be
 *   listed and patched.
 */
export async function findResource(
  client: ApiClient,
  name: string,
  options: CallOptions = {},
): Promise<ServedResource> {
  const [resource = "", ...rest] = name.split(".");
  const group = rest.join(".");
  for (const listed of await listedVersions(client.transport, options)) {
    if (listed.group === group) {
      const resources = await resourcesOf(client.transport, listed, options);
      const found = resources.find((entry) => entry.name === resource);
      if (found !== undefined) {
        return assertMigratable(name, listed, found);
      }
    }
  }
  throw new KsvmError(
    "ResourceNotFound",
    `Cannot find "${name}": expected the name of a CustomResourceDefinition (plural.group) or of a built-in ` +
      'resource, such as "widgets.example.com", "deployments.apps" or "secrets"',
  );
}

function assertMigratable(name: string, groupVersion: GroupVersion, resource: ApiResource): ServedResource {
  const missing = missingVerbs(resource);
  if (missing.length > 0) {
    const text = `Cannot migrate "${name}": the API server does not offer ${missing.join(" and ")} for it`;
    throw new KsvmError("ResourceNotMigratable", text);
  }
  return servedResourceOf(groupVersion, resource);
}

async function resourcesOrNone(
  client: ApiClient,
  groupVersion: GroupVersion,
  onUnavailable: (groupVersion: string, reason: string) => void,
  options: CallOptions,
): Promise<readonly ApiResource[]> {
  try {
    return await resourcesOf(client.transport, groupVersion, options);
  } catch (error) {
    if (!(error instanceof ApiError)) {
      throw error;
    }
    onUnavailable(`${groupVersion.group}/${groupVersion.version}`, error.said);
    return [];
  }
}
