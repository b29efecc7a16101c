import { isDeepStrictEqual } from "node:util";
import type { ObjectMeta, OwnerReference } from "../api/meta.ts";
import { isFinished, isSuspended, resourceNameOf, stateOf, type StorageVersionMigration } from "../api/migration.ts";
import { CREATED_BY_INIT, CREATED_BY_LABEL, MANAGED_BY, MANAGED_BY_LABEL, REENCRYPT_ANNOTATION } from "../api/names.ts";
import { besideHelm } from "../api/ours.ts";
import { parseMigration } from "../api/parse-migration.ts";
import { asksForReencryption, reencryptAnnotation, type ReencryptionWish } from "../api/reencryption.ts";
import { KsvmError } from "../errors.ts";
import { findOtherMigrators, type OtherMigrator, removeOtherMigrator } from "../in-tree/other-migrators.ts";
import { crdOwnerOf, manifestOf } from "../migrations/manifest.ts";
import { isDeleted } from "../migrations/read-migration.ts";
import type { Projection } from "../old/json/json-projection.ts";
import { isServed } from "../old/kube/absent.ts";
import { isConflict, type KubeObject } from "../old/kube/client.ts";
import { failureKindOf } from "../old/kube/failure.ts";
import { listProjected } from "../old/kube/list-projected.ts";
import { metadataProjection } from "../old/kube/metadata-projection.ts";
import { APPLY_PATCH, CRDS, MIGRATIONS, type Resource, STORAGE_STATES } from "../old/kube/resources.ts";
import { type DiscoverContext, discoverMigratable, type Discovery } from "../resources/discover.ts";
import type { SkippedResource } from "../resources/migratable.ts";
import { storedResources } from "../resources/stored-resources.ts";
import { type ShippedCrd, shippedCrds } from "./shipped-crds.ts";

/** What a user may choose. */
export interface InitOptions {
  /** Where the controller is installed. */
  readonly namespace: string;
  /** Removes other migrators instead of refusing. */
  readonly replace: boolean;
  /** Has every served resource re-encrypted. @default what is due is migrated */
  readonly reencryption?: ReencryptionWish | undefined;
  /** Writes nothing. The CRDs are sent as dry runs, so that the API servers and their admission have a say. */
  readonly dryRun: boolean;
}

/** What was done. Field names are those of `ksvm init -o json`. */
export interface InitResult {
  /** Whether nothing was done, and this is what would be. @default false */
  readonly isDryRun?: boolean;
  readonly replaced: readonly Pick<OtherMigrator, "namespace" | "name">[];
  readonly crds: readonly { readonly name: string; readonly result: "created" | "updated" | "unchanged" }[];
  /** How many migrations of an earlier init were deleted. */
  readonly deleted: number;
  readonly migrations: readonly { readonly name: string; readonly resource: string; readonly version: string }[];
  readonly skipped: readonly SkippedResource[];
  /** What may have resources to migrate, and could not be read: while there is any, the initializer is not done. */
  readonly unread: readonly SkippedResource[];
}

/**
 * The initializer of the migrator's proposal ("Migrating API objects to latest storage version"): installs the CRDs and
 * creates one migration for each resource there is. Whatever ended an earlier one, running it again comes to the same.
 *
 * @throws {KsvmError} OtherMigratorActive, before anything was changed
 */
export async function initialize(context: DiscoverContext, options: InitOptions): Promise<InitResult> {
  const { client, retrier, signal } = context;
  const { dryRun, reencryption } = options;
  const others = await retrier.run(() => findOtherMigrators(client, options.namespace, { signal }), signal);
  if (others.length > 0 && !options.replace) {
    const list = others.map((other) => `Deployment "${other.namespace}/${other.name}" (${other.because})`).join(", ");
    const what = `another migrator is active: ${list}; remove it, or pass --replace to have it removed`;
    throw new KsvmError("OtherMigratorActive", `Cannot initialize: ${what}`);
  }
  if (!dryRun) {
    for (const other of others) {
      await retrier.run(() => removeOtherMigrator(client, other, { signal }), signal);
    }
  }

  const crds: InitResult["crds"][number][] = [];
  for (const crd of shippedCrds()) {
    crds.push({ name: crd.metadata.name, result: await applyCrd(context, crd, dryRun) });
  }
  if (!dryRun) {
    for (const resource of [MIGRATIONS, STORAGE_STATES]) {
      await whenServed(context, () => client.listMetadata(resource, { limit: 1, signal }));
    }
  }

  const { migratable, skipped, unread } = await discoverFor(context, reencryption);
  const discovered: Discovered = {
    renewed: new Set(migratable.map(resourceNameOf)),
    unknownGroups: new Set([...skipped, ...unread].flatMap(({ group }) => group ?? [])),
    reencryption,
  };
  const { deleted, left } = await replaceEarlier(context, discovered, dryRun);
  const metadata = {
    annotations: reencryption === undefined ? {} : reencryptAnnotation(reencryption),
    ownerReferences: dryRun ? [] : [await findOwner(context)],
  };
  const created: InitResult["migrations"][number][] = [];
  for (const resource of migratable.filter((one) => !left.has(resourceNameOf(one)))) {
    const name = dryRun ? "" : await createMigration(context, resource, metadata);
    created.push({ name, resource: resourceNameOf(resource), version: resource.version });
  }
  const kept = [...left].map(([resource, reason]) => ({ resource, reason }));
  return {
    ...(dryRun ? { isDryRun: true } : {}),
    replaced: others.map(({ namespace, name }) => ({ namespace, name })),
    crds,
    deleted,
    migrations: created,
    skipped: [...skipped, ...kept],
    unread,
  };
}

