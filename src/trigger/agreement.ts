import type { CrdFacts } from "./crd-facts.ts";
import {
  disagreementOfStorageVersion,
  hashOfEncoding,
  type StorageVersionFacts,
} from "../old/apiservers/storage-version-facts.ts";

/** What is known of how one resource is encoded. */
export interface Evidence {
  /** What each API server shows in discovery; empty where it shows none. */
  readonly hashes: readonly string[];
  /** Whether each of them serves the resource at all. */
  readonly isServed: readonly boolean[];
  readonly kind: string;
  readonly crd: CrdFacts | undefined;
  readonly storageVersion: StorageVersionFacts | undefined;
  /** Names of the live identity Leases; missing where they cannot be read. */
  readonly identities?: readonly string[] | undefined;
}

/** Whether all API servers encode a resource alike. */
export interface Agreement {
  /** Every hash that one of them may write with, each once. */
  readonly hashes: readonly string[];
  readonly agreed?: string;
  /** Why there is none. */
  readonly disagreement?: string;
}

/** Whether all evidence says the same. */
export function agreementOf(evidence: Evidence): Agreement {
  const { crd, kind, storageVersion } = evidence;
  const encodings = (storageVersion?.entries ?? []).map(({ encodingVersion }) => hashOfEncoding(encodingVersion, kind));
  const shown = [...evidence.hashes, ...encodings].filter((hash) => hash !== "");
  const hashes = [...new Set([...shown, ...(crd === undefined ? [] : [crd.hash])])].toSorted();
  const disagreement =
    disagreementOfServers(evidence, hashes) ??
    (storageVersion === undefined ? undefined : disagreementOfStorageVersion(storageVersion, evidence.identities));
  const [agreed] = hashes;
  return disagreement === undefined && agreed !== undefined
    ? { hashes, agreed }
    : { hashes, disagreement: disagreement ?? "no API server tells how it is stored" };
}

function disagreementOfServers({ crd, hashes, isServed }: Evidence, all: readonly string[]): string | undefined {
  if (isServed.includes(false)) {
    return "not every API server serves it";
  }
  const expectsHash = crd?.isStorageServed ?? true;
  if (hashes.some((hash) => (hash !== "") !== expectsHash)) {
    return expectsHash ? "not every API server shows a storageVersionHash" : "an API server has not followed its CRD";
  }
  if (all.length <= 1) {
    return undefined;
  }
  const isCrdBehind = crd !== undefined && new Set(hashes).size === 1;
  return isCrdBehind
    ? `discovery shows "${hashes[0] ?? ""}", and "${crd.hash}" is its CRD's storage version`
    : `API servers encode it as ${all.map((hash) => `"${hash}"`).join(" and ")}`;
}
