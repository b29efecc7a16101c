import { resourceNameOf } from "../api/migration.ts";
import { KsvmError } from "../errors.ts";
import type { CallOptions } from "../kube/call-options.ts";
import type { ApiClient } from "../kube/client.ts";
import { type ApiResource, preferredVersions, resourcesOf } from "../kube/discovery.ts";
import { ApiError } from "../kube/errors.ts";
import type { Resource } from "../kube/resources.ts";

/** A resource as discovery shows it, built-in or custom. */
export interface ServedResource extends Resource {
  readonly kind: string;
  readonly storageVersionHash?: string;
}

/**
 * Every resource that is stored and can be rewritten (it can be listed and patched and has a storageVersionHash), each
 * once, in its group's preferred version; custom resources too. A group whose API server does not answer is left out
 * and reported.
 */
export async function discoverResources(
  client: ApiClient,
  onUnavailable: (groupVersion: string, reason: string) => void,
  options: CallOptions = {},
): Promise<readonly ServedResource[]> {
  const found = new Map<string, ServedResource>();
  for (const { group, version, versions } of await preferredVersions(client.transport, options)) {
    for (const candidate of [version, ...versions.filter((other) => other !== version)]) {
      const resources = await resourcesOrNone(client, { group, version: candidate }, onUnavailable, options);
      for (const resource of resources.filter(isMigratable)) {
        const builtIn = servedResourceOf({ group, version: candidate }, resource);
        found.set(resourceNameOf(builtIn), found.get(resourceNameOf(builtIn)) ?? builtIn);
      }
    }
  }
  return [...found.values()];
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
  const served = await preferredVersions(client.transport, options);
  const { version, versions } = served.find((candidate) => candidate.group === group) ?? { versions: [] };
  for (const candidate of [version, ...versions.filter((other) => other !== version)]) {
    const resources =
      candidate === undefined ? [] : await resourcesOf(client.transport, { group, version: candidate }, options);
    const found = resources.find((entry) => entry.name === resource);
    if (candidate !== undefined && found !== undefined) {
      return assertMigratable(name, { group, version: candidate }, found);
    }
  }
  throw new KsvmError(
    "ResourceNotFound",
    `Cannot find "${name}": expected the name of a CustomResourceDefinition (plural.group) or of a built-in ` +
      'resource, such as "widgets.example.com", "deployments.apps" or "secrets"',
  );
}

function assertMigratable(
  name: string,
  groupVersion: { readonly group: string; readonly version: string },
  resource: ApiResource,
): ServedResource {
  const missing = ["list", "patch"].filter((verb) => !resource.verbs.includes(verb));
  if (missing.length > 0) {
    const text = `Cannot migrate "${name}": the API server does not offer ${missing.join(" and ")} for it`;
    throw new KsvmError("ResourceNotMigratable", text);
  }
  return servedResourceOf(groupVersion, resource);
}

function servedResourceOf(
  groupVersion: { readonly group: string; readonly version: string },
  resource: ApiResource,
): ServedResource {
  const { name, kind, storageVersionHash } = resource;
  const hash = storageVersionHash === undefined ? {} : { storageVersionHash };
  return { ...groupVersion, resource: name, kind, ...hash };
}

function isMigratable({ name, verbs, storageVersionHash }: ApiResource): boolean {
  const canRewrite = verbs.includes("list") && verbs.includes("patch");
  return canRewrite && !name.includes("/") && storageVersionHash !== undefined && storageVersionHash !== "";
}

async function resourcesOrNone(
  client: ApiClient,
  groupVersion: { readonly group: string; readonly version: string },
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