/** How long a CRD may take to be served, or to be gone, in milliseconds. */
const CRD_TIMEOUT_MS = 60_000;
const CRD_POLL_MS = 200;

/**
 * Sends a request about objects of the CRDs until it is served: an API server serves them some time after it took the
 * CRD, and each one in its own time.
 */
async function whenServed<T>({ clock, retrier, signal }: DiscoverContext, send: () => Promise<T>): Promise<T> {
  const deadline = clock.monotonic() + CRD_TIMEOUT_MS;
  for (;;) {
    try {
      return await retrier.run(send, signal);
    } catch (error) {
      if (failureKindOf(error) !== "unserved" || clock.monotonic() >= deadline) throw error;
    }
    await clock.sleep(CRD_POLL_MS, signal);
  }
}

async function applyCrd(
  context: DiscoverContext,
  crd: ShippedCrd,
  dryRun: boolean,
): Promise<InitResult["crds"][number]["result"]> {
  const { client, retrier, signal } = context;
  const { name } = crd.metadata;
  const before = await findCrdToStay(context, name);
  const patch = { type: APPLY_PATCH, body: besideHelm(crd, before) };
  const options = { fieldManager: "ksvm-init", force: true, dryRun, signal };
  const after = await retrier.run(() => client.patch<KubeObject>(CRDS, { name }, patch, options), signal);
  if (before === undefined) return "created";
  return isDeepStrictEqual(contentOf(before), contentOf(after)) ? "unchanged" : "updated";
}

function contentOf({ metadata, ...rest }: KubeObject): object {
  const { spec } = rest as { readonly spec?: unknown };
  return { labels: metadata.labels, annotations: metadata.annotations, spec };
}

/** A dry run does not say by a resourceVersion whether anything changed. */

/** A CRD that is being deleted takes what is written to it along: it is waited for until it is gone. */
async function findCrdToStay(
  { client, clock, retrier, signal }: DiscoverContext,
  name: string,
): Promise<KubeObject | undefined> {
  const deadline = clock.monotonic() + CRD_TIMEOUT_MS;
  for (;;) {
    const found = await retrier.run(() => client.find<KubeObject>(CRDS, { name }, { signal }), signal);
    if (found?.metadata.deletionTimestamp === undefined) return found;
    if (clock.monotonic() >= deadline) {
      const text = `CustomResourceDefinition "${name}" is being deleted, for ${CRD_TIMEOUT_MS / 1_000} s by now`;
      throw new KsvmError("Conflict", `Cannot initialize: ${text}`);
    }
    await clock.sleep(CRD_POLL_MS, signal);
  }
}

/** Re-encryption leaves no stored object out, and what an aggregated API server stores it cannot reach. */
async function discoverFor(
  context: DiscoverContext,
  reencryption: ReencryptionWish | undefined,
): Promise<Omit<Discovery, "migratable"> & { readonly migratable: readonly Resource[] }> {
  if (reencryption === undefined) return discoverMigratable(context);
  const { resources: migratable, skipped, unread } = await storedResources(context);
  return { migratable, skipped, unread };
}

async function findOwner({ client, retrier, signal }: DiscoverContext): Promise<OwnerReference> {
  const ref = { name: resourceNameOf(MIGRATIONS) };
  return crdOwnerOf((await retrier.run(() => client.getMetadata(CRDS, ref, { signal }), signal)).metadata);
}

async function createMigration(
  context: DiscoverContext,
  resource: Resource,
  metadata: Pick<ObjectMeta, "annotations" | "ownerReferences">,
): Promise<string> {
  const { client, signal } = context;
  const labels = { [MANAGED_BY_LABEL]: MANAGED_BY, [CREATED_BY_LABEL]: CREATED_BY_INIT };
  const migration = manifestOf(resource, { ...metadata, labels });
  // Where an answer is lost, a second one is created: it waits for the first, and then finds nothing to do.
  const create = (): Promise<StorageVersionMigration> => client.create(MIGRATIONS, migration, { signal });
  return (await whenServed(context, create)).metadata.name;
}

/** What migrations are created for. */
interface Discovered {
  /** Names of the resources that get a migration. */
  readonly renewed: ReadonlySet<string>;
  /** Those with resources that could not be read, so that no migration would take the place of an earlier one. */
  readonly unknownGroups: ReadonlySet<string>;
  /** What they re-encrypt with; `undefined` where they do not. */
  readonly reencryption: ReencryptionWish | undefined;
}

