import { KsvmError, messageOf } from "../errors.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { type GroupVersion, listedVersions, resourcesOf } from "../old/kube/discovery.ts";
import { ApiError } from "../old/kube/errors.ts";
import { CRDS, apiVersionOf } from "../old/kube/resources.ts";
import type { DiscoveredVersion } from "./migratable.ts";
import { mayBeIn, type Resolution, resolveName } from "./resolve-name.ts";

/** A version of a group that cannot be read. */
interface Unread extends GroupVersion {
  /** As `group/version: why`. */
  readonly why: string;
}

/** What can be read of discovery. */
interface ReadVersions {
  readonly versions: readonly DiscoveredVersion[];
  readonly unread: readonly Unread[];
}

/**
 * The full name (`plural.group`, the plural alone in the core group) of a resource that a user names as kubectl accepts it, see
 * {@link resolveName}. A full name costs one request or two, any other one discovery of all groups.
 * @throws {KsvmError} ResourceNotFound, with the names of resources that are called similarly; ResourceAmbiguous where several
 *   have the name, or may have, or one may have it in a group that cannot be read; {ApiError | TransportError}
 */
export async function findName(client: ApiClient, given: string, options: CallOptions = {}): Promise<string> {
  if (await isFullName(client, given, options)) {
    return given;
  }
  const { unread, versions } = await readVersions(client, await listedVersions(client.transport, options), options);
  const { isOpen, names, similar }: Resolution = resolveName(given, versions);
  const [name, ...others] = names;
  if (name === undefined) {
    throw notFound(
      given,
      similar,
      unread.filter((one) => mayBeIn(given, one)),
    );
  }
  if (others.length > 0) {
    const text = `Cannot tell which resource "${given}" is: ${names.join(", ")}; use the full name of one of them`;
    throw new KsvmError("ResourceAmbiguous", text);
  }
  if (isOpen && unread.length > 0) {
    const text =
      `Cannot tell whether "${given}" is "${name}" alone: discovery of another group cannot be read (${textOf(unread)}); ` +
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
  const unread: Unread[] = [];
  for (const one of listed) {
    try {
      versions.push({ ...one, resources: await resourcesOf(client.transport, one, options) });
    } catch (error) {
      if (!(error instanceof ApiError)) {
        throw error;
      }
      unread.push({ ...one, why: `${apiVersionOf(one.group, one.version)}: ${messageOf(error.said)}` });
    }
  }
  return { versions, unread };
}

function textOf(unread: readonly Unread[]): string {
  return unread.map(({ why }) => why).join("; ");
}

/** That a resource is not there is proven only where all that may have it was read: a caller may go on without it. */
function notFound(given: string, similar: readonly string[], unread: readonly Unread[]): KsvmError {
  const hint =
    similar.length === 0
      ? 'expected the name of a CustomResourceDefinition (plural.group) or of a built-in resource, such as "widgets.example.com", "deployments.apps" or "secrets"'
      : `did you mean ${similar.join(" or ")}?`;
  return unread.length === 0
    ? new KsvmError("ResourceNotFound", `Cannot find "${given}": ${hint}`)
    : new KsvmError(
        "ResourceAmbiguous",
        `Cannot tell whether there is "${given}": discovery of ${textOf(unread)} cannot be read; ${hint}`,
      );
}
