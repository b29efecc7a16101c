import { storedVersionsOf } from "../../crd.ts";
import {
  hasCondition,
  type StorageState,
  type StorageVersionMigration,
  UNKNOWN_HASH,
} from "../../../src/api/migration.ts";
import { FORCE_ANNOTATION } from "../../../src/api/names.ts";
import { reencryptionWishOf } from "../../../src/api/reencryption.ts";
import type { EtcdEntry } from "../model/etcd.ts";
import { CRD_PREFIX } from "../model/kinds.ts";
import { currentWriter } from "../world/api-server.ts";
import { crdNameOf, groupOf, prefixOf, resourceOf } from "../world/kinds.ts";
import type { SimProcess } from "../world/process.ts";
import { isByKsvm, type ProgramEnd, type Work, type World } from "../world/world.ts";
import { type Claim, Claims, crdIn, neverClean, pastOf } from "./past.ts";

export const MIGRATIONS_PREFIX = "/registry/migration.k8s.io/storageversionmigrations/";
export const STATES_PREFIX = "/registry/migration.k8s.io/storagestates/";

/** Longer than from a look at a CRD until what follows from it is written, requests that are held included, in milliseconds. */
const LOOK_MS = 150_000;

/**
 * What ksvm tells is what etcd shows: how a `ksvm migrate` or `ksvm reencrypt` ends, a migration that is Succeeded, and the versions that a
 * StorageState names. And a run with a failed object prunes nothing.
 */
export function checkTold(world: World): void {
  const claims = new Claims(world);
  checkEnds(world, claims);
  checkMigrations(world, claims);
  checkStates(world);
}

function checkEnds(world: World, claims: Claims): void {
  const { etcd } = world.cluster;
  const startedAt = new Map<SimProcess, number>();
  const pruned = new Set<string>();
  etcd.onRevision(({ before, isDeleted, key, object }) => {
    if (!key.startsWith(CRD_PREFIX) || before === undefined || isDeleted || !isByKsvm()) return;
    const [was, is] = [storedVersionsOf(crdIn(before)), storedVersionsOf(crdIn({ object }))];
    const name = key.slice(CRD_PREFIX.length);
    if (was.some((version) => !is.includes(version))) pruned.add(`${currentWriter()} ${name}`);
  });
  world.onStart.push(({ process }) => startedAt.set(process, etcd.revision));
  const problemOf = ({ kind, plan, process }: Work, end: ProgramEnd, since: number): string | undefined => {
    const claim: Claim = { kind, writer: process.name, since, crd: end.crd, encryption: end.encryption };
    const past = kind.isBuiltIn === true ? undefined : pastOf(etcd, crdNameOf(kind));
    switch (end.how) {
      case "migrated":
        if (end.failed > 0) return `${end.failed} objects failed`;
        if (plan.run === "reencrypt") return claims.notReencrypted(claim);
        if (past === undefined && kind.isBuiltIn !== true) return undefined;
        return claims.notMigrated(claim) ?? (past && neverClean(past, since, claims.storageVersion(claim)));
      case "nothing-to-do":
        if (plan.force) return "it was forced";
        return past && neverClean(past, since);
      case "incomplete":
        if (end.failed === 0) return "no object failed";
        return pruned.has(`${process.name} ${crdNameOf(kind)}`) ? "it pruned" : undefined;
      default:
        return undefined;
    }
  };
  world.onEnd.push((work, end) => {
    const { name } = work.process;
    if (work.plan.run === "controller") return;
    const problem = problemOf(work, end, startedAt.get(work.process) ?? 0);
    if (problem !== undefined) world.violate(`told: ${name} says ${end.how}, and ${problem}`);
  });
}

