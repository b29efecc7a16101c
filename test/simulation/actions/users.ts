import type { CrdCondition, CrdVersion } from "../../crd.ts";
import { FORCE_ANNOTATION } from "../../../src/api/names.ts";
import { reencryptAnnotation } from "../../../src/api/reencryption.ts";
import { policyName } from "../../../src/freeze/freeze.ts";
import { CRDS, MERGE_PATCH as MERGE } from "../../../src/kube/objects.ts";
import { collectionPath, MIGRATIONS, objectPath, STORAGE_STATES } from "../../api-client.ts";
import { manifestOf } from "../../../src/migrations/manifest.ts";
import type { ModelObject } from "../model/etcd.ts";
import { CRD_PREFIX } from "../model/kinds.ts";
import type { KindPlan } from "../plan.ts";
import { REQUEST_TIMEOUT_MS } from "../world/api-server.ts";
import { collectionOf, crdNameOf, groupOf, objectsPrefixOf, resourceOf } from "../world/kinds.ts";
import { oneIn, oneOf } from "../world/random.ts";
import { type Answered, type CrdEdit, UserActions } from "../world/users.ts";
import type { World } from "../world/world.ts";
import { hasController, hasCrd, kindOf, lastingOf, sort } from "./action.ts";

// What users, GitOps tools and other migrators do to objects, CRDs and migrations.

interface OfKind {
  readonly kind: number;
}

/** Whether a write may be done later: nobody answered, or a 504 was the answer. */
function mayComeLate(answer: Answered | undefined): boolean {
  return answer === undefined || answer.status >= 500;
}

/** An API server that stood still writes what it was asked to when it goes on, up to its request timeout later. */
async function untilWritten({ cluster, schedule }: World, answer: Answered | undefined): Promise<void> {
  if (!mayComeLate(answer)) return;
  while (cluster.nodes.some(({ process }) => process.isPaused)) await schedule.wait(1_000);
  await schedule.wait(REQUEST_TIMEOUT_MS);
}

/** A user changes the storage version of a CRD. */
const flip = sort<OfKind & { readonly to: string }>({
  name: "flip",
  weight: 3,
  suits: hasCrd,
  choose(random, limits) {
    const kind = kindOf(random, limits);
    return { kind, to: oneOf(random, limits.kinds[kind]?.versions ?? []) };
  },
  async play(world, { kind, to }) {
    const plan = world.plan.kinds[kind];
    if (plan === undefined) return;
    const answer = await world.user.flip(plan, to);
    world.tell("user", `flip: ${answer?.status ?? "nobody answers"}`);
  },
});

/** A user deletes a CRD and creates it again, with another storage version perhaps. */
const recreateCrd = sort<OfKind>({
  name: "recreateCrd",
  suits: hasCrd,
  choose: (random, limits) => ({ kind: kindOf(random, limits) }),
  async play(world, { kind }) {
    const plan = world.plan.kinds[kind];
    if (plan === undefined || plan.isBuiltIn === true) return;
    await world.user.deleteCrd(plan);
    await world.schedule.wait(500);
    await world.user.createCrd(plan, oneOf(world.streams("user"), plan.versions));
  },
});

/** A user edits the annotations of a freeze, or a label. */
const annotate = sort<OfKind & { readonly how: CrdEdit }>({
  name: "annotate",
  suits: hasCrd,
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    how: oneOf(random, ["freeze", "unfreeze", "unfreeze", "takeOwner", "label"]),
  }),
  async play(world, { kind, how }) {
    const plan = world.plan.kinds[kind];
    if (plan) await world.user.annotate(plan, how);
  },
});

type Edit = (versions: readonly CrdVersion[], name: string) => readonly CrdVersion[];

const EDITS: Readonly<Record<string, Edit>> = {
  unserve: (versions, name) => versions.map((one) => (one.name === name ? { ...one, served: false } : one)),
  remove: (versions, name) => versions.filter((one) => one.name !== name),
  add: (versions) => {
    const [first] = versions;
    return first === undefined ? versions : [...versions, { ...first, name: "v2", storage: false }];
  },
  // Moves the storage version and removes the others in one update, as a new release of an operator does it.
  replaceAll: (versions, name) =>
    versions.filter((one) => one.name === name).map((one) => ({ ...one, storage: true, served: true })),
};