/** What is there already. */
interface Present {
  /** Migrations of an earlier initializer, to be replaced. */
  readonly earlier: readonly ObjectMeta[];
  /** Resources with a migration that is left as it is, so that they get no other one, each with the reason. */
  readonly left: ReadonlyMap<string, string>;
}

const MAX_ROUNDS = 20;
const ROUND_MS = 500;

/**
 * Deletes the migrations of an earlier initializer. One that was written since it was read is read again: a user may
 * have stopped it.
 *
 * @throws {KsvmError} Conflict where other clients write them again and again
 */
async function replaceEarlier(
  context: DiscoverContext,
  discovered: Discovered,
  dryRun: boolean,
): Promise<Pick<Present, "left"> & { readonly deleted: number }> {
  const { client, clock, retrier, signal } = context;
  if (dryRun) {
    // There are none where their CRD is not there yet.
    const isThere = await retrier.run(() => isServed(client.transport, MIGRATIONS, { signal }), signal);
    const { earlier, left } = isThere ? await present(context, discovered) : { earlier: [], left: new Map() };
    return { deleted: earlier.length, left };
  }
  let deleted = 0;
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const { earlier, left } = await present(context, discovered);
    let isDone = true;
    for (const { name, resourceVersion, uid } of earlier) {
      try {
        const options = { preconditions: { uid, resourceVersion }, signal };
        // Another API server than the one that listed it may answer, which does not serve them yet.
        await whenServed(context, () => client.delete(MIGRATIONS, { name }, options));
        deleted++;
      } catch (error) {
        if (!isConflict(error)) throw error;
        isDone = false;
      }
    }
    if (isDone) return { deleted, left };
    await clock.sleep(ROUND_MS, signal);
  }
  const text = "other clients write the migrations of an earlier init again and again";
  throw new KsvmError("Conflict", `Cannot initialize: ${text}`);
}

const PAGE_SIZE = 100;
/** What is read of the migrations that are there. */
const PRESENT_FIELDS: Projection = {
  fields: {
    metadata: metadataProjection({
      deletionTimestamp: "all",
      labels: { fields: { [CREATED_BY_LABEL]: "all" } },
      annotations: { fields: { [REENCRYPT_ANNOTATION]: "all" } },
    }),
    spec: { fields: { resource: "all", suspend: "all" } },
    status: { fields: { conditions: { items: { fields: { type: "all", status: "all" } } } } },
  },
};

/** Which migrations there are, and what is to become of them. */
async function present(context: DiscoverContext, discovered: Discovered): Promise<Present> {
  const { client, signal } = context;
  const list = { limit: PAGE_SIZE, projection: PRESENT_FIELDS, signal };
  const { items } = await whenServed(context, () => listProjected(client.transport, MIGRATIONS, list));
  const earlier: ObjectMeta[] = [];
  const left = new Map<string, string>();
  for (const migration of items.flatMap((item) => parseMigration(item).object ?? [])) {
    if (isDeleted(migration)) continue;
    const reason = reasonToLeave(migration, discovered);
    if (reason !== undefined) left.set(resourceNameOf(migration.spec.resource), reason);
    else if (isReplaced(migration, discovered)) earlier.push(migration.metadata);
  }
  return { earlier, left };
}

/**
 * Why a migration is neither deleted nor another one created beside it: a user stopped it; or it re-encrypts or failed
 * to, and one that knows nothing of the key is not to take its place: its failure may be all that says that the old key
 * is needed. One that is to re-encrypt may wait for one that a user stopped.
 */
function reasonToLeave(migration: StorageVersionMigration, { renewed, reencryption }: Discovered): string | undefined {
  const { metadata, spec } = migration;
  const isReencryption = asksForReencryption(metadata.annotations);
  if (isStopped(migration)) {
    return reencryption === undefined || isReencryption ? "its migration is suspended" : undefined;
  }
  const state = stateOf(migration);
  const isUndone = isReencryption && isOurs(migration) && state !== "Succeeded";
  if (!isUndone || reencryption !== undefined || !renewed.has(resourceNameOf(spec.resource))) return undefined;
  return state === "Failed" ? "its re-encryption failed, which init --force repeats" : "its migration re-encrypts it";
}

function isReplaced(migration: StorageVersionMigration, { renewed, unknownGroups }: Discovered): boolean {
  const { resource } = migration.spec;
  const isKnown = renewed.has(resourceNameOf(resource)) || !unknownGroups.has(resource.group ?? "");
  return isKnown && isOurs(migration) && !isStopped(migration);
}

function isStopped(migration: StorageVersionMigration): boolean {
  return isSuspended(migration) && !isFinished(migration);
}

function isOurs({ metadata }: StorageVersionMigration): boolean {
  return metadata.labels?.[CREATED_BY_LABEL] === CREATED_BY_INIT;
}
