import { MIGRATING } from "../../src/freeze/rule.ts";
import { decodeStored } from "../control-plane/decode-stored.ts";
import type { ListBreach, PersistedList } from "./persisted-list.ts";

/** One write as etcd tells of it. */
export interface StoredChange {
  readonly key: string;
  readonly modRevision: number;
  /** Missing where the key was deleted. */
  readonly value?: Buffer;
}

/** Where the keys of one CRD, of its objects and of its StorageState lie. */
export interface StoredKeys {
  readonly crdKey: string;
  readonly objectPrefix: string;
  readonly stateKey: string;
}

/** A moment at which an object could not have been read any more, if a version had been removed from the CRD because of it. */
export interface Breach {
  readonly revision: number;
  readonly version: string;
  readonly objects: number;
  /** One of them. */
  readonly example: string;
  readonly storedVersions: readonly string[];
}

interface CrdFacts {
  readonly storedVersions: readonly string[];
  readonly storageVersion: string;
  readonly isFrozen: boolean;
}

interface StoredCrd {
  readonly metadata: {
    readonly uid: string;
    readonly generation: number;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly spec: { readonly versions?: readonly { readonly name: string; readonly storage: boolean }[] };
  readonly status?: { readonly storedVersions?: readonly string[] };
}

/**
 * What etcd holds of one CRD, followed write by write, and rule S1 over it: every version that an object is stored in is
 * listed in the CRD's `status.storedVersions`.
 */
export class StoredState {
  readonly #keys: StoredKeys;
  readonly #list: PersistedList | undefined;
  readonly #versions = new Map<string, string>();
  readonly #byVersion = new Map<string, Set<string>>();
  #crd: CrdFacts | undefined;
  #storageChangesWhileFrozen = 0;
  #sameVersionWrites = 0;
  #prunes = 0;

  /** @param list told of every write of the CRD and of its StorageState */
  constructor(keys: StoredKeys, list?: PersistedList) {
    this.#keys = keys;
    this.#list = list;
  }

  /** Changes of the storage version in one write on top of a CRD that was frozen. */
  get storageChangesWhileFrozen(): number {
    return this.#storageChangesWhileFrozen;
  }

  /** Writes of objects to the version that they were in already: by clients, or redundant. */
  get sameVersionWrites(): number {
    return this.#sameVersionWrites;
  }

  /** Writes that took a version out of storedVersions. */
  get prunes(): number {
    return this.#prunes;
  }

  /** How many objects are stored in each version. */
  get counts(): Record<string, number> {
    const sizes = [...this.#byVersion].map(([version, keys]) => [version, keys.size] as const);
    return Object.fromEntries(sizes.filter(([, size]) => size > 0));
  }

  /** Takes in one write. */
  apply(change: StoredChange): void {
    if (change.key === this.#keys.crdKey) {
      this.#applyCrd(change.value);
    } else if (change.key.startsWith(this.#keys.objectPrefix)) {
      this.#applyObject(change);
    } else if (change.key === this.#keys.stateKey) {
      this.#list?.applyState(change.value);
    }
  }

  /** Whether a write is of what is followed. */
  isOurs({ key }: StoredChange): boolean {
    const { crdKey, objectPrefix, stateKey } = this.#keys;
    return key === crdKey || key.startsWith(objectPrefix) || (this.#list !== undefined && key === stateKey);
  }

  isCrd({ key }: StoredChange): boolean {
    return key === this.#keys.crdKey;
  }

  /** Forgets all objects and the CRD, for a reader that missed some writes and begins again. */
  reset(): void {
    this.#versions.clear();
    this.#byVersion.clear();
    this.#crd = undefined;
  }

  /** Where S1 is broken now. Without a CRD there is nothing that could list a version. */
  breach(revision: number): Breach | undefined {
    const { storedVersions } = this.#crd ?? {};
    if (storedVersions === undefined) return undefined;
    for (const [version, keys] of this.#byVersion) {
      const [example] = keys;
      if (example !== undefined && !storedVersions.includes(version)) {
        return { revision, version, objects: keys.size, example, storedVersions };
      }
    }
    return undefined;
  }

  /** Where the StorageState denies what is stored, and whether it is only behind its CRD. */
  listBreach(revision: number): { readonly isAhead: boolean; readonly breach: ListBreach } | undefined {
    const list = this.#list;
    if (list === undefined || this.#crd === undefined) return undefined;
    const found = [...this.#byVersion].flatMap(([version, [example]]) => {
      const coverage = example === undefined ? "listed" : list.coverageOf(version);
      return coverage === "listed"
        ? []
        : [{ isAhead: coverage === "ahead", breach: list.breach(revision, version, example ?? "") }];
    });
    return found.find(({ isAhead }) => !isAhead) ?? found[0];
  }

  #applyCrd(value: Buffer | undefined): void {
    const before = this.#crd;
    const crd = value && (decodeStored(value) as StoredCrd);
    this.#crd = crd && factsOf(crd);
    if (crd !== undefined && this.#crd !== undefined) {
      const { uid, generation } = crd.metadata;
      this.#list?.applyCrd({ uid, generation, storageVersion: this.#crd.storageVersion });
    }
    if (before === undefined || this.#crd === undefined) return;
    const { storageVersion, storedVersions } = this.#crd;
    this.#storageChangesWhileFrozen += before.isFrozen && before.storageVersion !== storageVersion ? 1 : 0;
    this.#prunes += before.storedVersions.some((version) => !storedVersions.includes(version)) ? 1 : 0;
  }

  #applyObject({ key, value }: StoredChange): void {
    const before = this.#versions.get(key);
    if (before !== undefined) this.#byVersion.get(before)?.delete(key);
    if (value === undefined) {
      this.#versions.delete(key);
      return;
    }
    const version = versionOf(value);
    this.#sameVersionWrites += before === version ? 1 : 0;
    this.#versions.set(key, version);
    const keys = this.#byVersion.get(version) ?? new Set();
    this.#byVersion.set(version, keys.add(key));
  }
}

function versionOf(value: Buffer): string {
  const { apiVersion } = decodeStored(value) as { apiVersion: string };
  return apiVersion.slice(apiVersion.indexOf("/") + 1);
}

function factsOf({ metadata, spec, status }: StoredCrd): CrdFacts {
  return {
    storedVersions: status?.storedVersions ?? [],
    storageVersion: spec.versions?.find(({ storage }) => storage)?.name ?? "",
    isFrozen: metadata.annotations?.[MIGRATING] !== undefined,
  };
}

/** A breach in words. */
export function describeBreach({ revision, version, objects, example, storedVersions }: Breach): string {
  return `at revision ${revision} ${objects} objects are stored as "${version}", such as "${example}", and storedVersions is [${storedVersions.join(",")}]`;
}