/** A user edits the versions of a CRD, as far as the API server takes it, and puts them back after some time. */
const editVersions = sort<OfKind & { readonly how: string; readonly version: string; readonly ms: number }>({
  name: "editVersions",
  suits: hasCrd,
  choose(random, limits) {
    const kind = kindOf(random, limits);
    const version = oneOf(random, limits.kinds[kind]?.versions ?? []);
    return { kind, how: oneOf(random, Object.keys(EDITS)), version, ms: lastingOf(random) };
  },
  async play(world, { kind, how, version, ms }) {
    const [plan, edit] = [world.plan.kinds[kind], EDITS[how]];
    if (plan === undefined || plan.isBuiltIn === true || edit === undefined) return;
    const edited = await world.user.editVersions(plan, (versions) => edit(versions, version));
    world.tell("user", `${how} ${version}: ${edited?.status ?? "nobody answers"}`);
    await world.lasting(ms);
    // Otherwise it may come after it was undone.
    await untilWritten(world, edited);
    await world.user.insist(() =>
      world.user.editVersions(plan, (versions) => {
        const template = versions[0];
        const known = new Map(versions.map((one) => [one.name, one]));
        const names = new Set([...plan.versions, ...(world.isCalm ? [] : known.keys())]);
        for (const one of versions) if (one.storage) names.add(one.name);
        return [...names].map((name) => ({ ...template, storage: false, ...known.get(name), name, served: true }));
      }),
    );
  },
});

/**
 * Another client prunes storedVersions. `careful` does it where every object is stored in the storage version, at the moment when
 * it looks; the others break S1 by themselves.
 */
const foreignPrune = sort<OfKind & { readonly isCareful: boolean }>({
  name: "foreignPrune",
  suits: hasCrd,
  choose: (random, limits) => ({ kind: kindOf(random, limits), isCareful: oneIn(random, 2) }),
  async play(world, { kind, isCareful }) {
    const plan = world.plan.kinds[kind];
    if (plan === undefined || plan.isBuiltIn === true) return;
    const path = `${CRDS}/${crdNameOf(plan)}`;
    const found = await world.user.send("GET", path);
    const { versions = [] } = (found?.body["spec"] ?? {}) as { versions?: readonly CrdVersion[] };
    const storage = versions.find((version) => version.storage)?.name;
    if (storage === undefined) return;
    const objects = world.cluster.etcd.range(objectsPrefixOf(plan));
    if (isCareful && objects.some(({ object }) => !object.apiVersion.endsWith(`/${storage}`))) return;
    const answer = await world.user.merge(`${path}/status`, { status: { storedVersions: [storage] } });
    world.tell("user", `prunes to ${storage}: ${answer?.status ?? "nobody answers"}`);
  },
});

/** A user deletes or edits the policy that guards a CRD, or its binding. */
const damagePolicy = sort<OfKind & { readonly how: string }>({
  name: "damagePolicy",
  suits: hasCrd,
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    how: oneOf(random, ["deletePolicy", "deleteBinding", "openPolicy", "auditOnly"]),
  }),
  async play({ plan, user }, { kind, how }) {
    const of = plan.kinds[kind];
    if (of === undefined || of.isBuiltIn === true) return;
    const name = policyName(crdNameOf(of));
    const root = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    const [policy, binding] = [`${root}ies/${name}`, `${root}ybindings/${name}`];
    if (how === "deletePolicy") await user.send("DELETE", policy);
    else if (how === "deleteBinding") await user.send("DELETE", binding);
    else if (how === "openPolicy") await user.merge(policy, { spec: { validations: [{ expression: "true" }] } });
    else await user.merge(binding, { spec: { validationActions: ["Audit"] } });
  },
});

/** A user writes an object. */
const writeObject = sort<OfKind & { readonly how: "create" | "update" | "delete"; readonly object: number }>({
  name: "writeObject",
  weight: 2,
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    how: oneOf(random, ["create", "update", "delete"]),
    object: Math.floor(random() * 30),
  }),
  async play(world, { kind, how, object }) {
    const plan = world.plan.kinds[kind];
    if (plan) await world.user[how](plan, oneOf(world.streams("user"), plan.versions), object);
  },
});

/** A user deletes an object that has a finalizer, which is taken off some time later. */
const terminate = sort<OfKind & { readonly object: number; readonly ms: number }>({
  name: "terminate",
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    object: Math.floor(random() * 10),
    ms: lastingOf(random),
  }),
  async play(world, { kind, object, ms }) {
    const { cluster, schedule, user } = world;
    const plan = world.plan.kinds[kind];
    if (plan === undefined) return;
    const path = `${collectionOf(plan, plan.versions.at(-1) ?? "")}/${plan.plural}-${object}`;
    const key = `${objectsPrefixOf(plan)}${object}`;
    // An API server that does not know the CRD yet answers 404: what counts is what etcd has.
    const isHeld = (): boolean => cluster.etcd.get(key)?.object.metadata.finalizers !== undefined;
    const held = await user.merge(path, { metadata: { finalizers: ["sim.example.com/waits"] } });
    await user.send("DELETE", path);
    await world.lasting(ms);
    await untilWritten(world, held);
    for (let tries = 0; tries < 200 && isHeld(); tries++) {
      await user.merge(path, { metadata: { finalizers: null } });
      await schedule.wait(5_000);
    }
  },
});

