import { type CustomResourceDefinition, isClean, specKeyOf, storedVersionsOf } from "../api/crd.ts";
import { KsvmError } from "../errors.ts";
import { changeCrd } from "../old/freeze/change-crd.ts";
import type { ListedObjects } from "../plan/check-types.ts";
import { listedObjects } from "../plan/listed-objects.ts";
import { readCrd } from "../resources/read-crd.ts";
import type { DoctorContext } from "./doctor-facts.ts";
import { isRestored, restoredVersion, restoredVersionsOf } from "./restored-version.ts";

/** The field manager of what a repair writes to a CRD. Its changes of spec.versions count for the settle time. */
const FIELD_MANAGER = "ksvm-doctor";
/** How long the API server may take to follow a change of the CRD, in milliseconds. */
const FOLLOW_MS = 60_000;
const POLL_MS = 1_000;
/** More versions than that are no CRD's history. */
const MAX_LOST_VERSIONS = 20;

/** What bringing versions back takes. */
export interface BringBackContext extends DoctorContext {
  readonly tell: (text: string) => void;
}

/**
 * Brings back every version that the API server says objects are stored in and the CRD lacks, one after the other: a list that
 * fails names one of them. Each is in storedVersions before the next look, so that no client can drop it again.
 * @returns what listing the objects shows then
 * @throws {KsvmError} RepairStopped where the objects cannot be listed for another reason; as {@link changeCrd}
 */
export async function bringBack(context: BringBackContext, name: string): Promise<ListedObjects> {
  const { clock, signal, tell } = context;
  // What an earlier repair brought back, and did not list.
  await listStored(context, name, restoredVersionsOf);
  const added = new Set<string>();
  let deadline = clock.monotonic() + FOLLOW_MS;
  for (;;) {
    const crd = await readCrd(context, name);
    const listed = await listedObjects(context, crd);
    const lost = listed?.unreadableIn;
    if (lost === undefined) {
      return listable(name, listed);
    }
    const isThere = crd.spec.versions.some((version) => version.name === lost);
    if (clock.monotonic() > deadline || added.size >= MAX_LOST_VERSIONS) {
      const text = `the API server still cannot read objects in ${lost}: ${listed?.problem ?? ""}`;
      throw new KsvmError("RepairStopped", `Cannot repair "${name}": ${text}`);
    }
    if (!isThere && (await addVersion(context, name, lost))) {
      tell(`added ${lost} back to spec.versions, with served: false`);
      added.add(lost);
      deadline = clock.monotonic() + FOLLOW_MS;
    }
    await listStored(context, name, restoredVersionsOf);
    await clock.sleep(POLL_MS, signal);
  }
}

function listable(name: string, listed: ListedObjects | undefined): ListedObjects {
  if (listed === undefined || listed.problem !== undefined) {
    const why = listed?.problem ?? "the CRD serves no version";
    throw new KsvmError(
      "RepairStopped",
      `Cannot repair "${name}": its objects cannot be listed: ${why}; nothing was migrated, and versions that were brought back ` +
        "stay in storedVersions; make that work, and run ksvm doctor --repair again",
    );
  }
  return listed;
}

function addVersion(context: BringBackContext, name: string, version: string): Promise<boolean> {
  const add = ({ spec: { versions } }: CustomResourceDefinition) =>
    versions.some((one) => one.name === version)
      ? undefined
      : { spec: { versions: [...versions, restoredVersion(version)] } };
  return changeCrd(context, name, add, { fieldManager: FIELD_MANAGER });
}

/**
 * Adds versions to storedVersions, and takes none out.
 * @param versionsOf those that objects may be stored in; the CRD has them
 */
export async function listStored(
  context: BringBackContext,
  name: string,
  versionsOf: (crd: CustomResourceDefinition) => readonly string[],
): Promise<void> {
  let missing: readonly string[] = [];
  const complete = (crd: CustomResourceDefinition) => {
    const stored = storedVersionsOf(crd);
    missing = versionsOf(crd).filter((version) => !stored.includes(version));
    return missing.length === 0 ? undefined : { status: { storedVersions: [...stored, ...missing] } };
  };
  if (await changeCrd(context, name, complete, { subresource: "status", fieldManager: FIELD_MANAGER })) {
    context.tell(`added ${missing.join(", ")} to status.storedVersions`);
  }
}

/**
 * Removes the versions that a repair brought back.
 * @param provenFor `uid/generation` of the CRD that a run has proven every object for: what came later may rest on less
 * @throws {KsvmError} RepairStopped where the CRD is another one by now, or storedVersions lists more than the storage version; as
 *   {@link changeCrd}
 */
export async function removeRestored(
  context: BringBackContext,
  name: string,
  provenFor: string | undefined,
): Promise<void> {
  let removed: readonly string[] = [];
  const remove = (crd: CustomResourceDefinition) => {
    removed = restoredVersionsOf(crd);
    if (removed.length === 0) {
      return undefined;
    }
    if (specKeyOf(crd.metadata) !== provenFor || !isClean(crd)) {
      const text = `Cannot remove ${removed.join(", ")} from "${name}": another client changed the CRD since every object was migrated`;
      throw new KsvmError("RepairStopped", `${text}; run ksvm doctor --repair again`);
    }
    return { spec: { versions: crd.spec.versions.filter((version) => !isRestored(version)) } };
  };
  if (await changeCrd(context, name, remove, { fieldManager: FIELD_MANAGER })) {
    context.tell(`removed ${removed.join(", ")} from spec.versions`);
  }
}
