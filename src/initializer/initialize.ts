import type { ObjectMeta, OwnerReference, PartialObjectMetadata } from "../api/meta.ts";
import { isFinished, isSuspended, resourceNameOf, type StorageVersionMigration } from "../api/migration.ts";
import { parseMigration } from "../api/parse-migration.ts";
import { CREATED_BY_INIT, CREATED_BY_LABEL, MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import { type ApiClient, isConflict, type KubeObject } from "../kube/client.ts";
import { failureKindOf } from "../kube/failure.ts";
import type { Projection } from "../json/json-projection.ts";
import { listProjected } from "../kube/list-projected.ts";
import { APPLY_PATCH, CRDS, MIGRATIONS, type Resource, STORAGE_STATES } from "../kube/resources.ts";
import { crdOwnerOf, ownMigrationsByCrd } from "../migrations/crd-owner.ts";
import { manifestOf } from "../migrations/manifest.ts";
import type { Retrier } from "../retry/retrier.ts";
import { CONFLICT_PACE, MAX_CONFLICTS } from "../freeze/freeze.ts";
import { discoverMigratable } from "../resources/discover.ts";
import type { SkippedResource } from "../resources/migratable.ts";
import { findOtherMigrators, type OtherMigrator, removeOtherMigrator } from "../in-tree/other-migrators.ts";
import { type ShippedCrd, shippedCrds } from "./shipped-crds.ts";

const FIELD_MANAGER = "ksvm-init";
const PAGE_SIZE = 100;
/** What is read of the migrations that are there. */
const PRESENT_FIELDS: Projection = {
  fields: {
    metadata: {
      fields: { name: "all", uid: "all", resourceVersion: "all", labels: { fields: { [CREATED_BY_LABEL]: "all" } } },
    },
    spec: { fields: { resource: "all", suspend: "all" } },
    status: { fields: { conditions: { items: { fields: { type: "all", status: "all" } } } } },
  },
};
/** How long a CRD may take to be served, or to be gone. */
const CRD_TIMEOUT_MS = 60_000;
const CRD_POLL_MS = 200;
const NOT_OWNED = "a ClusterRole owns it and goes with it, and the API server refuses to change that";

/** What {@link initialize} needs. */
export interface InitContext {
  readonly client: ApiClient;
  readonly retrier: Retrier;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** As in {@link DiscoverContext}. */
  readonly discoveryPatienceMs?: number;
}

/** What a user may choose. */
export interface InitOptions {
  /** Where the controller is installed. */
  readonly namespace: string;
  /** Removes other migrators instead of refusing. */
  readonly replace: boolean;
}

/** What was done. Field names are those of `ksvm init -o json`. */
export interface InitResult {
  readonly replaced: readonly Pick<OtherMigrator, "namespace" | "name">[];
  readonly crds: readonly { readonly name: string; readonly result: "created" | "updated" | "unchanged" }[];
  /** How many migrations of an earlier init were deleted. */
  readonly deleted: number;
  readonly migrations: readonly { readonly name: string; readonly resource: string; readonly version: string }[];
  readonly skipped: readonly SkippedResource[];
  /** What may have resources to migrate, and could not be read: as long as there is any, the initializer is not done. */
  readonly unread: readonly SkippedResource[];
}

/**
 * The initializer of the migrator's proposal ("Migrating API objects to latest storage version"): installs the CRDs and
 * creates one migration for each resource there is. Whatever ended an earlier one, running it again comes to the same.
 * @throws {KsvmError} OtherMigratorActive, before anything was changed.
 */
export async function initialize(context: InitContext, options: InitOptions): Promise<InitResult> {
  const replaced = await replaceOthers(context, options);
  const crds: InitResult["crds"][number][] = [];
  for (const crd of shippedCrds()) {
    crds.push({ name: crd.metadata.name, result: await applyCrd(context, crd) });
  }
  for (const resource of [MIGRATIONS, STORAGE_STATES]) {
    await whenServed(context, () => context.client.listMetadata(resource, { limit: 1, signal: context.signal }));
  }
  // It asks again, maybe another API server, which does not serve them yet.
  const { refused } = await whenServed(context, () => ownMigrationsByCrd(context));
  const { migratable, skipped, unread } = await discoverMigratable(context);
  const unknownGroups = new Set([...skipped, ...unread].flatMap(({ group }) => group ?? []));
  const renewed = new Set(migratable.map(resourceNameOf));
  const { deleted, stopped } = await replaceEarlier(context, { renewed, unknownGroups });
  const owner = await findOwner(context);
  const migrations: InitResult["migrations"][number][] = [];
  for (const resource of migratable.filter((one) => !stopped.has(resourceNameOf(one)))) {
    const name = await createMigration(context, resource, owner);
    migrations.push({ name, resource: resourceNameOf(resource), version: resource.version });
  }
  const kept = [...stopped].map((resource) => ({ resource, reason: "its migration is suspended" }));
  const notOwned = refused.map((name) => ({ resource: `migrations/${name}`, reason: NOT_OWNED }));
  return { replaced, crds, deleted, migrations, skipped: [...skipped, ...kept, ...notOwned], unread };
}

async function replaceOthers(
  { client, retrier, signal }: InitContext,
  { namespace, replace }: InitOptions,
): Promise<InitResult["replaced"]> {
  const others = await retrier.run(() => findOtherMigrators(client, namespace, { signal }), signal);
  if (others.length > 0 && !replace) {
    const list = others.map((other) => `Deployment "${other.namespace}/${other.name}" (${other.because})`).join(", ");
    const text = `Cannot initialize: another migrator is active: ${list}; remove it, or pass --replace to have it removed`;
    throw new KsvmError("OtherMigratorActive", text);
  }
  for (const other of others) {
    await retrier.run(() => removeOtherMigrator(client, other, { signal }), signal);
  }
  return others.map(({ namespace: where, name }) => ({ namespace: where, name }));
}

async function applyCrd(context: InitContext, crd: ShippedCrd): Promise<"created" | "updated" | "unchanged"> {
  const { client, retrier, signal } = context;
  const ref = { name: crd.metadata.name };
  const before = await findCrdToStay(context, ref.name);
  const patch = { type: APPLY_PATCH, body: crd };
  const options = { fieldManager: FIELD_MANAGER, force: true, signal };
  const after = await retrier.run(() => client.patch<KubeObject>(CRDS, ref, patch, options), signal);
  if (before === undefined) {
    return "created";
  }
  return before.metadata.resourceVersion === after.metadata.resourceVersion ? "unchanged" : "updated";
}

/** A CRD that is being deleted takes what is written to it along: it is waited for until it is gone. */
async function findCrdToStay(
  { client, clock, retrier, signal }: InitContext,
  name: string,
): Promise<KubeObject | undefined> {
  const deadline = clock.monotonic() + CRD_TIMEOUT_MS;
  for (;;) {
    const found = await retrier.run(() => client.find<KubeObject>(CRDS, { name }, { signal }), signal);
    if (found?.metadata.deletionTimestamp === undefined) {
      return found;
    }
    if (clock.monotonic() >= deadline) {
      const text = `Cannot initialize: CustomResourceDefinition "${name}" is being deleted, for ${CRD_TIMEOUT_MS / 1_000} s by now`;
      throw new KsvmError("Conflict", text);
    }
    await clock.sleep(CRD_POLL_MS, signal);
  }
}

/**
 * Sends a request about objects of the CRDs until it is served: an API server serves them some time after it took the
 * CRD, and each one in its own time.
 */
async function whenServed<T>({ clock, retrier, signal }: InitContext, send: () => Promise<T>): Promise<T> {
  const deadline = clock.monotonic() + CRD_TIMEOUT_MS;
  for (;;) {
    try {
      return await retrier.run(send, signal);
    } catch (error) {
      if (failureKindOf(error) !== "unserved" || clock.monotonic() >= deadline) {
        throw error;
      }
    }
    await clock.sleep(CRD_POLL_MS, signal);
  }
}

async function findOwner({ client, retrier, signal }: InitContext): Promise<OwnerReference> {
  const ref = { name: resourceNameOf(MIGRATIONS) };
  return crdOwnerOf(
    (await retrier.run(() => client.get<PartialObjectMetadata>(CRDS, ref, { signal }), signal)).metadata,
  );
}

/** What is there when the initializer begins. */
interface Present {
  /** Migrations of an earlier one, to be replaced. */
  readonly earlier: readonly ObjectMeta[];
  /** Resources with a migration that a user stopped: neither is it deleted, nor does its resource get another one that runs. */
  readonly stopped: ReadonlySet<string>;
}

interface Discovered {
  /** Names of the resources that get a migration. */
  readonly renewed: ReadonlySet<string>;
  /** Those with resources that could not be read, so that no migration would take the place of an earlier one. */
  readonly unknownGroups: ReadonlySet<string>;
}

async function readMigrations(context: InitContext, discovered: Discovered): Promise<Present> {
  const { client, signal } = context;
  const read = async (): Promise<Present> => {
    const earlier: ObjectMeta[] = [];
    const stopped = new Set<string>();
    const list = { limit: PAGE_SIZE, projection: PRESENT_FIELDS, signal };
    for (const item of (await listProjected(client.transport, MIGRATIONS, list)).items) {
      const { object } = parseMigration(item);
      const isStopped = object !== undefined && isSuspended(object) && !isFinished(object);
      if (isStopped) {
        stopped.add(resourceNameOf(object.spec.resource));
      } else if (object !== undefined && isReplaced(object, discovered)) {
        earlier.push(object.metadata);
      }
    }
    return { earlier, stopped };
  };
  return whenServed(context, read);
}

function isReplaced(
  { metadata, spec: { resource } }: StorageVersionMigration,
  { renewed, unknownGroups }: Discovered,
): boolean {
  const isOurs = metadata.labels?.[CREATED_BY_LABEL] === CREATED_BY_INIT;
  return isOurs && (renewed.has(resourceNameOf(resource)) || !unknownGroups.has(resource.group ?? ""));
}

/**
 * Deletes the migrations of an earlier initializer. One that was written since it was read is read again: a user may have stopped it.
 * @throws {KsvmError} Conflict where other clients write them again and again.
 */
async function replaceEarlier(
  context: InitContext,
  discovered: Discovered,
): Promise<Pick<Present, "stopped"> & { readonly deleted: number }> {
  const pace = context.retrier.pace(CONFLICT_PACE);
  let deleted = 0;
  for (let rounds = 0; rounds <= MAX_CONFLICTS; rounds++) {
    await pace.turn(context.signal);
    const { earlier, stopped } = await readMigrations(context, discovered);
    let left = earlier.length;
    for (const migration of earlier) {
      left -= (await deleteMigration(context, migration)) ? 1 : 0;
    }
    deleted += earlier.length - left;
    if (left === 0) {
      return { deleted, stopped };
    }
  }
  const text = "Cannot initialize: other clients write the migrations of an earlier init again and again";
  throw new KsvmError("Conflict", text);
}

/** @returns whether it is gone; where not, another client wrote it in between, or deleted it and created it again */
async function deleteMigration(context: InitContext, migration: ObjectMeta): Promise<boolean> {
  const { client, signal } = context;
  const { name, resourceVersion, uid } = migration;
  const options = { preconditions: { uid, resourceVersion }, signal };
  try {
    // Another API server than the one that listed it may answer, which does not serve them yet.
    await whenServed(context, () => client.delete(MIGRATIONS, { name }, options));
    return true;
  } catch (error) {
    if (!isConflict(error)) {
      throw error;
    }
    return false;
  }
}

async function createMigration(context: InitContext, resource: Resource, owner: OwnerReference): Promise<string> {
  const migration = manifestOf(resource, {
    labels: { [MANAGED_BY_LABEL]: MANAGED_BY, [CREATED_BY_LABEL]: CREATED_BY_INIT },
    ownerReferences: [owner],
  });
  // Where an answer is lost, a second one is created: it waits for the first, and then finds nothing to do.
  const { client, signal } = context;
  const create = (): Promise<StorageVersionMigration> => client.create(MIGRATIONS, migration, { signal });
  return (await whenServed(context, create)).metadata.name;
}
