import { type CustomResourceDefinition, storageVersionHashOf, storageVersionOf, storedVersionsOf } from "../../crd.ts";
import type { EtcdEntry, SimEtcd } from "../model/etcd.ts";
import { builtInKinds, CRD_PREFIX, kindKey, type ServedKind } from "../model/kinds.ts";
import type { KindPlan } from "../plan.ts";
import { crdNameOf, groupOf, prefixOf } from "../world/kinds.ts";
import type { World } from "../world/world.ts";

// What became of CRDs and objects, as etcd tells of it: what a run or a migration says of them is judged by that.

/** A CRD as one revision of etcd wrote it. */
interface PastCrd {
  readonly revision: number;
  readonly generation: number;
  readonly storageVersion: string;
  readonly storedVersions: readonly string[];
}

/** What became of one CRD since it was created, the oldest first. */
interface CrdPast {
  readonly uid: string;
  readonly states: readonly PastCrd[];
  readonly hashOf: (version: string) => string;
}

export function crdIn({ object }: Pick<EtcdEntry, "object">): CustomResourceDefinition {
  return object as unknown as CustomResourceDefinition;
}

/** The CRD of a kind as it is now. */
export function crdOf({ cluster }: World, kind: KindPlan): CustomResourceDefinition | undefined {
  const found = cluster.etcd.get(`${CRD_PREFIX}${crdNameOf(kind)}`);
  return found && crdIn(found);
}

/** The past of the CRD that has this name now (`plural.group`); `undefined` where there is none. */
export function pastOf(etcd: SimEtcd, name: string): CrdPast | undefined {
  const newest = etcd.get(`${CRD_PREFIX}${name}`);
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
  return { uid: metadata.uid, states, hashOf: (version) => storageVersionHashOf(spec.group, version, spec.names.kind) };
}

/** Why storedVersions was never one version alone since a revision; a state is in force until the next one. @param wanted @default the storage version */
export function neverClean({ states }: CrdPast, since: number, wanted?: string): string | undefined {
  const isClean = states.some(({ storageVersion, storedVersions }, at) => {
    const isOver = (states[at + 1]?.revision ?? Number.POSITIVE_INFINITY) <= since;
    return !isOver && storedVersions.join(" ") === (wanted ?? storageVersion);
  });
  return isClean ? undefined : `storedVersions was never ${wanted ?? "the storage version"} alone`;
}

/** A built-in resource as each API server that lives has it; without those that do not serve it. */
export function servedBy({ cluster }: World, kind: KindPlan): readonly ServedKind[] {
  const key = kindKey({ group: groupOf(kind), version: kind.versions.at(-1) ?? "", resource: kind.plural });
  return cluster.nodes.flatMap(({ api: { release } }) => builtInKinds(release).get(key) ?? []);
}

/** What somebody says of all objects of a resource. */
export interface Claim {
  readonly kind: KindPlan;
  /** Who wrote the objects. */
  readonly writer: string;
  /** The revision when it began. */
  readonly since: number;
  /** `uid/generation` of the CRD that it speaks of. */
  readonly crd?: string | undefined;
  /** The encryption configuration, where it re-encrypted. */
  readonly encryption?: string | undefined;
}

/** The last write of an object that a program sent: the revision then, and what the API servers stored. */
interface LastWrite {
  readonly revision: number;
  readonly stored: ReadonlySet<string>;
}

/** Judges what is said of all objects. */
export class Claims {
  readonly #world: World;
  /** By the name of the program and the plural of the resource. */
  readonly #lastWrites = new Map<string, LastWrite>();

  constructor(world: World) {
    this.#world = world;
    const { cluster, plan } = world;
    cluster.onRequest(({ method, path, query, user }) => {
      if (method !== "PATCH" || query.has("dryRun")) return;
      const plural = path.split("/").at(-2);
      const kind = plan.kinds.find((one) => one.plural === plural);
      if (kind === undefined) return;
      this.#lastWrites.set(`${user} ${plural}`, { revision: cluster.etcd.revision, stored: this.#stored(kind) });
    });
  }

  #stored(kind: KindPlan): ReadonlySet<string> {
    return new Set(servedBy(this.#world, kind).map(({ storedApiVersion }) => storedApiVersion));
  }

  #lastWrite({ kind, since, writer }: Claim): LastWrite {
    const last = this.#lastWrites.get(`${writer} ${kind.plural}`);
    // Where it wrote none, what was there before is as it has to be.
    return last !== undefined && last.revision > since ? last : { revision: since, stored: this.#stored(kind) };
  }

  /** Why not every object is stored as it is said to be. */
  notMigrated(claim: Claim): string | undefined {
    return claim.kind.isBuiltIn === true ? this.#notStoredAlike(claim) : this.#notStoredAs(claim);
  }

  /** Every object that was there when the last one was written is in the version that all API servers stored then. */
  #notStoredAlike(claim: Claim): string | undefined {
    const { revision, stored } = this.#lastWrite(claim);
    if (stored.size > 1) return `API servers stored ${[...stored].join(" and ")} when the last object was written`;
    const other = this.#world.cluster.etcd
      .range(prefixOf(claim.kind))
      .find(({ modRevision, object }) => modRevision <= revision && !stored.has(object.apiVersion));
    return other && `${other.key} is stored as ${other.object.apiVersion}`;
  }

  /** Every object is in the storage version of the generation that is named, but for those written after a later change of it. */
  #notStoredAs({ crd = "", kind }: Claim): string | undefined {
    const { etcd } = this.#world.cluster;
    const past = pastOf(etcd, crdNameOf(kind));
    const [uid, generation] = crd.split("/");
    if (crd === "") return "it names no CRD";
    // The CRD was deleted, and perhaps created again.
    if (past === undefined || past.uid !== uid) return undefined;
    const at = past.states.findIndex((state) => `${state.generation}` === generation);
    const state = past.states[at];
    if (state === undefined) return `its CRD never had generation ${generation}`;
    const changed = past.states.slice(at).find(({ storageVersion }) => storageVersion !== state.storageVersion);
    const before = changed?.revision ?? Number.POSITIVE_INFINITY;
    const other = etcd
      .range(prefixOf(kind))
      .find(
        ({ modRevision, object }) => modRevision < before && !object.apiVersion.endsWith(`/${state.storageVersion}`),
      );
    return other && `${other.key} is stored as ${other.object.apiVersion}, not ${state.storageVersion}`;
  }

  /** The storage version of the generation that is named. */
  storageVersion({ crd = "", kind }: Claim): string | undefined {
    const past = pastOf(this.#world.cluster.etcd, crdNameOf(kind));
    return past?.states.find(({ generation }) => crd === `${past.uid}/${generation}`)?.storageVersion;
  }

  /** Why not every object that was there when the last one was written has the key of the configuration that is named. */
  notReencrypted(claim: Claim): string | undefined {
    const { encryption = "", kind } = claim;
    const { cluster } = this.#world;
    const key = cluster.keyOf(encryption);
    if (key === undefined) return `no API server had the configuration "${encryption}"`;
    const { revision } = this.#lastWrite(claim);
    const other = cluster.etcd
      .range(prefixOf(kind))
      .find(({ encryptionKey, modRevision }) => modRevision <= revision && encryptionKey !== key);
    return other && `${other.key} is encrypted with key ${other.encryptionKey}, not ${key}`;
  }
}
