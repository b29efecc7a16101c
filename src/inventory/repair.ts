import type { V1CustomResourceDefinitionVersion } from "@kubernetes/client-node";
import { objectIn } from "../api/json-fields.ts";
import { epochOf } from "../apiservers/converge.ts";
import { named } from "../cut-text.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { foreignFreeze, freezerOf } from "../freeze/freeze.ts";
import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import { type Crd, CRDS, isClean, storageVersion } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { LEAVING_VERSIONS } from "../migrator/rewrite.ts";
import type { MigrationResult } from "../migrator/types.ts";
import { lostVersions } from "../migrator/crd-state.ts";
import { findCrd, lookAtObjects, objectsOf } from "./inventory.ts";
import { lossText, readLosses } from "./losses.ts";

/** What a repair does, for a user to read before. Each step is done only if the one before was. */
export const REPAIR_STEPS: readonly string[] = [
  "add the versions that the CRD lost to spec.versions, served and with every field kept",
  "add them to status.storedVersions, so that no client can drop them again",
  "list the objects; where the API server refuses and names another lost version, bring that back too",
  "read the objects in the versions that came back; stop if the storage version lacks a field of theirs",
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
    if (looks > 0) await context.client.clock.sleep(PAUSE_MS, context.signal);
    const crd = await readCrd(context, name);
    const removed = restoredIn(crd.spec.versions).join(", ");
    if (removed === "") return true;
    // The run has proven every object for one CRD: what came later may rest on less.
    if (looks === MAX_LOOKS || epochOf(crd) !== epoch || !isClean(crd)) {
      const text = `Cannot remove ${removed} from "${name}": another client changed the CRD or its storedVersions after`;
      throw new KsvmError("RepairStopped", `${text} the migration; run ksvm doctor --repair again`);
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
 * @throws {KsvmError} RepairStopped where they cannot be listed, or rewritten without a loss
 */
async function bringBack(context: RepairContext, name: string): Promise<number> {
  const { client, signal } = context;
  const unreadable = new Set<string>();
  let [problem, help] = ["other clients kept writing the CRD", "end that"];
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
      const text = `added ${missing.join(", ")} back to spec.versions`;
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
    if (found.count === undefined) {
      problem = `its objects cannot be listed: ${found.problem ?? "the CRD serves no version"}`;
      help = "make that work";
      if (found.unreadableIn === undefined) break;
      unreadable.add(found.unreadableIn);
      continue;
    }
    try {
      // These versions show every field. Of what a webhook converts, nothing is known.
      const shown = { ...crd, spec: { ...crd.spec, versions: versions.filter(isRestored) } };
      const target = storageVersion(crd);
      const losses = (await readLosses(client, shown, { target, versions }, 0, signal)) ?? [];
      if (losses.length === 0) return found.count;
      problem = `the schema of ${target} lacks ${named(losses.map(lossText))}, which the rewrite would drop`;
      const names = restoredIn(versions).join(", ");
      help = `have it describe them, or remove them from the objects, which can be read and written in ${names}`;
      break;
    } catch (error) {
      // The API server serves what came back a moment later.
      if (whose(error) !== "gone") throw error;
      problem = messageOf(error);
    }
  }
  throw new KsvmError(
    "RepairStopped",
    `Cannot repair "${name}": ${problem}; nothing was migrated, and what came back stays; ${help}, and run it again`,
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
const DESCRIPTION = "ksvm doctor --repair brought this version back, and removes it once no object is stored in it.";
const PRESERVE = "x-kubernetes-preserve-unknown-fields";

/** The entry of a version that the CRD lost. It is served, so that its objects can be read with every field. */
export function restoredVersion(name: string): V1CustomResourceDefinitionVersion {
  const openAPIV3Schema = { type: "object", description: DESCRIPTION, [PRESERVE]: true };
  return { name, served: true, storage: false, schema: { openAPIV3Schema } };
}

/** Whether an entry is one of {@link restoredVersion}. */
export function isRestored({ schema, storage }: V1CustomResourceDefinitionVersion): boolean {
  const { description, [PRESERVE]: preserves } = objectIn(schema?.openAPIV3Schema) ?? {};
  return !storage && description === DESCRIPTION && preserves === true;
}

function restoredIn(versions: readonly V1CustomResourceDefinitionVersion[]): readonly string[] {
  return versions.filter(isRestored).map(({ name }) => name);
}
