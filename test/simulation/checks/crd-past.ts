import {
  type CustomResourceDefinition,
  storageVersionHashOf,
  storageVersionOf,
  storedVersionsOf,
} from "../../../src/api/crd.ts";
import type { SimEtcd } from "../model/etcd.ts";
import type { EtcdEntry } from "../model/timeline.ts";

const CRD_PREFIX = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/** A CRD as one revision of etcd wrote it. */
export interface PastCrd {
  readonly revision: number;
  readonly generation: number;
  readonly storageVersion: string;
  readonly storedVersions: readonly string[];
}

/** What became of one CRD since it was created, the oldest first. */
export interface CrdPast {
  readonly uid: string;
  readonly group: string;
  /** Where its objects are. */
  readonly prefix: string;
  readonly states: readonly PastCrd[];
  readonly hashOf: (version: string) => string;
}

/** The past of the CRD that has this name now (`plural.group`); `undefined` where there is none. */
export function pastOf(etcd: SimEtcd, name: string): CrdPast | undefined {
  const newest = etcd.timeline.get(`${CRD_PREFIX}${name}`);
  if (newest === undefined) return undefined;
  const { metadata, spec } = crdIn(newest);
  const states: PastCrd[] = [];
  for (let entry: EtcdEntry | undefined = newest; entry !== undefined && !entry.isDeleted; entry = entry.before) {
    const crd = crdIn(entry);
    if (crd.metadata.uid !== metadata.uid) break;
    states.unshift({
      revision: entry.modRevision,
      generation: crd.metadata.generation ?? 0,
      storageVersion: storageVersionOf(crd),
      storedVersions: storedVersionsOf(crd),
    });
  }
  const prefix = `/registry/${spec.group}/${spec.names.plural}/`;
  const hashOf = (version: string): string => storageVersionHashOf(spec.group, version, spec.names.kind);
  return { uid: metadata.uid, group: spec.group, prefix, states, hashOf };
}

/** The objects under a prefix that were written before a revision, and the version that each is stored in. */
export function storedUnder(
  etcd: SimEtcd,
  prefix: string,
  before = Number.POSITIVE_INFINITY,
): readonly { readonly key: string; readonly version: string; readonly revision: number }[] {
  return etcd.timeline
    .range(prefix)
    .filter(({ modRevision }) => modRevision < before)
    .map(({ key, modRevision, object }) => ({
      key,
      version: object.apiVersion.split("/")[1] ?? "",
      revision: modRevision,
    }));
}

function crdIn({ object }: EtcdEntry): CustomResourceDefinition {
  return object as unknown as CustomResourceDefinition;
}
