import { KsvmError } from "../errors.ts";
import type { CallOptions } from "./client.ts";
import { groupVersionPath } from "./resources.ts";
import type { Transport } from "./transport.ts";

/** One resource of a group and version, as discovery lists it. */
export interface ApiResource {
  readonly name: string;
  readonly kind: string;
  readonly namespaced: boolean;
  readonly verbs: readonly string[];
  /** Opaque; equal on two API servers that encode the resource alike. Absent where it cannot be told. */
  readonly storageVersionHash?: string;
}

/** The oldest Kubernetes with matchConditions and ValidatingAdmissionPolicy in v1. */
export const OLDEST_SUPPORTED_MINOR = 30;

/**
 * Reads the API server's version and refuses one that is too old.
 * @returns its `gitVersion`, such as `v1.36.3`
 * @throws {KsvmError} ServerUnsupported below Kubernetes 1.30; transport errors where it does not answer.
 */
export async function assertSupportedServer(transport: Transport, options: CallOptions = {}): Promise<string> {
  const { body } = await transport.request<{ gitVersion?: string }>({
    method: "GET",
    path: "/version",
    signal: options.signal,
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

/** Whether a `gitVersion`, distribution suffixes included, is one that this program works with. */
export function isSupportedVersion(gitVersion: string): boolean {
  const match = /^v?(\d+)\.(\d+)/.exec(gitVersion);
  const [major, minor] = [Number(match?.[1]), Number(match?.[2])];
  return major > 1 || (major === 1 && minor >= OLDEST_SUPPORTED_MINOR);
}

/**
 * The resources of one group and version, from the unaggregated endpoint: aggregated discovery has no
 * storageVersionHash.
 * @throws {ApiError} 404 where the version is not served.
 */
export async function resourcesOf(
  transport: Transport,
  groupVersion: { readonly group: string; readonly version: string },
  options: CallOptions = {},
): Promise<readonly ApiResource[]> {
  const { body } = await transport.request<{ resources?: readonly ApiResource[] }>({
    method: "GET",
    path: groupVersionPath(groupVersion.group, groupVersion.version),
    signal: options.signal,
  });
  return body.resources ?? [];
}

/**
 * The groups that the API server serves, each with its preferred version; the core group first, with an empty name.
 * @throws {ApiError | TransportError}
 */
export async function preferredVersions(
  transport: Transport,
  options: CallOptions = {},
): Promise<readonly { readonly group: string; readonly version: string; readonly versions: readonly string[] }[]> {
  const { body } = await transport.request<{
    groups?: readonly {
      name: string;
      preferredVersion: { version: string };
      versions: readonly { version: string }[];
    }[];
  }>({ method: "GET", path: "/apis", signal: options.signal });
  const named = (body.groups ?? []).map(({ name, preferredVersion, versions }) => ({
    group: name,
    version: preferredVersion.version,
    versions: versions.map(({ version }) => version),
  }));
  return [{ group: "", version: "v1", versions: ["v1"] }, ...named];
}
