import { storageVersionHashOf } from "../api/crd.ts";
import { UNKNOWN_HASH } from "../api/migration.ts";
import { KsvmError } from "../errors.ts";
import { DECODABLE_KINDS, TABLE_RELEASES } from "./decodable-kinds.ts";

/** What a storageVersionHash stands for. */
export interface KnownVersion {
  /** `group/version`, the version alone in the core group. */
  readonly apiVersion: string;
  readonly kind: string;
}

const VERSIONS_BY_HASH: ReadonlyMap<string, KnownVersion> = new Map(
  Object.entries(DECODABLE_KINDS).flatMap(([apiVersion, bySpan]) =>
    Object.values(bySpan)
      .flatMap((kinds) => kinds.split(" "))
      .map((kind) => [hashOf(apiVersion, kind), { apiVersion, kind }] as const),
  ),
);

function hashOf(apiVersion: string, kind: string): string {
  const slash = apiVersion.indexOf("/");
  return storageVersionHashOf(apiVersion.slice(0, Math.max(0, slash)), apiVersion.slice(slash + 1), kind);
}

/**
 * The group, version and kind whose storageVersionHash this is; `undefined` where no release of the table has one. The hash
 * is opaque by its proposal, and its function is not: https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/2339-storageversion-api-for-ha-api-servers
 */
export function versionOfHash(hash: string): KnownVersion | undefined {
  return VERSIONS_BY_HASH.get(hash);
}

/** The version that a hash stands for, in words: `v2` in the group itself, `group/v2` in another one. */
export function versionTextOf(hash: string, group: string): string {
  const { apiVersion } = versionOfHash(hash) ?? {};
  if (apiVersion === undefined) {
    return hash === UNKNOWN_HASH ? "unknown" : `hash ${hash}`;
  }
  return group !== "" && apiVersion.startsWith(`${group}/`) ? apiVersion.slice(group.length + 1) : apiVersion;
}

/** The minor releases of the table, such as `1.36`, the oldest first. */
export const KNOWN_RELEASES: readonly string[] = Object.keys(TABLE_RELEASES);

/** Whether the API server of a release of {@link KNOWN_RELEASES} reads objects that are stored so. */
export function canDecode(release: string, { apiVersion, kind }: KnownVersion): boolean {
  const at = KNOWN_RELEASES.indexOf(release);
  return Object.entries(DECODABLE_KINDS[apiVersion] ?? {}).some(([span, kinds]) => {
    const [first, last] = span.split("-").map((minor) => KNOWN_RELEASES.indexOf(minor));
    return first !== undefined && last !== undefined && first <= at && at <= last && kinds.split(" ").includes(kind);
  });
}

/**
 * Makes sure that the table has a minor release.
 * @throws {KsvmError} ReleaseUnknown
 */
export function knownRelease(release: string): string {
  if (!KNOWN_RELEASES.includes(release)) {
    const known = `${KNOWN_RELEASES.at(0)} to ${KNOWN_RELEASES.at(-1)}`;
    throw new KsvmError(
      "ReleaseUnknown",
      `Cannot tell what Kubernetes ${release} can read: this ksvm knows Kubernetes ${known}`,
    );
  }
  return release;
}

/** The minor release of a version of Kubernetes, such as `1.36` of `v1.36.3+k3s1`; `undefined` where it is none. */
export function minorReleaseOf(version: string): string | undefined {
  return /^v?(1\.(?:0|[1-9]\d{0,2}))(?:\.\d+(?:[-+].*)?)?$/.exec(version)?.[1];
}
