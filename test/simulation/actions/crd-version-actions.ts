import {
  type CrdVersion,
  type CustomResourceDefinition,
  isClean,
  specKeyOf,
  storageVersionOf,
} from "../../../src/api/crd.ts";
import type { StorageVersionMigration } from "../../../src/api/migration.ts";
import { collectionPath, MIGRATIONS } from "../../../src/kube/resources.ts";
import { provesMigrated } from "../checks/claims.ts";
import { MERGE, CRDS } from "../world/user-actions.ts";
import { crdNameOf } from "../world/kinds.ts";
import { oneIn, oneOf } from "../world/random-choices.ts";
import { sort } from "./action-sort.ts";
import { hasCrd, kindOf, lastingOf } from "./choices.ts";
import { mayComeLate, untilWritten } from "./unanswered-writes.ts";

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
export const editVersions = sort<{
  readonly kind: number;
  readonly how: string;
  readonly version: string;
  readonly ms: number;
}>({
  name: "editVersions",
  suits: hasCrd,
  choose(random, limits) {
    const kind = kindOf(random, limits);
    return {
      kind,
      how: oneOf(random, Object.keys(EDITS)),
      version: oneOf(random, limits.kinds[kind]?.versions ?? []),
      ms: lastingOf(random),
    };
  },
  async play(world, { kind, how, version, ms }) {
    const [plan, edit] = [world.kindAt(kind), EDITS[how]];
    if (plan === undefined || edit === undefined) return;
    const edited = await world.user.editVersions(plan, (versions) => edit(versions, version));
    world.tell("user", `${how} ${version}: ${edited?.status ?? "nobody answers"}`);
    await world.lasting(ms);
    // Otherwise it may come after it was undone.
    if (mayComeLate(edited)) await untilWritten(world);
    for (let tries = 0; tries < 100; tries++) {
      const restored = await world.user.editVersions(plan, (versions) => {
        const template = versions[0];
        const known = new Map(versions.map((one) => [one.name, one]));
        const names = new Set([...plan.versions, ...(world.isCalm ? [] : known.keys())]);
        for (const one of versions) if (one.storage) names.add(one.name);
        return [...names].map((name) => ({ ...template, storage: false, ...known.get(name), name, served: true }));
      });
      if (restored !== undefined && (restored.status < 300 || restored.status === 404)) return;
      await world.schedule.wait(1_000);
    }
  },
});

/**
 * Another client prunes storedVersions. `careful` does it where every object is stored in the storage version, at the moment when
 * it looks; the others break S1 by themselves.
 */
export const foreignPrune = sort<{ readonly kind: number; readonly isCareful: boolean }>({
  name: "foreignPrune",
  suits: hasCrd,
  choose: (random, limits) => ({ kind: kindOf(random, limits), isCareful: oneIn(random, 2) }),
  async play(world, { kind, isCareful }) {
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    const { etcd } = world.cluster;
    const path = `${CRDS}/${crdNameOf(plan)}`;
    const found = await world.user.send("GET", path);
    const { group, versions = [] } = (found?.body["spec"] ?? {}) as {
      group?: string;
      versions?: readonly CrdVersion[];
    };
    const storage = versions.find((version) => version.storage)?.name;
    if (storage === undefined) return;
    const objects = etcd.range(`/registry/${group}/${plan.plural}/`);
    if (isCareful && objects.some(({ object }) => object.apiVersion !== `${group}/${storage}`)) return;
    const answer = await world.user.send("PATCH", `${path}/status`, { status: { storedVersions: [storage] } }, MERGE);
    world.tell("user", `prunes to ${storage}: ${answer?.status ?? "nobody answers"}`);
  },
});

/**
 * Another client takes all but one version out of storedVersions whenever there are several: one that decided before the storage
 * version changed. Of the seeds only those have it that verify, see `reencryptions.ts`.
 */
export const keepPruning = sort<{
  readonly kind: number;
  readonly to: string;
  readonly everyMs: number;
  readonly ms: number;
}>({
  name: "keepPruning",
  suits: () => false,
  choose(random, limits) {
    const kind = kindOf(random, limits);
    return { kind, to: oneOf(random, limits.kinds[kind]?.versions ?? []), everyMs: 1_000, ms: lastingOf(random) };
  },
  async play(world, { kind, to, everyMs, ms }) {
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    const { schedule, user } = world;
    const path = `${CRDS}/${crdNameOf(plan)}`;
    for (const end = schedule.now + ms; schedule.now < end; await schedule.wait(everyMs)) {
      const body = (await user.send("GET", path))?.body as unknown as CustomResourceDefinition | undefined;
      if (body === undefined || (body.status?.storedVersions ?? []).length < 2) continue;
      const { resourceVersion } = body.metadata;
      await user.send(
        "PATCH",
        `${path}/status`,
        { metadata: { resourceVersion }, status: { storedVersions: [to] } },
        MERGE,
      );
    }
  },
});

/**
 * Another client prunes what a migration says is migrated, as those do that run a controller with `--manage-stored-versions=false`. Of the seeds only
 * those have it that have such a controller, see `unmanaged.ts`.
 */
export const pruneMigrated = sort<{ readonly kind: number; readonly everyMs: number; readonly ms: number }>({
  name: "pruneMigrated",
  suits: () => false,
  choose: (random, limits) => ({ kind: kindOf(random, limits), everyMs: 1_000, ms: lastingOf(random) }),
  async play(world, { kind, everyMs, ms }) {
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    const { schedule, user } = world;
    const path = `${CRDS}/${crdNameOf(plan)}`;
    for (const end = schedule.now + ms; schedule.now < end; await schedule.wait(everyMs)) {
      const found = await user.send("GET", path);
      const crd = found?.body as unknown as CustomResourceDefinition | undefined;
      if (found?.status !== 200 || crd === undefined || isClean(crd)) continue;
      const migrations = (await user.send("GET", collectionPath(MIGRATIONS)))?.body["items"] ?? [];
      if (!(migrations as readonly StorageVersionMigration[]).some((one) => provesMigrated(one, crd))) continue;
      const { resourceVersion } = crd.metadata;
      const to = storageVersionOf(crd);
      const status = { storedVersions: [to] };
      const answer = await user.send("PATCH", `${path}/status`, { metadata: { resourceVersion }, status }, MERGE);
      world.tell("user", `prunes ${specKeyOf(crd.metadata)} to ${to}: ${answer?.status ?? "nobody answers"}`);
    }
  },
});
