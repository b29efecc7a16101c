import type { V1CustomResourceDefinitionVersion } from "@kubernetes/client-node";
import { objectIn } from "../api/json-fields.ts";
import { epochOf } from "../apiservers/converge.ts";
import { KsvmError } from "../errors.ts";
import { foreignFreeze, freezerOf } from "../freeze/freeze.ts";
import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import { type Crd, CRDS, isClean } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { LEAVING_VERSIONS } from "../migrator/rewrite.ts";
import type { MigrationResult } from "../migrator/types.ts";
import { lostVersions } from "../migrator/crd-state.ts";
import { findCrd, lookAtObjects, objectsOf } from "./inventory.ts";

/** What a repair does, for a user to read before. Each step is done only if the one before was. */
export const REPAIR_STEPS: readonly string[] = [
  "add the versions that the CRD lost to spec.versions, with served: false and every field kept",
  "add them to status.storedVersions, so that no client can drop them again",
  "list the objects, which counts them; another version that they name is brought back too",
  "freeze, rewrite every object in the storage version, prune storedVersions, unfreeze",
  "remove what was added to spec.versions again",
];

/** What a repair takes. */
export interface RepairContext {
  readonly client: Client;
  readonly tell: (text: string) => void;
  /** Migrates one CRD with the engine, which alone prunes, as with `--force`. @throws what the run ended in */
  readonly migrate: (name: string) => Promise<MigrationResult>;
  readonly signal: AbortSignal;
}

/**
 * Makes the objects of one CRD readable again. Each step leaves a state that is no less readable than the one before,
 * and that the next look finds: it can be interrupted anywhere. No Lease is held: a version that is added makes every
 * run of that time begin again, and what is added to storedVersions harms none.
 *
 * @returns whether every object was migrated
 * @throws {KsvmError} ForeignFreeze where another client froze it; RepairStopped; whatever `migrate` throws
 */
export async function repairCrd(context: RepairContext, name: string): Promise<boolean> {
  context.tell(`${await bringBack(context, name)} objects can be listed`);
  const { epoch, outcome } = await context.migrate(name);
  if (outcome !== "migrated") return false;
  for (let looks = 0; ; looks++) {
    const crd = await readCrd(context, name);
    const removed = restoredIn(crd.spec.versions).join(", ");
    if (removed === "") return true;
    // The run has proven every object for one CRD: what came later may rest on less.
    if (looks === MAX_LOOKS || epochOf(crd) !== epoch || !isClean(crd)) {
      const text = `Cannot remove ${removed} from "${name}": another client changed the CRD since every object`;
      throw new KsvmError("RepairStopped", `${text} was migrated; run ksvm doctor --repair again`);
    }
    const spec = { versions: crd.spec.versions.filter((version) => !isRestored(version)) };
    const patch = { spec, metadata: { annotations: { [LEAVING_VERSIONS]: null } } };
    await write(context, crd, "", patch, `removed ${removed} from spec.versions`);
  }
}

async function readCrd({ client, signal }: RepairContext, name: string): Promise<Crd> {
  const crd = await findCrd(client, name, signal);
  if (crd === undefined) throw new KsvmError("ResourceNotFound", `Cannot repair "${name}": it was deleted`);
  return crd;
}

/** The API server may take a minute to follow a change of the CRD. */
const MAX_LOOKS = 60;
const PAUSE_MS = 1_000;

/**
 * Brings back every version that objects are stored in and the CRD lacks: those that storedVersions lists at once,
 * since the API server takes no other change before, then one after the other, since a list that fails names one of
 * them. Each is in storedVersions before the next look, so that no client can drop it again.
 *
 * @returns how many objects can be listed then
 * @throws {KsvmError} RepairStopped where they cannot be listed
 */
async function bringBack(context: RepairContext, name: string): Promise<number> {
  const { client, signal } = context;
  const unreadable = new Set<string>();
  let problem = "";
  for (let looks = 0; looks < MAX_LOOKS; looks++) {
    if (looks > 0) await client.clock.sleep(PAUSE_MS, signal);
    const crd = await readCrd(context, name);
    if (freezerOf(crd.metadata) === "other") throw foreignFreeze(name);
    const { versions } = crd.spec;
    const lost = [...new Set([...lostVersions(crd), ...unreadable])];
    const missing = lost.filter((version) => versions.every((one) => one.name !== version));
    if (missing.length > 0) {
      const all = [...versions, ...missing.map(restoredVersion)];
      const annotations = { [LEAVING_VERSIONS]: restoredIn(all).join(",") };
      const text = `added ${missing.join(", ")} back to spec.versions, with served: false`;
      await write(context, crd, "", { spec: { versions: all }, metadata: { annotations } }, text);
      continue;
    }
    const { storedVersions = [] } = crd.status ?? {};
    const unlisted = restoredIn(versions).filter((version) => !storedVersions.includes(version));
    if (unlisted.length > 0) {
      const status = { storedVersions: [...storedVersions, ...unlisted] };
      await write(context, crd, "/status", { status }, `added ${unlisted.join(", ")} to status.storedVersions`);
      continue;
    }
    const found = await lookAtObjects(client, objectsOf(crd), signal, () => false);
    if (found.count !== undefined) return found.count;
    problem = found.problem ?? "the CRD serves no version";
    if (found.unreadableIn === undefined) break;
    unreadable.add(found.unreadableIn);
  }
  throw new KsvmError(
    "RepairStopped",
    `Cannot repair "${name}": its objects cannot be listed: ${problem}; nothing was migrated, and versions that were ` +
      "brought back stay in storedVersions; make that work, and run ksvm doctor --repair again",
  );
}

/** The field manager of what a repair writes to a CRD. Its changes of spec.versions count for the settle time. */
const FIELD_MANAGER = "ksvm-doctor";

/** Writes a CRD as it was read, and tells it. Where another client was quicker, the next look shows what is left. */
async function write(
  { client, signal, tell }: RepairContext,
  { metadata: { name, resourceVersion, uid } }: Crd,
  subresource: "" | "/status",
  patch: { readonly metadata?: object; readonly spec?: object; readonly status?: object },
  text: string,
): Promise<void> {
  const body = { ...patch, metadata: { ...patch.metadata, uid, resourceVersion } };
  const options = { fieldManager: FIELD_MANAGER, signal };
  try {
    await retry(client, () => client.patch(`${CRDS}/${name}${subresource}`, body, options), { signal });
    tell(text);
  } catch (error) {
    if (whose(error) !== "conflict") throw error;
  }
}

/** In the entry itself, so that it comes and goes with it, and a version that a vendor brings back is none of ours. */
const DESCRIPTION =
  "Brought back by ksvm doctor --repair until no object is stored in this version; it removes it then.";
const PRESERVE = "x-kubernetes-preserve-unknown-fields";

/** The entry of a version that the CRD lost: no client can use it, and the API server keeps every field. */
export function restoredVersion(name: string): V1CustomResourceDefinitionVersion {
  const openAPIV3Schema = { type: "object", description: DESCRIPTION, [PRESERVE]: true };
  return { name, served: false, storage: false, schema: { openAPIV3Schema } };
}

/** Whether an entry is one of {@link restoredVersion}, and as it was written. */
export function isRestored({ schema, served, storage }: V1CustomResourceDefinitionVersion): boolean {
  const { description, [PRESERVE]: preserves } = objectIn(schema?.openAPIV3Schema) ?? {};
  return !served && !storage && description === DESCRIPTION && preserves === true;
}

function restoredIn(versions: readonly V1CustomResourceDefinitionVersion[]): readonly string[] {
  return versions.filter(isRestored).map(({ name }) => name);
}
