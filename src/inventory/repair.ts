import { epochOf } from "../apiservers/converge.ts";
import { KsvmError } from "../errors.ts";
import { changeCrd } from "../freeze/by-hand.ts";
import { foreignFreeze, freezerOf } from "../freeze/freeze.ts";
import { conditionsWithoutDoubt, failedPruneOf } from "../in-tree/prune-doubt.ts";
import type { Client } from "../kube/client.ts";
import { isForbidden, whose } from "../kube/errors.ts";
import { type Crd, isClean } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { deleteInTree, inTreeMigrations } from "../migrator/in-tree.ts";
import { LEAVING_VERSIONS } from "../migrator/rewrite.ts";
import type { MigrationResult } from "../migrator/types.ts";
import { lostVersions } from "./crd-state.ts";
import { type Finding, type FindingKind, isRestored, restoredVersion } from "./doctor.ts";
import { findCrd, lookAtObjects, objectsOf } from "./inventory.ts";

/** What a repair of one CRD would do. Field names are those of `ksvm doctor --repair -o json`. */
export interface RepairPlan {
  readonly name: string;
  /** In this order; each is done only if the one before was. */
  readonly steps: readonly string[];
}

/** What no other command settles. Whatever else is found has a command of its own. */
const REPAIRED: ReadonlySet<FindingKind> = new Set([
  "blocked-crd",
  "unreadable-objects",
  "unproven-prune",
  "unfinished-repair",
]);

/** What a repair would do about findings, CRD by CRD. */
export function repairPlans(findings: readonly Finding[]): readonly RepairPlan[] {
  const repaired = findings.filter(({ finding, severity }) => REPAIRED.has(finding) && severity === "data");
  const names = [...new Set(repaired.map(({ object }) => object))];
  return names.map((name) => ({ name, steps: stepsOf(repaired.filter(({ object }) => object === name)) }));
}

function stepsOf(findings: readonly Finding[]): readonly string[] {
  const has = (...kinds: readonly FindingKind[]): boolean => findings.some(({ finding }) => kinds.includes(finding));
  const versions = [...new Set(findings.flatMap((finding) => finding.versions ?? []))].join(", ");
  const isLost = has("unreadable-objects", "blocked-crd");
  const steps: readonly (readonly [isTaken: boolean, step: string])[] = [
    [isLost, `add ${versions} back to spec.versions, with served: false and every field kept`],
    [true, `add ${versions} to status.storedVersions, where it is not`],
    [isLost, "list the objects, which counts them; another version that they name is brought back too"],
    [true, "freeze, rewrite every object in the storage version, with --force, prune storedVersions, unfreeze"],
    [isLost || has("unfinished-repair"), "remove what was added to spec.versions again"],
    [
      has("unproven-prune"),
      "delete the migrations of Kubernetes' own migrator that failed, and the condition StorageMigrating that one left",
    ],
  ];
  return steps.filter(([isTaken]) => isTaken).map(([, step]) => step);
}

/** What a repair takes. */
export interface RepairContext {
  readonly client: Client;
  readonly tell: (text: string) => void;
  /** Migrates one CRD with the engine, which alone prunes, as with `--force`. @throws what the run ended in */
  readonly migrate: (name: string) => Promise<MigrationResult>;
  readonly signal: AbortSignal;
}

/**
 * Repairs what was found on one CRD. Each step leaves a state that is no less readable than the one before, and that
 * the next look finds: it can be interrupted anywhere. No Lease is held: a version that is added makes every run of
 * that time begin again, and what is added to storedVersions harms none.
 *
 * @returns whether every object was migrated
 * @throws {KsvmError} ForeignFreeze where another client froze it; RepairStopped; whatever `migrate` throws
 */
export async function repairCrd(context: RepairContext, name: string, findings: readonly Finding[]): Promise<boolean> {
  const { client, signal, tell } = context;
  const isUnproven = findings.some(({ finding, object }) => object === name && finding === "unproven-prune");
  const inTree = (await inTreeMigrations(client, signal)) ?? [];
  const crd = await readCrd(context, name);
  if (freezerOf(crd.metadata) === "other") throw foreignFreeze(name);
  // Those that fail later did so beside the run below, and have pruned nothing that it did not prove.
  const failed = isUnproven ? failedPruneOf(crd, inTree).failed : [];
  const count = await bringBack(context, name);
  if (isUnproven) await listStored(context, name, (now) => failedPruneOf(now, inTree).versions);
  tell(`${count} objects can be listed`);
  const { epoch, outcome } = await context.migrate(name);
  if (outcome !== "migrated") return false;
  // In this order: what was proven holds for the spec as it is until versions leave it.
  if (isUnproven) {
    await change(context, name, "/status", (now) => {
      const conditions = epochOf(now) === epoch && isClean(now) ? conditionsWithoutDoubt(now) : undefined;
      return conditions && { status: { conditions } };
    });
  }
  await removeRestored(context, name, epoch);
  for (const migration of failed) {
    const what = `failed migration "${migration.metadata.name}"`;
    try {
      await retry(client, () => deleteInTree(client, migration, signal), { signal });
      tell(`deleted the ${what}`);
    } catch (error) {
      // One that was written since is no longer the one that failed.
      if (!isForbidden(error) && whose(error) !== "conflict") throw error;
      tell(`left the ${what}: delete it`);
    }
  }
  return true;
}

