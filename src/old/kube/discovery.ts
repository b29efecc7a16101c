import { KsvmError } from "../../errors.ts";
import type { ApiRequest } from "./api-request.ts";
import type { CallOptions } from "./call-options.ts";
import { ApiError, DoubtfulAnswer } from "./errors.ts";
import { apiVersionOf, groupVersionPath } from "./resources.ts";
import type { Transport } from "./transport.ts";

/** One resource of a group and version, as discovery lists it. */
export interface ApiResource {
  readonly name: string;
  readonly kind: string;
  readonly singularName?: string;
  readonly shortNames?: readonly string[] | null;
  readonly namespaced: boolean;
  readonly verbs: readonly string[];
  /** Opaque; equal on two API servers that encode the resource alike. Absent where it cannot be told. */
  readonly storageVersionHash?: string;
}

/** The oldest Kubernetes that ksvm is tested with: five minor releases are supported. */
const OLDEST_SUPPORTED_MINOR = 32;

/**
 * Reads the API server's version and refuses one that is too old.
 * @returns its `gitVersion`, such as `v1.36.3`
 * @throws {KsvmError} ServerUnsupported below Kubernetes 1.32; transport errors where it does not answer.
 */
export async function assertSupportedServer(
  transport: Transport,
  options: CallOptions & Pick<ApiRequest, "timeoutMs"> = {},
): Promise<string> {
  const { body } = await transport.request<{ gitVersion?: string }>({
    method: "GET",
    path: "/version",
    ...options,
  });
  const gitVersion = body?.gitVersion ?? "";
  if (!isSupportedVersion(gitVersion)) {
    const found = gitVersion === "" ? "no Kubernetes version" : `Kubernetes ${gitVersion}`;
    throw new KsvmError(
      "ServerUnsupported",
      `Cannot work with ${transport.server}: it runs ${found}, and 1.${OLDEST_SUPPORTED_MINOR} or newer is needed`,
    );
  }
  return gitVersion;
}

/**
 * The `gitVersion` in an answer to `/version`.
 * @throws {DoubtfulAnswer} where it has none: it is not an API server's.
 */
export function versionIn(body: unknown): string {
  const { gitVersion } = (body ?? {}) as { readonly gitVersion?: unknown };
  if (typeof gitVersion !== "string" || gitVersion === "") {
    throw new DoubtfulAnswer("Cannot read /version: the answer names no version of Kubernetes");
  }
  return gitVersion;
}

/** Whether a `gitVersion`, distribution suffixes included, is one that this program works with. */
export function isSupportedVersion(gitVersion: string): boolean {
  const match = /^v?(\d+)\.(\d+)/.exec(gitVersion);
  const [major, minor] = [Number(match?.[1]), Number(match?.[2])];
  return major > 1 || (major === 1 && minor >= OLDEST_SUPPORTED_MINOR);
}

/**
 * The resources of one group and version, from the unaggregated endpoint: aggregated discovery has no
 * storageVersionHash.
 * @throws {ApiError} 404 where the version is not served, or a proxy says so; {DoubtfulAnswer} where the answer is no list
 *   of this version: a resource that it does not name would count as not served.
 */
export async function resourcesOf(
  transport: Transport,
  groupVersion: { readonly group: string; readonly version: string },
  options: CallOptions = {},
): Promise<readonly ApiResource[]> {
  const path = groupVersionPath(groupVersion.group, groupVersion.version);
  const { body } = await transport.request<unknown>({ method: "GET", path, signal: options.signal });
  if (!isResourceList(body, apiVersionOf(groupVersion.group, groupVersion.version))) {
    throw new DoubtfulAnswer(`Cannot read ${path} of ${transport.server}: the answer is no list of its resources`);
  }
  return body.resources ?? [];
}

interface ResourceList {
  readonly kind: "APIResourceList";
  readonly groupVersion: string;
  readonly resources: readonly ApiResource[] | null;
}

function isResourceList(body: unknown, wanted: string): body is ResourceList {
  const { groupVersion, kind, resources } = (body ?? {}) as Partial<ResourceList>;
  const isRead = resources === null || Array.isArray(resources);
  return kind === "APIResourceList" && groupVersion === wanted && isRead;
}

/**
 * The groups that the API server serves, each with its preferred version; the core group first, with an empty name.
 * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer names no group: every API server serves some.
 */
export async function preferredVersions(
  transport: Transport,
  options: CallOptions = {},
): Promise<readonly { readonly group: string; readonly version: string; readonly versions: readonly string[] }[]> {
  const { groups = [], kind } = await groupsOf(transport, options);
  if (kind !== "APIGroupList" || groups.length === 0) {
    throw new DoubtfulAnswer(`Cannot read /apis of ${transport.server}: the answer is no list of groups`);
  }
  const named = groups.map(({ name, preferredVersion, versions }) => ({
    group: name,
    version: preferredVersion.version,
    versions: versions.map(({ version }) => version),
  }));
  return [{ group: "", version: "v1", versions: ["v1"] }, ...named];
}

/** A version of a group; the core group has an empty name. */
export interface GroupVersion {
  readonly group: string;
  readonly version: string;
}

/**
 * Every version that the API server lists, the preferred one of each group first.
 * @throws as {@link preferredVersions}
 */
export async function listedVersions(
  transport: Transport,
  options: CallOptions = {},
): Promise<readonly GroupVersion[]> {
  const groups = await preferredVersions(transport, options);
  return groups.flatMap(({ group, version, versions }) =>
    [...new Set([version, ...versions])].map((name) => ({ group, version: name })),
  );
}

interface GroupList {
  readonly kind?: unknown;
  readonly groups?: readonly {
    readonly name: string;
    readonly preferredVersion: { readonly version: string };
    readonly versions: readonly { readonly version: string }[];
  }[];
}

async function groupsOf(transport: Transport, { signal }: CallOptions): Promise<GroupList> {
  try {
    return (await transport.request<GroupList | null>({ method: "GET", path: "/apis", signal })).body ?? {};
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) {
      throw new DoubtfulAnswer(`${error.message}, and every API server serves /apis`, error);
    }
    throw error;
  }
}
