import { storageVersionHash } from "../apiservers/converge.ts";
import { TRIGGER_ANNOTATION } from "../api/names.ts";
import type { Client } from "../kube/client.ts";
import { type Crd, CRDS, isClean, storageVersion } from "../kube/objects.ts";
import { Pages } from "../kube/pages.ts";

/** What the trigger keeps of a CRD: a few words, never the object. */
export interface CrdFacts {
  /** `plural.group`. */
  readonly name: string;
  readonly uid: string;
  readonly generation: number;
  /** The version that requests go to; `undefined` where none is served. */
  readonly requestVersion: string | undefined;
  /** The storageVersionHash of its storage version. */
  readonly hash: string;
  readonly storedVersions: readonly string[];
  /** The hashes of storedVersions, in their order. */
  readonly storedHashes: readonly string[];
  /** Whether storedVersions is exactly the storage version. */
  readonly isClean: boolean;
  /** Whether its owner turned the trigger off by annotation. */
  readonly isOptedOut: boolean;
}

/** Reads what matters of a CRD. */
export function crdFactsOf(crd: Crd): CrdFacts {
  const { annotations, generation = 0, name, uid } = crd.metadata;
  const { group, names, versions } = crd.spec;
  const storage = storageVersion(crd);
  const served = versions.filter((version) => version.served).map((version) => version.name);
  const storedVersions = crd.status?.storedVersions ?? [];
  const hashOf = (version: string): string => storageVersionHash(group, version, names.kind);
  return {
    name,
    uid,
    generation,
    requestVersion: served.includes(storage) ? storage : served[0],
    hash: hashOf(storage),
    storedVersions,
    storedHashes: storedVersions.map(hashOf),
    isClean: isClean(crd),
    isOptedOut: annotations?.[TRIGGER_ANNOTATION] === "off",
  };
}

/** What a StorageState remembers of its CRD. */
export type CrdRecord = Pick<CrdFacts, "uid" | "generation" | "storedVersions">;

/** The value of the annotation by which a StorageState remembers its CRD. */
export function formatCrdRecord({ uid, generation, storedVersions }: CrdRecord): string {
  return `${uid}/${generation}/${storedVersions.join(",")}`;
}

/** Reads that annotation; `undefined` where this program did not write it. */
export function parseCrdRecord(value: string | undefined): CrdRecord | undefined {
  const [, uid, generation, storedVersions = ""] = /^([^/]+)\/(\d+)\/([^/]*)$/.exec(value ?? "") ?? [];
  if (uid === undefined) return undefined;
  return { uid, generation: Number(generation), storedVersions: storedVersions.split(",").filter(Boolean) };
}

/** Whether the spec of the CRD is the one that was remembered: it is the same CRD in the same generation. */
export function isSameSpec(record: CrdRecord | undefined, crd: CrdFacts): boolean {
  return record?.uid === crd.uid && record.generation === crd.generation;
}

/**
 * Whether the storage version cannot have gone to another version and back since the CRD was remembered: the generation
 * moves with every change of the spec, and that takes two.
 */
export function hasNotFlipped(record: CrdRecord | undefined, crd: CrdFacts): boolean {
  return record?.uid === crd.uid && (crd.generation === record.generation || crd.generation === record.generation + 1);
}

/**
 * Reads CRDs. One may have a megabyte, and the trigger looks at all of them again and again: so their metadata is
 * listed, and a CRD is read as a whole only where it has changed.
 */
export class CrdReader {
  readonly #client: Client;
  readonly #known = new Map<string, { readonly key: string; readonly facts: CrdFacts }>();

  constructor(client: Client) {
    this.#client = client;
  }

  /** One CRD as it is now; `undefined` where there is none. */
  async find(name: string, signal: AbortSignal): Promise<CrdFacts | undefined> {
    const crd = await this.#client.find<Crd>(`${CRDS}/${encodeURIComponent(name)}`, { signal });
    if (crd === undefined) {
      this.#known.delete(name);
      return undefined;
    }
    const facts = crdFactsOf(crd);
    this.#known.set(name, { key: keyOf(crd), facts });
    return facts;
  }

  /** @returns all CRDs by name, and the resourceVersion of the list, from which a watch misses nothing */
  async all(
    signal: AbortSignal,
  ): Promise<{ readonly crds: ReadonlyMap<string, CrdFacts>; readonly resourceVersion: string }> {
    const pages = new Pages(this.#client, [CRDS], signal);
    const crds = new Map<string, CrdFacts>();
    let resourceVersion = "";
    let token: string | undefined;
    do {
      const { items, metadata } = await pages.list(token);
      resourceVersion ||= metadata.resourceVersion;
      token = metadata.continue === "" ? undefined : metadata.continue;
      for (const item of items) {
        const { name } = item.metadata;
        const known = this.#known.get(name);
        const facts = known?.key === keyOf(item) ? known.facts : await this.find(name, signal);
        if (facts !== undefined) crds.set(name, facts);
      }
    } while (token !== undefined);
    for (const name of [...this.#known.keys()].filter((one) => !crds.has(one))) this.#known.delete(name);
    return { crds, resourceVersion };
  }
}

function keyOf({ metadata }: Pick<Crd, "metadata">): string {
  return `${metadata.uid}/${metadata.resourceVersion}`;
}
