import type { ObjectMeta, OwnerReference, PartialObjectMetadata } from "../api/meta.ts";
import { resourceNameOf, type StorageVersionMigration } from "../api/migration.ts";
import { CREATED_BY_INIT, CREATED_BY_LABEL, MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import { besideHelm } from "../api/ours.ts";
import { reencryptAnnotation, type ReencryptionWish } from "../api/reencryption.ts";
import { KsvmError } from "../errors.ts";
import type { KubeObject } from "../old/kube/client.ts";
import { APPLY_PATCH, CRDS, MIGRATIONS, type Resource, STORAGE_STATES } from "../old/kube/resources.ts";
import { crdOwnerOf } from "../migrations/crd-owner.ts";
import { manifestOf } from "../migrations/manifest.ts";
import { discoverMigratable, type Discovery } from "../resources/discover.ts";
import type { SkippedResource } from "../resources/migratable.ts";
import { storedResources } from "../resources/stored-resources.ts";
import { findOtherMigrators, type OtherMigrator, removeOtherMigrator } from "../in-tree/other-migrators.ts";
import { replaceEarlier } from "./earlier-migrations.ts";
import { type ShippedCrd, shippedCrds } from "./shipped-crds.ts";
import { CRD_POLL_MS, CRD_TIMEOUT_MS, type InitContext, whenServed } from "./when-served.ts";

/** The field manager of the CRDs. */
export const FIELD_MANAGER = "ksvm-init";

/** What a user may choose. */
export interface InitOptions {
  /** Where the controller is installed. */
  readonly namespace: string;
  /** Removes other migrators instead of refusing. */
  readonly replace: boolean;
  /** Has every served resource re-encrypted. @default what is due is migrated */
  readonly reencryption?: ReencryptionWish | undefined;
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
  return { replaced, crds, ...(await renew(context, options)) };
}

async function renew(
  context: InitContext,
  { reencryption }: InitOptions,
): Promise<Omit<InitResult, "crds" | "replaced">> {
  const { migratable, skipped, unread } = await discoverFor(context, { reencryption });
  const unknownGroups = new Set([...skipped, ...unread].flatMap(({ group }) => group ?? []));
  const renewed = new Set(migratable.map(resourceNameOf));
  const { deleted, left } = await replaceEarlier(context, { renewed, unknownGroups, reencryption });
  const annotations = reencryption === undefined ? {} : reencryptAnnotation(reencryption);
  const metadata = { annotations, ownerReferences: [await findOwner(context)] };
  const migrations: InitResult["migrations"][number][] = [];
  for (const resource of migratable.filter((one) => !left.has(resourceNameOf(one)))) {
    const name = await createMigration(context, resource, metadata);
    migrations.push({ name, resource: resourceNameOf(resource), version: resource.version });
  }
  const kept = [...left].map(([resource, reason]) => ({ resource, reason }));
  return { deleted, migrations, skipped: [...skipped, ...kept], unread };
}

/** What gets a migration. Re-encryption leaves no stored object out, and what an aggregated API server stores it cannot reach. */
export async function discoverFor(
  context: InitContext,
  { reencryption }: Pick<InitOptions, "reencryption">,
): Promise<Omit<Discovery, "migratable"> & { readonly migratable: readonly Resource[] }> {
  if (reencryption === undefined) {
    return await discoverMigratable(context);
  }
  const { resources: migratable, skipped, unread } = await storedResources(context);
  return { migratable, skipped, unread };
}

/**
 * Other migrators, all of which are to be removed.
 * @throws {KsvmError} OtherMigratorActive where the user did not ask for that.
 */
export async function othersToReplace(
  { client, retrier, signal }: InitContext,
  { namespace, replace }: Pick<InitOptions, "namespace" | "replace">,
): Promise<readonly OtherMigrator[]> {
  const others = await retrier.run(() => findOtherMigrators(client, namespace, { signal }), signal);
  if (others.length > 0 && !replace) {
    const list = others.map((other) => `Deployment "${other.namespace}/${other.name}" (${other.because})`).join(", ");
    const text = `Cannot initialize: another migrator is active: ${list}; remove it, or pass --replace to have it removed`;
    throw new KsvmError("OtherMigratorActive", text);
  }
  return others;
}

async function replaceOthers(context: InitContext, options: InitOptions): Promise<InitResult["replaced"]> {
  const { client, retrier, signal } = context;
  const others = await othersToReplace(context, options);
  for (const other of others) {
    await retrier.run(() => removeOtherMigrator(client, other, { signal }), signal);
  }
  return others.map(({ namespace, name }) => ({ namespace, name }));
}

async function applyCrd(context: InitContext, crd: ShippedCrd): Promise<"created" | "updated" | "unchanged"> {
  const { client, retrier, signal } = context;
  const ref = { name: crd.metadata.name };
  const before = await findCrdToStay(context, ref.name);
  const patch = { type: APPLY_PATCH, body: besideHelm(crd, before) };
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

async function findOwner({ client, retrier, signal }: InitContext): Promise<OwnerReference> {
  const ref = { name: resourceNameOf(MIGRATIONS) };
  return crdOwnerOf(
    (await retrier.run(() => client.get<PartialObjectMetadata>(CRDS, ref, { signal }), signal)).metadata,
  );
}

async function createMigration(
  { client, signal, ...context }: InitContext,
  resource: Resource,
  metadata: Pick<ObjectMeta, "annotations" | "ownerReferences">,
): Promise<string> {
  const labels = { [MANAGED_BY_LABEL]: MANAGED_BY, [CREATED_BY_LABEL]: CREATED_BY_INIT };
  const migration = manifestOf(resource, { ...metadata, labels });
  // Where an answer is lost, a second one is created: it waits for the first, and then finds nothing to do.
  const create = (): Promise<StorageVersionMigration> => client.create(MIGRATIONS, migration, { signal });
  return (await whenServed({ client, signal, ...context }, create)).metadata.name;
}
