import type { CustomResourceDefinition } from "./crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "./names.ts";

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

/** Whether two owners are the same attempt of the same run. */
export function isSameOwner(a: FreezeOwner, b: FreezeOwner): boolean {
  return formatOwner(a) === formatOwner(b);
}

/** Whether the annotation that freezes the storage version is there, whatever its value. */
export function hasFreezeAnnotation(crd: CustomResourceDefinition): boolean {
  return Object.hasOwn(crd.metadata.annotations ?? {}, MIGRATING_ANNOTATION);
}

/** Who froze the CRD, as far as this program wrote it. */
export function freezeOwnerOf(crd: CustomResourceDefinition): FreezeOwner | undefined {
  return parseOwner(crd.metadata.annotations?.[OWNER_ANNOTATION]);
}
