import { isClean, storageVersionHashOf, storageVersionOf, storedVersionsOf } from "../../crd.ts";
import { isFinished, stateOf, type StorageState, type StorageVersionMigration } from "../../../src/api/migration.ts";
import { freezerOf } from "../../../src/freeze/freeze.ts";
import { MIGRATING, OWNER } from "../../../src/freeze/rule.ts";
import { CRDS } from "../../../src/kube/objects.ts";
import { MIGRATIONS, objectPath } from "../../api-client.ts";
import { CRD_PREFIX } from "../model/kinds.ts";
import type { KindPlan } from "../plan.ts";
import { crdNameOf, groupOf, prefixOf, resourceOf } from "../world/kinds.ts";
import { type Program, type World } from "../world/world.ts";
import { crdOf, servedBy } from "./past.ts";
import { MIGRATIONS_PREFIX, STATES_PREFIX } from "./told.ts";

/** All that the trigger and the leader have to do is done in this time: the trigger may pause for 40 minutes, in milliseconds. */
const CONTROLLED_MS = 90 * 60_000;
/** What an undisturbed run may take, in milliseconds. */
const UNDISTURBED_MS = 900_000;
const STOP_MS = 60_000;
const REPAIR_MS = 600_000;
/** Of the guards of runs. */
const POLICIES = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"].map(
  (resource) => `/registry/${resource}/ksvm-freeze.`,
);

/**
 * Once the disturbances are over, and users have undone what they did, replicas of the controller finish what there is to do; and a run that
 * nobody disturbs migrates each resource, and leaves nothing.
 */
export function checkEnd(world: World): () => Promise<void> {
  let isUnclean = false;
  world.onEnd.push((_, end) => {
    isUnclean ||= end.isUnclean === true;
  });
  return async () => {
    await whileSettled(world, usersPutRight(world, isUnclean));
    if (world.hasController) await finishControllers(world);
    for (const index of world.plan.kinds.keys()) if (!world.isBroken) await runUndisturbed(world, index);
  };
}

function violate(world: World, violation: string): void {
  if (!world.isBroken) world.violate(violation);
}

async function whileSettled(world: World, repair: Promise<void>): Promise<void> {
  let isDone = false;
  void repair.then(() => (isDone = true));
  const isOver = await world.schedule.run(() => isDone || world.isBroken, REPAIR_MS);
  if (!isOver) violate(world, "error: users cannot undo their own changes");
}

/**
 * Users lift the freezes that they have put on, remove policies where a run said that it could not, and delete migrations that failed.
 * CRDs that they deleted are gone.
 */
async function usersPutRight(world: World, isUnclean: boolean): Promise<void> {
  const { cluster, plan, schedule, user } = world;
  const isDeleting = (): boolean =>
    cluster.etcd.range(CRD_PREFIX).some(({ object }) => object.metadata.deletionTimestamp !== undefined);
  while (isDeleting()) await schedule.wait(1_000);
  const annotations = { [MIGRATING]: null, [OWNER]: null };
  for (const kind of plan.kinds) {
    const crd = kind.isBuiltIn === true ? undefined : crdOf(world, kind);
    if (crd === undefined || freezerOf(crd.metadata) !== "other") continue;
    await user.insist(() => user.merge(`${CRDS}/${crdNameOf(kind)}`, { metadata: { annotations } }));
  }
  // A replica of the controller tells it by an Event.
  const events = cluster.etcd.range("/registry/events/");
  const isTold = isUnclean || events.some(({ object }) => String(object["message"]).startsWith("Cannot clean up"));
  const policies = isTold ? POLICIES.flatMap((prefix) => cluster.etcd.range(prefix)) : [];
  for (const { key } of policies) {
    await user.insist(() => user.send("DELETE", key.replace("/registry", "/apis/admissionregistration.k8s.io/v1")));
  }
  for (const migration of migrationsOf(world)) {
    if (stateOf(migration) !== "Failed") continue;
    await user.insist(() => user.send("DELETE", objectPath(MIGRATIONS, { name: migration.metadata.name })));
  }
}

function migrationsOf({ cluster }: World): readonly StorageVersionMigration[] {
  return cluster.etcd.range(MIGRATIONS_PREFIX).map(({ object }) => object as unknown as StorageVersionMigration);
}

async function finishControllers(world: World): Promise<void> {
  const { cluster, schedule } = world;
  const replicas = world.programs.filter((program) => program?.plan.run === "controller") as readonly Program[];
  for (const { end, process } of replicas) {
    if (end?.how === "failed") violate(world, `controllers: ${process.name} ended: ${end.text}`);
  }
  let looked: { revision: number; left: string | undefined } | undefined;
  const left = (): string | undefined => {
    const { revision } = cluster.etcd;
    if (looked?.revision !== revision) looked = { revision, left: leftToDo(world) };
    return looked.left;
  };
  const isOver = (): boolean => world.isBroken || left() === undefined;
  if (!(await schedule.run(isOver, CONTROLLED_MS))) violate(world, `liveness: ${left()}`);
  for (const replica of replicas) replica.interrupt();
  const areOver = (): boolean => world.isBroken || replicas.every(({ end }) => end !== undefined);
  if (!(await schedule.run(areOver, STOP_MS))) violate(world, "liveness: a replica does not stop");
  for (const { end, process } of replicas) {
    if (end?.how !== "stopped")
      violate(world, `controllers: ${process.name} ended: ${end?.how ?? "not"} ${end?.text ?? ""}`);
  }
}

