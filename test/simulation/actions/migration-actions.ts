import { stateOf, type StorageVersionMigration } from "../../../src/api/migration.ts";
import { FORCE_ANNOTATION, HASH_ANNOTATION, OWNER_ANNOTATION, PRIORITY_ANNOTATION } from "../../../src/api/names.ts";
import { reencryptAnnotation } from "../../../src/api/reencryption.ts";
import { collectionPath, MIGRATIONS, objectPath } from "../../../src/kube/resources.ts";
import { manifestOf } from "../../../src/migrations/manifest.ts";
import { oneIn, oneOf } from "../world/random-choices.ts";
import { groupOf } from "../world/kinds.ts";
import type { Answered } from "../world/user-actions.ts";
import type { World } from "../world/world.ts";
import { sort } from "./action-sort.ts";
import { hasController, hasMigrations, kindOf, lastingOf } from "./choices.ts";
import { mayComeLate, untilWritten } from "./unanswered-writes.ts";

const PREFIX = "/registry/migration.k8s.io/storageversionmigrations/";

/** A user creates migrations of one resource, several of them perhaps, or of a resource that is not there. */
export const createMigrations = sort<{
  readonly kind: number;
  readonly count: number;
  readonly of: "kind" | "missing";
  readonly how: "plain" | "forced" | "low" | "reencrypt";
}>({
  name: "createMigrations",
  weight: 3,
  suits: hasMigrations,
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    count: oneOf(random, [1, 1, 2, 3]),
    of: oneIn(random, 8) ? "missing" : "kind",
    how: oneOf(random, ["plain", "plain", "forced", "low"]),
  }),
  async play(world, { kind, count, of, how }) {
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    const resource = of === "kind" ? plan.plural : "nothings";
    const annotations = {
      plain: {},
      forced: { [FORCE_ANNOTATION]: "true" },
      low: { [PRIORITY_ANNOTATION]: "low" },
      reencrypt: reencryptAnnotation({}),
    }[how];
    const version = oneOf(world.streams("user"), plan.versions);
    for (let index = 0; index < count; index++) {
      const manifest = manifestOf({ group: groupOf(plan), version, resource }, { annotations });
      await world.user.send("POST", collectionPath(MIGRATIONS), manifest);
    }
  },
});

type Edit = "delete" | "succeed" | "fail" | "forget" | "owner" | "token" | "hash" | "progress" | "reencrypt";

/** A user edits or deletes a migration, any of those that are there. */
export const editMigration = sort<{ readonly index: number; readonly how: Edit }>({
  name: "editMigration",
  weight: 3,
  suits: hasController,
  choose: (random) => ({
    index: Math.floor(random() * 4),
    how: oneOf(random, ["delete", "delete", "succeed", "fail", "forget", "owner", "token", "hash", "progress"]),
  }),
  async play(world, { index, how }) {
    const path = (how === "reencrypt" ? runningPath(world) : undefined) ?? pathOf(world, index);
    if (path === undefined) return;
    if (how === "delete") await world.user.send("DELETE", path);
    else if (how === "owner" || how === "hash" || how === "token" || how === "reencrypt")
      await patch(world, path, EDITS[how]);
    else await patch(world, `${path}/status`, { status: EDITS[how] });
  },
});

const TIME = "2026-01-01T00:00:00Z";
const EDITS = {
  succeed: { conditions: [{ type: "Succeeded", status: "True", reason: "Migrated", lastUpdateTime: TIME }] },
  fail: { conditions: [{ type: "Failed", status: "True", reason: "ByHand", lastUpdateTime: TIME }] },
  forget: { conditions: null, crd: null, startTime: null },
  progress: { progress: "7/3", counts: { migrated: 1, skipped: 0, failed: 0 } },
  owner: { metadata: { annotations: { [OWNER_ANNOTATION]: "nobody" } } },
  hash: { metadata: { annotations: { [HASH_ANNOTATION]: null } } },
  token: { spec: { continueToken: "by hand" } },
  reencrypt: { metadata: { annotations: reencryptAnnotation({}) } },
};

/** A user suspends a migration, and resumes it some time later. */
export const suspendMigration = sort<{ readonly index: number; readonly ms: number }>({
  name: "suspendMigration",
  weight: 3,
  suits: hasMigrations,
  choose: (random) => ({ index: Math.floor(random() * 4), ms: lastingOf(random) }),
  async play(world, { index, ms }) {
    const path = pathOf(world, index);
    if (path === undefined) return;
    const suspended = await patch(world, path, { spec: { suspend: true } });
    await world.lasting(ms);
    if (mayComeLate(suspended)) await untilWritten(world);
    const resume = () => patch(world, path, { spec: { suspend: null } });
    await insist(world, resume);
    // A restore may bring the suspension back.
    world.cluster.etcd.onRestore(() => void insist(world, resume));
  },
});

/** Of the first migration that runs. */
function runningPath({ cluster }: World): string | undefined {
  const migrations = cluster.etcd.range(PREFIX).map(({ object }) => object as unknown as StorageVersionMigration);
  const running = migrations.find((migration) => stateOf(migration) === "Running");
  return running && objectPath(MIGRATIONS, { name: running.metadata.name });
}

function pathOf(world: World, index: number): string | undefined {
  const names = world.cluster.etcd.range(PREFIX).map(({ key }) => key.slice(PREFIX.length));
  const name = names[index % Math.max(1, names.length)];
  return name === undefined ? undefined : objectPath(MIGRATIONS, { name });
}

function patch(world: World, path: string, body: object): Promise<Answered | undefined> {
  return world.user.send("PATCH", path, body, "application/merge-patch+json");
}

/** What a user put on, the user takes away, however often that takes. */
async function insist({ schedule }: World, send: () => Promise<Answered | undefined>): Promise<void> {
  for (let tries = 0; tries < 300; tries++) {
    const answer = await send();
    if (answer?.status === 200 || answer?.status === 404) return;
    await schedule.wait(1_000);
  }
}