/** A user takes the managedFields of an object away. */
const unmanage = sort<OfKind & { readonly object: number }>({
  name: "unmanage",
  choose: (random, limits) => ({ kind: kindOf(random, limits), object: Math.floor(random() * 10) }),
  async play({ plan, user }, { kind, object }) {
    const of = plan.kinds[kind];
    if (of === undefined) return;
    const path = `${collectionOf(of, of.versions[0] ?? "")}/${of.plural}-${object}`;
    await user.merge(path, { metadata: { managedFields: [{}] } });
  },
});

/** A user creates migrations of one resource, several of them perhaps, or of a resource that is not there. */
const createMigrations = sort<OfKind & { readonly count: number; readonly of: string; readonly how: string }>({
  name: "createMigrations",
  weight: 3,
  suits: hasController,
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    count: oneOf(random, [1, 1, 2, 3]),
    of: oneIn(random, 8) ? "missing" : "kind",
    how: oneOf(random, ["plain", "plain", "forced"]),
  }),
  async play(world, { kind, count, of, how }) {
    const plan = world.plan.kinds[kind];
    if (plan === undefined) return;
    const resource = of === "kind" ? plan.plural : "nothings";
    const annotations =
      {
        forced: { [FORCE_ANNOTATION]: "true" },
        reencrypt: reencryptAnnotation({}),
      }[how] ?? {};
    const version = oneOf(world.streams("user"), plan.versions);
    for (let index = 0; index < count; index++) {
      const manifest = manifestOf({ group: groupOf(plan), version, resource }, { annotations });
      await world.user.send("POST", collectionPath(MIGRATIONS), manifest);
    }
  },
});

const MIGRATION_PREFIX = "/registry/migration.k8s.io/storageversionmigrations/";

function migrationPath({ cluster }: World, index: number): string | undefined {
  const names = cluster.etcd.range(MIGRATION_PREFIX).map(({ key }) => key.slice(MIGRATION_PREFIX.length));
  const name = names[index % Math.max(1, names.length)];
  return name === undefined ? undefined : objectPath(MIGRATIONS, { name });
}

/** A user deletes a migration, any of those that are there. */
const deleteMigration = sort<{ readonly index: number }>({
  name: "deleteMigration",
  weight: 3,
  suits: hasController,
  choose: (random) => ({ index: Math.floor(random() * 4) }),
  async play(world, { index }) {
    const path = migrationPath(world, index);
    if (path !== undefined) await world.user.send("DELETE", path);
  },
});

/** A user suspends a migration, and resumes it some time later. */
const suspendMigration = sort<{ readonly index: number; readonly ms: number }>({
  name: "suspendMigration",
  weight: 3,
  suits: hasController,
  choose: (random) => ({ index: Math.floor(random() * 4), ms: lastingOf(random) }),
  async play(world, { index, ms }) {
    const path = migrationPath(world, index);
    if (path === undefined) return;
    const suspended = await world.user.merge(path, { spec: { suspend: true } });
    await world.lasting(ms);
    await untilWritten(world, suspended);
    await world.user.insist(() => world.user.merge(path, { spec: { suspend: null } }));
  },
});

/** A user deletes the StorageState of a kind. */
const deleteState = sort<OfKind>({
  name: "deleteState",
  suits: hasController,
  choose: (random, limits) => ({ kind: kindOf(random, limits) }),
  async play({ plan, user }, { kind }) {
    const of = plan.kinds[kind];
    if (of !== undefined) await user.send("DELETE", objectPath(STORAGE_STATES, { name: resourceOf(of) }));
  },
});

const IN_TREE = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";

/**
 * Kubernetes' own migrator migrates a CRD: it says so in its migration and in the CRD, writes one object after the other, and
 * prunes, also after an object failed. `stuck` says that it is at work and does nothing.
 */
