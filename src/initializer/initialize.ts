import { isDeepStrictEqual } from "node:util";
import type { ObjectMeta } from "../api/meta.ts";
import {
  isFinished,
  isSuspended,
  MIGRATION_GROUP,
  MIGRATIONS,
  resourceNameOf,
  stateOf,
  STORAGE_STATES,
  type StorageVersionMigration,
} from "../api/migration.ts";
import { CREATED_BY_INIT, CREATED_BY_LABEL, MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import { besideHelm } from "../api/ours.ts";
import { parseMigration } from "../api/parse-migration.ts";
import { asksForReencryption, reencryptAnnotation, type ReencryptionWish } from "../api/reencryption.ts";
import { KsvmError } from "../errors.ts";
import { everyItem } from "../inventory/inventory.ts";
import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import { CRDS, type KubeObject, METADATA } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { findOtherMigrators, type OtherMigrator, removeOtherMigrator } from "../in-tree/other-migrators.ts";
import { crdOwnerOf, manifestOf } from "../migrations/manifest.ts";
import { isDeleted } from "../migrations/read-migration.ts";
import { discoverMigratable, storedResources, type StoredResources } from "../resources/discover.ts";
import type { SkippedResource } from "../resources/migratable.ts";
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
export async function initialize(client: Client, options: InitOptions, signal: AbortSignal): Promise<InitResult> {
  const { dryRun, reencryption } = options;
  const others = await findOtherMigrators(client, options.namespace, signal);
  if (others.length > 0 && !options.replace) {
    const list = others.map((other) => `Deployment "${other.namespace}/${other.name}" (${other.because})`).join(", ");
    const what = `another migrator is active: ${list}; remove it, or pass --replace to have it removed`;
    throw new KsvmError("OtherMigratorActive", `Cannot initialize: ${what}`);
  }
  if (!dryRun) for (const other of others) await removeOtherMigrator(client, other, signal);

  const crds: InitResult["crds"][number][] = [];
  for (const crd of shippedCrds()) {
    crds.push({ name: crd.metadata.name, result: await applyCrd(client, crd, dryRun, signal) });
  }
  if (!dryRun) {
    for (const path of [MIGRATIONS, STORAGE_STATES]) {
      await whenServed(client, () => client.list(path, { query: { limit: 1 }, signal }), signal);
    }
  }

  const { migratable, skipped, unread } = await discoverFor(client, reencryption, signal);
  const discovered: Discovered = {
    renewed: new Set(migratable.map(resourceNameOf)),
    unknownGroups: new Set([...skipped, ...unread].flatMap(({ group }) => group ?? [])),
    reencryption,
  };
  const { deleted, left } = await replaceEarlier(client, discovered, dryRun, signal);
  const crdPath = `${CRDS}/storageversionmigrations.${MIGRATION_GROUP}`;
  const getOwner = (): Promise<KubeObject> => client.get<KubeObject>(crdPath, { accept: METADATA, signal });
  const metadata = {
    annotations: reencryption === undefined ? {} : reencryptAnnotation(reencryption),
    labels: { [MANAGED_BY_LABEL]: MANAGED_BY, [CREATED_BY_LABEL]: CREATED_BY_INIT },
    ownerReferences: dryRun ? [] : [crdOwnerOf((await retry(client, getOwner, { signal })).metadata)],
  };
  const created: InitResult["migrations"][number][] = [];
  for (const resource of migratable.filter((one) => !left.has(resourceNameOf(one)))) {
    // Where an answer is lost, a second one is created: it waits for the first, and then finds nothing to do.
    const create = (): Promise<StorageVersionMigration> =>
      client.create(MIGRATIONS, manifestOf(resource, metadata), { signal });
    const name = dryRun ? "" : (await whenServed(client, create, signal)).metadata.name;
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
async function whenServed<T>(client: Client, send: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const { clock } = client;
  const deadline = clock.monotonic() + CRD_TIMEOUT_MS;
  for (;;) {
    try {
      return await retry(client, send, { signal });
    } catch (error) {
      if (whose(error) !== "gone" || clock.monotonic() >= deadline) throw error;
    }
    await clock.sleep(CRD_POLL_MS, signal);
  }
}

async function applyCrd(
  client: Client,
  crd: ShippedCrd,
  dryRun: boolean,
  signal: AbortSignal,
): Promise<InitResult["crds"][number]["result"]> {
  const { clock } = client;
  const { name } = crd.metadata;
  const path = `${CRDS}/${name}`;
  const find = (): Promise<KubeObject | undefined> => client.find<KubeObject>(path, { signal });
  let before = await retry(client, find, { signal });
  // A CRD that is being deleted takes what is written to it along: it is waited for until it is gone.
  const deadline = clock.monotonic() + CRD_TIMEOUT_MS;
  while (before?.metadata.deletionTimestamp !== undefined) {
    if (clock.monotonic() >= deadline) {
      const text = `CustomResourceDefinition "${name}" is being deleted, for ${CRD_TIMEOUT_MS / 1_000} s by now`;
      throw new KsvmError("Conflict", `Cannot initialize: ${text}`);
    }
    await clock.sleep(CRD_POLL_MS, signal);
    before = await retry(client, find, { signal });
  }
  const wanted = besideHelm(crd, before);
  const options = { fieldManager: "ksvm-init", dryRun, signal };
  const after = await retry(client, () => client.apply<KubeObject>(path, wanted, options), { signal });
  if (before === undefined) return "created";
  // A dry run does not say by a resourceVersion whether anything changed.
  return isDeepStrictEqual(contentOf(before), contentOf(after)) ? "unchanged" : "updated";
}

function contentOf({ metadata, ...rest }: KubeObject): object {
  const { spec } = rest as { readonly spec?: unknown };
  return { labels: metadata.labels, annotations: metadata.annotations, spec };
}

/** Re-encryption leaves no stored object out, and what an aggregated API server stores it cannot reach. */
async function discoverFor(
  client: Client,
  reencryption: ReencryptionWish | undefined,
  signal: AbortSignal,
): Promise<Pick<StoredResources, "skipped" | "unread"> & { readonly migratable: StoredResources["resources"] }> {
  if (reencryption === undefined) return discoverMigratable(client, signal);
  const { resources: migratable, skipped, unread } = await storedResources(client, signal);
  return { migratable, skipped, unread };
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
  client: Client,
  discovered: Discovered,
  dryRun: boolean,
  signal: AbortSignal,
): Promise<Pick<Present, "left"> & { readonly deleted: number }> {
  if (dryRun) {
    const { earlier, left } = await present(client, discovered, signal).catch((error: unknown): Present => {
      // There are none where their CRD is not there yet.
      if (whose(error) === "gone") return { earlier: [], left: new Map() };
      throw error;
    });
    return { deleted: earlier.length, left };
  }
  let deleted = 0;
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const { earlier, left } = await whenServed(client, () => present(client, discovered, signal), signal);
    let isDone = true;
    for (const { name, resourceVersion, uid } of earlier) {
      const path = `${MIGRATIONS}/${encodeURIComponent(name)}`;
      const options = { preconditions: { uid, resourceVersion }, signal };
      try {
        // Another API server than the one that listed it may answer, which does not serve them yet.
        await whenServed(client, () => client.delete(path, options), signal);
        deleted++;
      } catch (error) {
        if (whose(error) !== "conflict") throw error;
        isDone = false;
      }
    }
    if (isDone) return { deleted, left };
    await client.clock.sleep(ROUND_MS, signal);
  }
  const text = "other clients write the migrations of an earlier init again and again";
  throw new KsvmError("Conflict", `Cannot initialize: ${text}`);
}

/** Which migrations there are, and what is to become of them. */
async function present(client: Client, discovered: Discovered, signal: AbortSignal): Promise<Present> {
  const earlier: ObjectMeta[] = [];
  const left = new Map<string, string>();
  for await (const item of everyItem(client, MIGRATIONS, signal)) {
    const migration = parseMigration(item).object;
    if (migration === undefined || isDeleted(migration)) continue;
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
