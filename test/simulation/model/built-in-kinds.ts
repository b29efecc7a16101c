import { storageVersionHashOf } from "../../../src/api/crd.ts";
import { apiVersionOf } from "../../../src/kube/resources.ts";
import { BUILT_INS, type BuiltIn, type Release } from "./resource-table.ts";
import { kindKey, type ServedKind } from "./served-kinds.ts";

/** The built-in resources that a release serves, by {@link kindKey}. */
export function builtInKinds(release: Release): ReadonlyMap<string, ServedKind> {
  let kinds = known.get(release);
  if (kinds === undefined) {
    kinds = new Map(BUILT_INS.flatMap((builtIn) => kindsOf(builtIn, release).map((kind) => [kindKey(kind), kind])));
    known.set(release, kinds);
  }
  return kinds;
}

const known = new WeakMap<Release, ReadonlyMap<string, ServedKind>>();

/** Whether a release has a group by itself. */
export function isBuiltInGroup(release: Release, group: string | undefined): boolean {
  return [...builtInKinds(release).values()].some((kind) => kind.group === group);
}

function kindsOf(builtIn: BuiltIn, release: Release): readonly ServedKind[] {
  const { group, kind, resource, storedAs, hasStatus = false, hasGeneration = false } = builtIn;
  const name = group === "" ? resource : `${resource}.${group}`;
  const versions = release.servedVersions[name] ?? builtIn.versions;
  const stored = storedAs ?? { group, version: release.storageVersions[name] ?? versions[0] ?? "" };
  return versions.map((version) => ({
    group,
    version,
    resource,
    kind,
    hasStatus,
    hasGeneration,
    apiVersion: apiVersionOf(group, version),
    listKind: `${kind}List`,
    singular: kind.toLowerCase(),
    shortNames: builtIn.shortNames,
    namespaced: builtIn.namespaced,
    prefix: builtIn.prefix,
    storedApiVersion: apiVersionOf(stored.group, stored.version),
    storageVersionHash: storageVersionHashOf(stored.group, builtIn.hashedAs ?? stored.version, kind),
  }));
}