/** What a migration says once ksvm calls it Succeeded. */
function checkMigrations(world: World, claims: Claims): void {
  const { etcd } = world.cluster;
  const problemOf = (migration: StorageVersionMigration, { createRevision: since }: EtcdEntry): string | undefined => {
    const { group, resource } = migration.spec.resource;
    const kind = world.plan.kinds.find((one) => one.plural === resource && groupOf(one) === group);
    if (kind === undefined) return undefined;
    const { message = "", reason } = migration.status?.conditions?.find(({ type }) => type === "Succeeded") ?? {};
    const { annotations = {} } = migration.metadata;
    const encryption = /sha256:[0-9a-f]{64}$/.exec(message)?.[0];
    const claim: Claim = { kind, writer: currentWriter() ?? "", since, crd: migration.status?.crd, encryption };
    if (reencryptionWishOf(annotations) !== undefined) return claims.notReencrypted(claim);
    const past = kind.isBuiltIn === true ? undefined : pastOf(etcd, crdNameOf(kind));
    if (reason === "NothingToDo") {
      if (annotations[FORCE_ANNOTATION] === "true") return "it is forced";
      return past && neverClean(past, since);
    }
    if (past === undefined && kind.isBuiltIn !== true) return undefined;
    return claims.notMigrated(claim) ?? (past && neverClean(past, since, claims.storageVersion(claim)));
  };
  etcd.onRevision((entry) => {
    const { before, isDeleted, key, object } = entry;
    if (!key.startsWith(MIGRATIONS_PREFIX) || isDeleted || !isByKsvm()) return;
    const migration = object as unknown as StorageVersionMigration;
    const wasSucceeded =
      before !== undefined && hasCondition(before.object as unknown as StorageVersionMigration, "Succeeded");
    if (!hasCondition(migration, "Succeeded") || wasSucceeded) return;
    const problem = problemOf(migration, entry);
    if (problem !== undefined) world.violate(`told: ${key} is Succeeded, and ${problem}`);
  });
}

/**
 * A StorageState that ksvm writes names every version that an object is stored in, but for objects written after a change of the CRD that it
 * may not have seen yet, and but for a CRD of which another client pruned a version: that nobody can know.
 */
function checkStates(world: World): void {
  const { etcd } = world.cluster;
  const { schedule } = world;
  const times: number[] = [];
  /** The uids of CRDs that others pruned. */
  const hidden = new Set<string>();
  const judge = ({ key, object }: EtcdEntry): void => {
    const kind = world.plan.kinds.find((one) => key === `${STATES_PREFIX}${resourceOf(one)}`);
    const { status } = object as unknown as StorageState;
    const persisted = status?.persistedStorageVersionHashes ?? [UNKNOWN_HASH];
    const past = kind === undefined || kind.isBuiltIn === true ? undefined : pastOf(etcd, crdNameOf(kind));
    if (kind === undefined || past === undefined || persisted.includes(UNKNOWN_HASH) || hidden.has(past.uid)) return;
    const since = schedule.now - LOOK_MS;
    const unseen =
      past.states.find(({ revision }) => (times[revision] ?? 0) >= since)?.revision ?? Number.POSITIVE_INFINITY;
    const isListed = (version: string): boolean =>
      past.states.some(({ storedVersions }) => storedVersions.includes(version));
    for (const { key: of, modRevision, object: stored } of etcd.range(prefixOf(kind))) {
      const version = stored.apiVersion.split("/")[1] ?? "";
      // A version that was never listed is what a late write of an earlier CRD of this name left.
      if (modRevision >= unseen || !isListed(version) || persisted.includes(past.hashOf(version))) continue;
      return world.violate(`told: ${key} names [${persisted.join(", ")}], and ${of} is stored as ${version}`);
    }
  };
  etcd.onRevision((entry) => {
    const { before, isDeleted, key, modRevision, object } = entry;
    times[modRevision] = schedule.now;
    if (key.startsWith(CRD_PREFIX) && !isByKsvm() && before !== undefined && !isDeleted) {
      const is = storedVersionsOf(crdIn({ object }));
      if (storedVersionsOf(crdIn(before)).some((version) => !is.includes(version)))
        hidden.add(crdIn(before).metadata.uid);
    }
    if (key.startsWith(STATES_PREFIX) && !isDeleted && isByKsvm()) judge(entry);
  });
}
