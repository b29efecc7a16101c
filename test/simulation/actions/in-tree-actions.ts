import type { CrdCondition, CrdVersion } from "../../../src/api/crd.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { ModelObject } from "../model/model-object.ts";
import type { KindPlan } from "../plan.ts";
import { collectionOf, crdNameOf, groupOf } from "../world/kinds.ts";
import { oneIn, oneOf } from "../world/random-choices.ts";
import { CRDS, MERGE, UserActions } from "../world/user-actions.ts";
import type { World } from "../world/world.ts";
import { sort } from "./action-sort.ts";
import { kindOf, lastingOf } from "./choices.ts";

const MIGRATIONS = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";

/** Longer than an API server holds a request, in milliseconds. */
const HELD_MS = 70_000;

/**
 * Kubernetes' own migrator migrates a CRD: it says so in its migration and in the CRD, writes one object after the other, and
 * prunes, also after an object failed. `stuck` says that it is at work and does nothing, `dies` leaves everything as it is.
 */
export const inTreeMigration = sort<{
  readonly kind: number;
  readonly how: "works" | "fails" | "stuck" | "dies";
  readonly ms: number;
}>({
  name: "inTreeMigration",
  weight: 6,
  suits: ({ hasInTree = false }) => hasInTree,
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    how: oneOf(random, ["works", "works", "fails", "stuck", "dies"]),
    ms: lastingOf(random),
  }),
  async play(world, { at, kind, how, ms }) {
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    const migrator = new UserActions(world.cluster, "kube-controller-manager", world.streams("in-tree"));
    const name = `in-tree-${at}`;
    await migrator.send("POST", MIGRATIONS, {
      apiVersion: "storagemigration.k8s.io/v1beta1",
      kind: "StorageVersionMigration",
      metadata: { name },
      spec: { resource: { group: groupOf(plan), resource: plan.plural } },
    });
    await tell(world, migrator, { plan, name, state: "Running" });
    let isSameCrd = true;
    if (how === "works" || how === "fails") {
      const stopsAfter = how === "fails" ? 1 : Number.POSITIVE_INFINITY;
      isSameCrd = await migrate(world, migrator, { plan, stopsAfter, ms });
    } else {
      await world.lasting(ms);
    }
    // Where it dies the next leader of the controllers ends it some time later.
    if (how === "dies") await world.schedule.wait(60_000);
    const end: Told = { plan, name, state: how === "works" ? "Succeeded" : "Failed", isSameCrd };
    // A restore brings its beginning back: then it goes on, and ends.
    world.cluster.etcd.onRestore(() => world.schedule.in(20_000, () => void tell(world, migrator, end)));
    await tell(world, migrator, end);
    // An API server that stood still may write what was told before after what was told last.
    await world.schedule.wait(HELD_MS);
    await tell(world, migrator, end);
    if (oneIn(world.streams("in-tree"), 2)) await migrator.send("DELETE", `${MIGRATIONS}/${name}`);
  },
});

interface Told {
  readonly plan: KindPlan;
  readonly name: string;
  readonly state: "Running" | "Succeeded" | "Failed";
  /** Whether the CRD was left alone during the migration. @default true */
  readonly isSameCrd?: boolean;
}

/** Writes the status of the migration, and the condition of the CRD, until both are written. */
async function tell(world: World, migrator: UserActions, told: Told): Promise<void> {
  const { name, plan, state } = told;
  const isRunning = state === "Running";
  const running = { type: "Running", status: isRunning ? "True" : "False" };
  const conditions = isRunning ? [running] : [running, { type: state, status: "True" }];
  const condition = conditionOf(told);
  for (let tries = 0; tries < 1_000; tries++) {
    const written = await migrator.send("PATCH", `${MIGRATIONS}/${name}/status`, { status: { conditions } }, MERGE);
    const path = `${CRDS}/${crdNameOf(plan)}`;
    const crd = plan.isBuiltIn === true ? undefined : await migrator.send("GET", path);
    const { conditions: found } = (crd?.body["status"] ?? {}) as { conditions?: readonly { type: string }[] | null };
    const others = (found ?? []).filter(({ type }) => type !== condition.type);
    const status = { conditions: [...others, condition] };
    const marked = crd?.status === 200 ? await migrator.send("PATCH", `${path}/status`, { status }, MERGE) : undefined;
    const isTold = written?.status === 200 || written?.status === 404;
    if (isTold && (marked?.status === 200 || plan.isBuiltIn === true || crd?.status === 404)) return;
    await world.schedule.wait(2_000);
  }
}

/** What pkg/controller/storageversionmigrator says in the CRD. */
function conditionOf({ isSameCrd = true, state }: Told): CrdCondition {
  const message = isSameCrd ? "updated" : "the stored versions have not been updated due to a generation mismatch";
  return {
    type: "StorageMigrating",
    status: state === "Running" ? "True" : "False",
    reason: `Migration${state}`,
    ...(state === "Succeeded" ? { message } : {}),
  };
}

interface Migrated {
  readonly plan: KindPlan;
  readonly stopsAfter: number;
  readonly ms: number;
}

/** @returns whether the CRD is the one that it began with */
async function migrate(world: World, migrator: UserActions, { ms, plan, stopsAfter }: Migrated): Promise<boolean> {
  const path = `${CRDS}/${crdNameOf(plan)}`;
  const crd = plan.isBuiltIn === true ? undefined : await migrator.send("GET", path);
  const { versions = [] } = (crd?.body["spec"] ?? {}) as { versions?: readonly CrdVersion[] };
  const storage = versions.find((version) => version.storage)?.name ?? plan.versions.at(-1) ?? "";
  const listed = await migrator.send("GET", collectionOf(plan, storage));
  const items = (listed?.body["items"] ?? []) as readonly ModelObject[];
  for (const [index, { metadata }] of items.entries()) {
    if (index >= stopsAfter) break;
    const { name, resourceVersion, uid } = metadata;
    await migrator.send(
      "PATCH",
      `${collectionOf(plan, storage)}/${name}`,
      { metadata: { uid, resourceVersion } },
      MERGE,
    );
    await world.schedule.wait(ms / (items.length + 1));
  }
  if (crd?.status !== 200) return true;
  // It compares the generation, and looks at nothing else.
  const { generation } = world.cluster.etcd.get(`${CRD_PREFIX}${crdNameOf(plan)}`)?.object.metadata ?? {};
  if (generation !== crd.body.metadata.generation) return false;
  await migrator.send("PATCH", `${path}/status`, { status: { storedVersions: [storage] } }, MERGE);
  return true;
}
