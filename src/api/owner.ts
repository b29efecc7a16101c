import type { CustomResourceDefinition } from "./crd.ts";
import type { ManagedFieldsEntry, ObjectMeta } from "./meta.ts";
import { CRD_FIELD_MANAGER, MIGRATING_ANNOTATION, MIGRATING_VALUE, OWNER_ANNOTATION } from "./names.ts";

/** Who froze a CRD: the Lease that says whether its run is alive, and which run it is. */
export interface FreezeOwner {
  /** `namespace/name` of the Lease that the run holds. */
  readonly lease: string;
  /** Unique to one run: host name and a random part. */
  readonly identity: string;
  /** When the run began, RFC 3339. */
  readonly since: string;
}

/** The value of the owner annotation. */
export function formatOwner(owner: FreezeOwner): string {
  return JSON.stringify({ lease: owner.lease, identity: owner.identity, since: owner.since });
}

/** Reads a value of the owner annotation; `undefined` where this program did not write it. */
export function parseOwner(value: string | undefined): FreezeOwner | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(value ?? "");
  } catch {
    return undefined;
  }
  return isOwner(parsed) ? parsed : undefined;
}

function isOwner(value: unknown): value is FreezeOwner {
  const fields = value as Partial<Record<keyof FreezeOwner, unknown>> | null;
  return (
    typeof fields === "object" &&
    typeof fields?.lease === "string" &&
    typeof fields.identity === "string" &&
    typeof fields.since === "string"
  );
}

/** Whether two owners are the same run, whichever of its attempts. */
export function isSameRun(a: FreezeOwner, b: FreezeOwner): boolean {
  return a.lease === b.lease && a.identity === b.identity;
}

/** The identity of a run of a controller: of its own for every run, so that one never takes another's Lease for its own. */
export function identityOfRun(replica: string, migrationUid: string, run: number): string {
  return `${replica}/${migrationUid}/${run}`;
}

const IDENTITY_OF_RUN = /\/(?<migration>[^/]+)\/\d+$/;

/** Whether two owners are the same run, or runs of a controller for the same migration, which tries again by itself. */
export function isSameMigration(a: FreezeOwner, b: FreezeOwner): boolean {
  const [one, other] = [a, b].map(({ identity }) => IDENTITY_OF_RUN.exec(identity)?.groups?.["migration"]);
  return isSameRun(a, b) || (a.lease === b.lease && one !== undefined && one === other);
}

/** Whether the annotation that freezes the storage version is there, whatever its value. */
export function hasFreezeAnnotation(crd: CustomResourceDefinition): boolean {
  return Object.hasOwn(crd.metadata.annotations ?? {}, MIGRATING_ANNOTATION);
}

/** Who froze a CRD: a run of this program, or another client, by its field manager where that is known. */
export type Freezer =
  | { readonly kind: "run"; readonly owner: FreezeOwner }
  | { readonly kind: "other"; readonly manager: string | undefined };

/** A field manager that the API server puts in the place of the oldest ones, so that it may stand for ours. */
const MERGED_MANAGERS = "ancient-changes";

/**
 * Who froze a CRD; `undefined` where it is not frozen. The owner annotation alone does not tell: where a user lifts a
 * freeze with kubectl, it stays behind, and it would claim the freeze that the user adds later. The API server notes
 * which client wrote the migrating annotation.
 */
export function freezerOf(metadata: Pick<ObjectMeta, "annotations" | "managedFields">): Freezer | undefined {
  const { annotations = {}, managedFields = [] } = metadata;
  const value = annotations[MIGRATING_ANNOTATION];
  if (value === undefined) {
    return undefined;
  }
  const owner = parseOwner(annotations[OWNER_ANNOTATION]);
  const managers = managedFields.filter(ownsMigrating).map(({ manager }) => manager);
  const isOurs = managers.some((manager) => manager === CRD_FIELD_MANAGER || manager === MERGED_MANAGERS);
  // Another client may have emptied managedFields; then the value has to do.
  const mayBeOurs = managers.length === 0 && value === MIGRATING_VALUE;
  return owner !== undefined && (isOurs || mayBeOurs)
    ? { kind: "run", owner }
    : { kind: "other", manager: managers[0] };
}

function ownsMigrating({ fieldsV1 }: ManagedFieldsEntry): boolean {
  const fields = fieldsV1 as { "f:metadata"?: { "f:annotations"?: Readonly<Record<string, unknown>> } } | undefined;
  return Object.hasOwn(fields?.["f:metadata"]?.["f:annotations"] ?? {}, `f:${MIGRATING_ANNOTATION}`);
}

/** The run of this program that froze the CRD; `undefined` where it is not frozen, or another client froze it. */
export function freezeOwnerOf({ metadata }: Pick<CustomResourceDefinition, "metadata">): FreezeOwner | undefined {
  const freezer = freezerOf(metadata);
  return freezer?.kind === "run" ? freezer.owner : undefined;
}

/** The owner annotation by itself, which may have outlived the freeze. */
export function ownerAnnotationOf({ metadata }: Pick<CustomResourceDefinition, "metadata">): FreezeOwner | undefined {
  return parseOwner(metadata.annotations?.[OWNER_ANNOTATION]);
}