/** What the replicas have yet to do. */
function leftToDo(world: World): string | undefined {
  const migration = migrationsOf(world).find((one) => !isFinished(one));
  if (migration !== undefined) return `migration ${migration.metadata.name} is ${stateOf(migration)}`;
  const hasTrigger = world.plan.programs.some(({ run, trigger }) => run === "controller" && trigger !== "off");
  for (const kind of world.plan.kinds) {
    const left = kind.isBuiltIn === true ? leftOfBuiltIn(world, kind, hasTrigger) : leftOfCrd(world, kind, hasTrigger);
    if (left !== undefined) return left;
  }
  return leftPolicy(world);
}

/**
 * Without a freeze, nothing but a migration leads to that of a run which was killed: docs/safety.md.
 * @param crdName of that CRD alone. @default of all
 */
function leftPolicy({ cluster, plan }: World, isMigrated = false, crdName = ""): string | undefined {
  const [policy] = POLICIES.flatMap((prefix) => cluster.etcd.range(`${prefix}${crdName}`));
  const wasKilled = plan.actions.some((action) => action.do === "crash");
  return policy && (isMigrated || !wasKilled) ? `${policy.key} is left` : undefined;
}

function leftOfBuiltIn(world: World, kind: KindPlan, hasTrigger: boolean): string | undefined {
  if (!hasTrigger) return undefined;
  const [served] = servedBy(world, kind);
  const other = world.cluster.etcd
    .range(prefixOf(kind))
    .find(({ object }) => object.apiVersion !== served?.storedApiVersion);
  if (other !== undefined) return `${other.key} is stored as ${other.object.apiVersion}`;
  return leftOfState(world, kind, served?.storageVersionHash ?? "");
}

function leftOfCrd(world: World, kind: KindPlan, hasTrigger: boolean): string | undefined {
  const crd = crdOf(world, kind);
  if (crd === undefined) return undefined;
  const { metadata, spec } = crd;
  if (metadata.annotations?.[MIGRATING] !== undefined) return `${metadata.name} is frozen`;
  if (!hasTrigger) return undefined;
  if (!isClean(crd)) return `storedVersions of ${metadata.name} is [${storedVersionsOf(crd).join(" ")}]`;
  return leftOfState(world, kind, storageVersionHashOf(groupOf(kind), storageVersionOf(crd), spec.names.kind));
}

function leftOfState({ cluster }: World, kind: KindPlan, hash: string): string | undefined {
  const found = cluster.etcd.get(`${STATES_PREFIX}${resourceOf(kind)}`)?.object as unknown as StorageState | undefined;
  const persisted = found?.status?.persistedStorageVersionHashes ?? [];
  if (persisted.length === 1 && persisted[0] === hash) return undefined;
  return `the StorageState of ${kind.plural} says [${persisted.join(", ")}], and its hash is ${hash}`;
}

async function runUndisturbed(world: World, index: number): Promise<void> {
  const kind = world.plan.kinds[index];
  const crd = kind === undefined || kind.isBuiltIn === true ? undefined : crdOf(world, kind);
  if (kind === undefined || (crd === undefined && kind.isBuiltIn !== true) || isUnreadable(world, kind)) return;
  const reencrypts = world.plan.programs.some((one) => one.run === "reencrypt" || one.reencrypts === true);
  // Of a built-in resource a re-encryption writes all that a migration writes.
  const migrations = reencrypts && kind.isBuiltIn === true ? [] : (["migrate"] as const);
  let isMigrated = false;
  for (const run of [...migrations, ...(reencrypts ? (["reencrypt"] as const) : [])]) {
    const last = world.run({ run, kind: index, force: false }, `ksvm-last-${run}-${kind.plural}`);
    if (!(await world.schedule.run(() => world.isBroken || last?.end !== undefined, UNDISTURBED_MS))) {
      violate(world, "liveness: an undisturbed run does not end");
    }
    const { how = "", text = "" } = last?.end ?? {};
    if (how !== "migrated" && how !== "nothing-to-do")
      violate(world, `liveness: an undisturbed run ends: ${how} ${text}`);
    isMigrated ||= run === "migrate" && how === "migrated";
  }
  const after = crdOf(world, kind);
  if (after !== undefined && !isClean(after))
    violate(world, `told: it is migrated, and storedVersions is [${storedVersionsOf(after).join(" ")}]`);
  if (after?.metadata.annotations?.[MIGRATING] !== undefined) {
    violate(world, "freeze: one is left after an undisturbed run");
  }
  const left = leftPolicy(world, isMigrated, crdNameOf(kind));
  if (left !== undefined) violate(world, `freeze: ${left} after an undisturbed run`);
}

/** Another client pruned a version too early, and users took it away: no API server can read an object that is stored in it. */
function isUnreadable(world: World, kind: KindPlan): boolean {
  const versions = crdOf(world, kind)?.spec.versions.map(({ name }) => `${groupOf(kind)}/${name}`);
  return (
    versions !== undefined &&
    world.cluster.etcd.range(prefixOf(kind)).some(({ object }) => !versions.includes(object.apiVersion))
  );
}