const inTreeMigration = sort<OfKind & { readonly how: "works" | "fails" | "stuck"; readonly ms: number }>({
  name: "inTreeMigration",
  weight: 6,
  suits: ({ hasInTree = false }) => hasInTree,
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    how: oneOf(random, ["works", "works", "fails", "stuck"]),
    ms: lastingOf(random),
  }),
  async play(world, { at, kind, how, ms }) {
    const plan = world.plan.kinds[kind];
    if (plan === undefined) return;
    const migrator = new UserActions(world.cluster, "kube-controller-manager", world.streams("in-tree"));
    const name = `in-tree-${at}`;
    await migrator.send("POST", IN_TREE, {
      apiVersion: "storagemigration.k8s.io/v1",
      kind: "StorageVersionMigration",
      metadata: { name },
      spec: { resource: { group: groupOf(plan), resource: plan.plural } },
    });
    await tell(migrator, { plan, name, state: "Running", isSameCrd: true });
    let isSameCrd = true;
    if (how === "stuck") await world.lasting(ms);
    else isSameCrd = await migrate(world, migrator, { plan, most: how === "fails" ? 1 : Number.POSITIVE_INFINITY, ms });
    const end = { plan, name, state: how === "works" ? "Succeeded" : "Failed", isSameCrd } as const;
    await tell(migrator, end);
    // An API server that stood still may write what was told before after what was told last.
    await world.schedule.wait(REQUEST_TIMEOUT_MS + 10_000);
    await tell(migrator, end);
    if (oneIn(world.streams("in-tree"), 2)) await migrator.send("DELETE", `${IN_TREE}/${name}`);
  },
});

interface Told {
  readonly plan: KindPlan;
  readonly name: string;
  readonly state: "Running" | "Succeeded" | "Failed";
  /** Whether the CRD was left alone during the migration. */
  readonly isSameCrd: boolean;
}

/** Writes the status of the migration, and the condition of the CRD as pkg/controller/storageversionmigrator has it, until both are written. */
async function tell(migrator: UserActions, { isSameCrd, name, plan, state }: Told): Promise<void> {
  const isRunning = state === "Running";
  const running = { type: "Running", status: isRunning ? "True" : "False" };
  const conditions = isRunning ? [running] : [running, { type: state, status: "True" }];
  const message = isSameCrd ? "updated" : "the stored versions have not been updated due to a generation mismatch";
  const condition: CrdCondition = {
    type: "StorageMigrating",
    status: isRunning ? "True" : "False",
    reason: `Migration${state}`,
    ...(state === "Succeeded" ? { message } : {}),
  };
  await migrator.insist(() => migrator.merge(`${IN_TREE}/${name}/status`, { status: { conditions } }));
  if (plan.isBuiltIn === true) return;
  const path = `${CRDS}/${crdNameOf(plan)}`;
  await migrator.insist(async () => {
    const crd = await migrator.send("GET", path);
    if (crd?.status !== 200) return crd;
    const { conditions: found } = (crd.body["status"] ?? {}) as { conditions?: readonly { type: string }[] | null };
    const others = (found ?? []).filter(({ type }) => type !== condition.type);
    return await migrator.merge(`${path}/status`, { status: { conditions: [...others, condition] } });
  });
}

/** @returns whether the CRD is the one that it began with */
async function migrate(
  world: World,
  migrator: UserActions,
  { most, ms, plan }: { readonly plan: KindPlan; readonly most: number; readonly ms: number },
): Promise<boolean> {
  const path = `${CRDS}/${crdNameOf(plan)}`;
  const crd = plan.isBuiltIn === true ? undefined : await migrator.send("GET", path);
  const { versions = [] } = (crd?.body["spec"] ?? {}) as { versions?: readonly CrdVersion[] };
  const storage = versions.find((version) => version.storage)?.name ?? plan.versions.at(-1) ?? "";
  const listed = await migrator.send("GET", collectionOf(plan, storage));
  const items = (listed?.body["items"] ?? []) as readonly ModelObject[];
  for (const { metadata } of items.slice(0, most)) {
    const { name, resourceVersion, uid } = metadata;
    await migrator.merge(`${collectionOf(plan, storage)}/${name}`, { metadata: { uid, resourceVersion } });
    await world.schedule.wait(ms / (items.length + 1));
  }
  if (crd?.status !== 200) return true;
  // It compares the generation, and looks at nothing else.
  const { generation } = world.cluster.etcd.get(`${CRD_PREFIX}${crdNameOf(plan)}`)?.object.metadata ?? {};
  if (generation !== crd.body.metadata.generation) return false;
  await migrator.send("PATCH", `${path}/status`, { status: { storedVersions: [storage] } }, MERGE);
  return true;
}

export const USER_ACTIONS = [
  flip,
  recreateCrd,
  annotate,
  editVersions,
  foreignPrune,
  damagePolicy,
  writeObject,
  terminate,
  unmanage,
  createMigrations,
  deleteMigration,
  suspendMigration,
  deleteState,
  inTreeMigration,
];
