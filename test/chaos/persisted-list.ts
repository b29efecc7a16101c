import { UNKNOWN_HASH } from "../../src/api/migration.ts";
import { stateFactsOf } from "../../src/trigger/state-facts.ts";
import type { StorageState } from "../../src/api/migration.ts";
import { decodeStored } from "../control-plane/decode-stored.ts";

/** The CRD in one generation. */
export interface CrdGeneration {
  readonly uid: string;
  readonly generation: number;
  readonly storageVersion: string;
}

/** A moment at which a StorageState denied that objects are stored in a version that they are stored in. */
export interface ListBreach {
  readonly revision: number;
  readonly version: string;
  /** One of the objects. */
  readonly example: string;
  readonly persisted: readonly string[];
  /** Of the CRD that the list rests on, as the StorageState says. */
  readonly generation: number | undefined;
}

/** How a version is told of in a StorageState. */
export type Coverage =
  | "listed"
  /** Its CRD got that storage version after the look that the list rests on: the trigger has yet to look again. */
  | "ahead"
  | "missing";

/**
 * What the StorageState of a CRD says of how objects are stored, followed write by write. Rule: its
 * `persistedStorageVersionHashes` has the hash of every version that an object is stored in, or `Unknown`. A CRD and its
 * StorageState cannot be written at once, so a version is excused which its CRD had in a later generation than the one that
 * the StorageState names, until the StorageState names that one as well.
 */
export class PersistedList {
  readonly #hashes: ReadonlyMap<string, string>;
  readonly #generations: CrdGeneration[] = [];
  #state: ReturnType<typeof stateFactsOf> | undefined;
  #completions = 0;

  /** @param hashes the storageVersionHash of each version, as discovery shows it */
  constructor(hashes: ReadonlyMap<string, string>) {
    this.#hashes = hashes;
  }

  /** How often the list became one known hash alone. */
  get completions(): number {
    return this.#completions;
  }

  /** Whether there is a StorageState that says anything. */
  get isThere(): boolean {
    return this.#state !== undefined && this.#state.current !== "";
  }

  /** Takes in a write of the CRD. */
  applyCrd(crd: CrdGeneration): void {
    this.#generations.push(crd);
  }

  /** Takes in a write of the StorageState. */
  applyState(value: Buffer | undefined): void {
    const wasComplete = isComplete(this.#state);
    this.#state = value && stateFactsOf(decodeStored(value) as StorageState);
    this.#completions += !wasComplete && isComplete(this.#state) ? 1 : 0;
  }

  coverageOf(version: string): Coverage {
    if (this.#state === undefined || !this.isThere) return "listed";
    const { persisted, crd } = this.#state;
    if ([UNKNOWN_HASH, this.#hashes.get(version) ?? ""].some((hash) => persisted.includes(hash))) return "listed";
    const isLater = ({ uid, generation, storageVersion }: CrdGeneration): boolean =>
      crd !== undefined && uid === crd.uid && generation > crd.generation && storageVersion === version;
    return this.#generations.some(isLater) ? "ahead" : "missing";
  }

  breach(revision: number, version: string, example: string): ListBreach {
    const { persisted = [], crd } = this.#state ?? {};
    return { revision, version, example, persisted, generation: crd?.generation };
  }
}

function isComplete(state: ReturnType<typeof stateFactsOf> | undefined): boolean {
  return state?.persisted.length === 1 && !state.persisted.includes(UNKNOWN_HASH);
}

/** A breach in words. */
export function describeListBreach({ revision, version, example, persisted, generation }: ListBreach): string {
  return (
    `at revision ${revision} an object is stored as "${version}", such as "${example}", and ` +
    `persistedStorageVersionHashes is [${persisted.join(",")}] by generation ${generation ?? "none"} of its CRD`
  );
}