async function readCrd({ client, signal }: RepairContext, name: string): Promise<Crd> {
  const crd = await findCrd(client, name, signal);
  if (crd === undefined) throw new KsvmError("ResourceNotFound", `Cannot repair "${name}": it was deleted`);
  return crd;
}

/** How long the API server may take to follow a change of the CRD, in milliseconds. */
const FOLLOW_MS = 60_000;
const POLL_MS = 1_000;
/** More versions than that are no CRD's history. */
const MAX_LOST_VERSIONS = 20;

/**
 * Brings back every version that objects are stored in and the CRD lacks: those that storedVersions lists at once,
 * since the API server takes no other change before, then one after the other, since a list that fails names one of
 * them. Each is in storedVersions before the next look, so that no client can drop it again.
 *
 * @returns how many objects can be listed then
 * @throws {KsvmError} RepairStopped where the objects cannot be listed for another reason
 */
async function bringBack(context: RepairContext, name: string): Promise<number> {
  const { client, signal, tell } = context;
  const { clock } = client;
  let unreadableIn: string | undefined;
  let added = 0;
  for (let deadline = clock.monotonic() + FOLLOW_MS; ; await clock.sleep(POLL_MS, signal)) {
    let missing: readonly string[] = [];
    const isAdded = await change(context, name, "", (crd) => {
      const { versions } = crd.spec;
      missing = [...new Set([...lostVersions(crd), ...(unreadableIn === undefined ? [] : [unreadableIn])])];
      missing = missing.filter((lost) => versions.every((version) => version.name !== lost));
      if (missing.length === 0) return undefined;
      const all = [...versions, ...missing.map(restoredVersion)];
      return { spec: { versions: all }, metadata: { annotations: { [LEAVING_VERSIONS]: restoredIn(all).join(",") } } };
    });
    if (isAdded) {
      tell(`added ${missing.join(", ")} back to spec.versions, with served: false`);
      added += missing.length;
      deadline = clock.monotonic() + FOLLOW_MS;
    }
    // What an earlier repair brought back, and did not list, too.
    await listStored(context, name, (crd) => restoredIn(crd.spec.versions));
    const listed = objectsOf(await readCrd(context, name));
    if (listed.versions.length === 0) throw cannotList(name, "the CRD serves no version");
    const found = await lookAtObjects(client, listed, signal, () => false);
    if (found.count !== undefined) return found.count;
    if (found.unreadableIn === undefined) throw cannotList(name, found.problem ?? "");
    if (clock.monotonic() > deadline || added >= MAX_LOST_VERSIONS) {
      const text = `the API server still cannot read objects in ${found.unreadableIn}: ${found.problem ?? ""}`;
      throw new KsvmError("RepairStopped", `Cannot repair "${name}": ${text}`);
    }
    ({ unreadableIn } = found);
  }
}

function restoredIn(versions: Crd["spec"]["versions"]): readonly string[] {
  return versions.filter(isRestored).map(({ name }) => name);
}

function cannotList(name: string, why: string): KsvmError {
  return new KsvmError(
    "RepairStopped",
    `Cannot repair "${name}": its objects cannot be listed: ${why}; nothing was migrated, and versions that were ` +
      "brought back stay in storedVersions; make that work, and run ksvm doctor --repair again",
  );
}

/**
 * Adds versions to storedVersions, and takes none out.
 * @param versionsOf those that objects may be stored in; the CRD has them
 */
async function listStored(
  context: RepairContext,
  name: string,
  versionsOf: (crd: Crd) => readonly string[],
): Promise<void> {
  let missing: readonly string[] = [];
  const isListed = await change(context, name, "/status", (crd) => {
    const { storedVersions = [] } = crd.status ?? {};
    missing = versionsOf(crd).filter((version) => !storedVersions.includes(version));
    return missing.length === 0 ? undefined : { status: { storedVersions: [...storedVersions, ...missing] } };
  });
  if (isListed) context.tell(`added ${missing.join(", ")} to status.storedVersions`);
}

/**
 * Removes the versions that a repair brought back.
 * @param provenFor `uid/generation` of the CRD that a run has proven every object for: what came later may rest on less
 * @throws {KsvmError} RepairStopped where the CRD is another one by now, or storedVersions lists more than the storage
 *   version
 */
async function removeRestored(context: RepairContext, name: string, provenFor: string | undefined): Promise<void> {
  let removed = "";
  const isRemoved = await change(context, name, "", (crd) => {
    const { versions } = crd.spec;
    removed = restoredIn(versions).join(", ");
    if (removed === "") return undefined;
    if (epochOf(crd) !== provenFor || !isClean(crd)) {
      const text = `Cannot remove ${removed} from "${name}": another client changed the CRD since every object`;
      throw new KsvmError("RepairStopped", `${text} was migrated; run ksvm doctor --repair again`);
    }
    const rest = versions.filter((version) => !isRestored(version));
    return { spec: { versions: rest }, metadata: { annotations: { [LEAVING_VERSIONS]: null } } };
  });
  if (isRemoved) context.tell(`removed ${removed} from spec.versions`);
}

/** The field manager of what a repair writes to a CRD. Its changes of spec.versions count for the settle time. */
const FIELD_MANAGER = "ksvm-doctor";

function change(
  { client, signal }: RepairContext,
  name: string,
  subresource: "" | "/status",
  changeOf: Parameters<typeof changeCrd>[3],
): Promise<boolean> {
  return changeCrd(client, name, { subresource, fieldManager: FIELD_MANAGER, signal }, changeOf);
}
