import { storageVersionOf, storedVersionsOf } from "../../crd.ts";
import type { EtcdEntry } from "../model/etcd.ts";
import { CRD_PREFIX } from "../model/kinds.ts";
import { isByKsvm, type World } from "../world/world.ts";
import { crdIn } from "./past.ts";

/** What is known of the objects of one CRD. */
interface Stored {
  crd: EtcdEntry | undefined;
  /** How many are stored in each version. */
  readonly byVersion: Map<string, number>;
  /** Once ksvm has pruned the CRD: the versions that were taken off the list then, or were not on it, and are not since. */
  readonly unlisted: Set<string>;
}

/**
 * S1 at every revision: the version that an object is stored in is listed in `status.storedVersions` of its CRD, as far as ksvm
 * has a part in it. Others break it by themselves: a client that prunes too early, and Kubernetes, where a write that is under way lands
 * in a version of a CRD that was deleted and created again. So where ksvm prunes, every object counts; from then on those that land in a version that
 * it left unlisted.
 */
export function checkS1(world: World): void {
  const { etcd } = world.cluster;
  /** By `/registry/GROUP/PLURAL/`. */
  const all = new Map<string, Stored>();
  const storedIn = (prefix: string): Stored => {
    let stored = all.get(prefix);
    if (stored === undefined) {
      stored = { crd: undefined, byVersion: new Map(), unlisted: new Set() };
      all.set(prefix, stored);
    }
    return stored;
  };
  const count = (entry: EtcdEntry, by: 1 | -1): Stored | undefined => {
    const prefix = prefixOfObject(entry.key);
    if (prefix === undefined) return undefined;
    const stored = storedIn(prefix);
    const version = entry.object.apiVersion.split("/")[1] ?? "";
    stored.byVersion.set(version, (stored.byVersion.get(version) ?? 0) + by);
    return stored;
  };
  const crdWritten = (entry: EtcdEntry): Stored => {
    const { metadata, spec } = crdIn(entry);
    const stored = storedIn(`/registry/${spec.group}/${spec.names.plural}/`);
    const before = stored.crd && crdIn(stored.crd);
    stored.crd = entry.isDeleted ? undefined : entry;
    if (entry.isDeleted || before?.metadata.uid !== metadata.uid) stored.unlisted.clear();
    const listed = storedVersionsOf(crdIn(entry));
    const isPrune = before !== undefined && storedVersionsOf(before).some((version) => !listed.includes(version));
    if (isPrune && isByKsvm()) for (const version of stored.byVersion.keys()) stored.unlisted.add(version);
    for (const version of listed) stored.unlisted.delete(version);
    if (isPrune && isByKsvm())
      for (const version of storedVersionsOf(before)) if (!listed.includes(version)) stored.unlisted.add(version);
    return stored;
  };
  const judge = ({ byVersion, crd, unlisted }: Stored, { key, modRevision }: EtcdEntry): void => {
    for (const version of unlisted) {
      const objects = byVersion.get(version) ?? 0;
      if (objects === 0 || crd === undefined) continue;
      const { metadata } = crdIn(crd);
      world.violate(
        `S1: ${objects} objects of ${metadata.name} are stored as ${version}, and storedVersions is ` +
          `[${storedVersionsOf(crdIn(crd)).join(", ")}], storage version ${storageVersionOf(crdIn(crd))}, since revision ${modRevision} (${key})`,
      );
    }
  };
  for (const entry of etcd.range("/registry/")) {
    if (entry.key.startsWith(CRD_PREFIX)) crdWritten(entry);
    else count(entry, 1);
  }
  etcd.onRevision((entry) => {
    if (entry.key.startsWith(CRD_PREFIX)) return judge(crdWritten(entry), entry);
    if (entry.before !== undefined && !entry.before.isDeleted) count(entry.before, -1);
    const stored = entry.isDeleted ? undefined : count(entry, 1);
    if (stored !== undefined) judge(stored, entry);
  });
}

/** Of a custom resource the group is a part of the key; built-in resources have none, or no dot in it. */
function prefixOfObject(key: string): string | undefined {
  const [, , group = "", plural = "", name] = key.split("/");
  return group.includes(".") && name !== undefined ? `/registry/${group}/${plural}/` : undefined;
}
