import { createHash } from "node:crypto";
import {
  type CustomResourceDefinition,
  isClean,
  requestVersionOf,
  servedVersionsOf,
  storageVersionHashOf,
  storageVersionOf,
  storedVersionsOf,
} from "../api/crd.ts";
import { TRIGGER_ANNOTATION } from "../api/names.ts";
import { MAX_ANNOTATION_LENGTH } from "../migrations/migration-fields.ts";
import { crdProjection } from "../resources/crd-projection.ts";

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
  /** Whether discovery shows that hash: it does not where the storage version is not served. */
  readonly isStorageServed: boolean;
  readonly storedVersions: readonly string[];
  /** The hashes of storedVersions, in their order. */
  readonly storedHashes: readonly string[];
  /** Whether storedVersions is exactly the storage version. */
  readonly isClean: boolean;
  /** Whether its owner turned the trigger off by annotation. */
  readonly isOptedOut: boolean;
}

/** What {@link crdFactsOf} reads of a CRD. */
export const CRD_FIELDS = crdProjection({
  name: "all",
  uid: "all",
  resourceVersion: "all",
  generation: "all",
  annotations: { fields: { [TRIGGER_ANNOTATION]: "all" } },
});

/** What a StorageState remembers of its CRD. */
export interface CrdRecord {
  readonly uid: string;
  readonly generation: number;
  /** A digest of them where they are too many. */
  readonly storedVersions: readonly string[];
}

/**
 * Reads what matters of a CRD.
 * @throws {TypeError} where not exactly one version is marked as storage, which the API server never stores.
 */
export function crdFactsOf(crd: CustomResourceDefinition): CrdFacts {
  const { group, names } = crd.spec;
  const storageVersion = storageVersionOf(crd);
  const hashOf = (version: string): string => storageVersionHashOf(group, version, names.kind);
  const storedVersions = storedVersionsOf(crd);
  return {
    name: crd.metadata.name,
    uid: crd.metadata.uid,
    generation: crd.metadata.generation ?? 0,
    requestVersion: requestVersionOf(crd),
    hash: hashOf(storageVersion),
    isStorageServed: servedVersionsOf(crd).includes(storageVersion),
    storedVersions: [...storedVersions],
    storedHashes: storedVersions.map(hashOf),
    isClean: isClean(crd),
    isOptedOut: crd.metadata.annotations?.[TRIGGER_ANNOTATION] === "off",
  };
}

/** Characters of the record: those of some hundred versions. All annotations of an object together have a quarter of a megabyte. */
export const MAX_RECORD_LENGTH = 16_384;

/** What stands for more versions than a record may have. No version is named so: a name has no colon. */
const DIGEST = "sha256:";

function digestOf(text: string): string {
  return `${DIGEST}${createHash("sha256").update(text).digest("hex")}`;
}

function recordedDigestOf(storedVersions: readonly string[]): string {
  return digestOf(storedVersions.toSorted().join(","));
}

/**
 * The value of the annotation by which a StorageState remembers its CRD. A digest stands for more versions than it may have:
 * without it each look would take them for versions that no look has seen.
 */
export function formatCrdRecord({ uid, generation, storedVersions }: CrdRecord): string {
  const record = `${uid}/${generation}/`;
  const versions = storedVersions.join(",");
  return record + (record.length + versions.length > MAX_RECORD_LENGTH ? recordedDigestOf(storedVersions) : versions);
}

/** Whether all these storedVersions are in the record; by its digest, whether they are the ones that are in it. */
export function isRecorded(record: CrdRecord | undefined, storedVersions: readonly string[]): boolean {
  const before = record?.storedVersions ?? [];
  return before[0]?.startsWith(DIGEST) === true
    ? before[0] === recordedDigestOf(storedVersions)
    : storedVersions.every((version) => before.includes(version));
}

/** Reads that annotation; `undefined` where this program did not write it. */
export function parseCrdRecord(value: string | undefined): CrdRecord | undefined {
  if (value === undefined || value.length > MAX_RECORD_LENGTH) {
    return undefined;
  }
  const match = /^([^/]+)\/(\d+)\/([^/]*)$/.exec(value);
  const [, uid, generation, storedVersions] = match ?? [];
  return uid === undefined
    ? undefined
    : { uid, generation: Number(generation), storedVersions: (storedVersions ?? "").split(",").filter(Boolean) };
}

/**
 * What a migration remembers of the storedVersions that it was created for: the versions, or a digest of them where no
 * annotation that long would be read back.
 */
export function storedVersionsMarkOf({ storedVersions }: Pick<CrdFacts, "storedVersions">): string {
  const mark = storedVersions.join(",");
  return mark.length <= MAX_ANNOTATION_LENGTH ? mark : digestOf(mark);
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
