import { KsvmError, messageOf } from "../errors.ts";
import type { CallOptions } from "../kube/call-options.ts";
import type { ApiClient } from "../kube/client.ts";
import { type GroupVersion, listedVersions, resourcesOf } from "../kube/discovery.ts";
import { ApiError } from "../kube/errors.ts";
import { CRDS, apiVersionOf } from "../kube/resources.ts";
import type { DiscoveredVersion } from "./migratable.ts";
import { type Resolution, resolveName } from "./resolve-name.ts";

/** What can be read of discovery. */
interface ReadVersions {
  readonly versions: readonly DiscoveredVersion[];
  /** Versions of groups that cannot be read, as `group/version: why`. */
  readonly unread: readonly string[];
}

/**
 * The full name (`plural.group`, the plural alone in the core group) of a resource that a user names as kubectl accepts it, see
 * {@link resolveName}. A full name costs one request or two, any other one discovery of all groups.
 * @throws {KsvmError} ResourceNotFound, with the names of resources that are called similarly; ResourceAmbiguous where several
 *   have the name, or may have; {ApiError | TransportError}
 */
export async function findName(client: ApiClient, given: string, options: CallOptions = {}): Promise<string> {
  if (await isFullName(client, given, options)) {
    return given;
  }
  const { unread, versions } = await readVersions(client, await listedVersions(client.transport, options), options);
  const { isOpen, names, similar }: Resolution = resolveName(given, versions);
  const [name, ...others] = names;
  if (name === undefined) {
    throw notFound(given, similar, unread);
  }
  if (others.length > 0) {
    const text = `Cannot tell which resource "${given}" is: ${names.join(", ")}; use the full name of one of them`;
    throw new KsvmError("ResourceAmbiguous", text);
  }
  if (isOpen && unread.length > 0) {
    const text =
      `Cannot tell whether "${given}" is "${name}" alone: discovery of another group cannot be read (${unread.join("; ")}); ` +
      "use the full name";
    throw new KsvmError("ResourceAmbiguous", text);
  }
  return name;
}

/** Also of a CRD that serves no version, which discovery does not show. */
async function isFullName(client: ApiClient, given: string, options: CallOptions): Promise<boolean> {
  if (given.includes(".") && (await client.findMetadata(CRDS, { name: given }, options)) !== undefined) {
    return true;
  }
  const [, ...rest] = given.split(".");
  const group = rest.join(".");
  const listed = (await listedVersions(client.transport, options)).filter((one) => one.group === group);
  const { versions } = await readVersions(client, listed, options);
  return resolveName(given, versions).names.includes(given);
}

async function readVersions(
  client: ApiClient,
  listed: readonly GroupVersion[],
  options: CallOptions,
): Promise<ReadVersions> {
  const versions: DiscoveredVersion[] = [];
  const unread: string[] = [];
  for (const one of listed) {
    try {
      versions.push({ ...one, resources: await resourcesOf(client.transport, one, options) });
    } catch (error) {
      if (!(error instanceof ApiError)) {
        throw error;
      }
      unread.push(`${apiVersionOf(one.group, one.version)}: ${messageOf(error.said)}`);
    }
  }
  return { versions, unread };
}

function notFound(given: string, similar: readonly string[], unread: readonly string[]): KsvmError {
  const hint =
    similar.length === 0
      ? 'expected the name of a CustomResourceDefinition (plural.group) or of a built-in resource, such as "widgets.example.com", "deployments.apps" or "secrets"'
      : `did you mean ${similar.join(" or ")}?`;
  const left = unread.length === 0 ? "" : ` (discovery of ${unread.join("; ")} cannot be read)`;
  return new KsvmError("ResourceNotFound", `Cannot find "${given}": ${hint}${left}`);
}
