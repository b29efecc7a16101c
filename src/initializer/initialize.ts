import type { ObjectMeta, OwnerReference, PartialObjectMetadata } from "../api/meta.ts";
import { isSuspended, MIGRATION_API_VERSION, resourceNameOf, type StorageVersionMigration } from "../api/migration.ts";
import { MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import { type ApiClient, isConflict, type KubeObject } from "../kube/client.ts";
import { failureKindOf } from "../kube/failure.ts";
import {
  APPLY_PATCH,
  apiVersionOf,
  CLUSTER_ROLES,
  CRDS,
  MIGRATIONS,
  type Resource,
  STORAGE_STATES,
} from "../kube/resources.ts";
import type { Retrier } from "../migrator/retrier.ts";
import { findUnfinished } from "../suspend/set-suspend.ts";
import { discoverMigratable } from "./discover.ts";
import type { SkippedResource } from "./migratable.ts";
import { findOtherMigrators, type OtherMigrator, removeOtherMigrator } from "./other-migrators.ts";
import { type ShippedCrd, shippedCrds } from "./shipped-crds.ts";

/** The label of the migrations that {@link initialize} creates, so that the next one finds them. */
export const INIT_LABEL = "ksvm.sigs.k8s.io/created-by";
const INIT_LABEL_VALUE = "init";

/** The ClusterRole of seed 000. */
export const MIGRATOR_CLUSTER_ROLE = "system:storage-migrator";

const FIELD_MANAGER = "ksvm-init";
const PAGE_SIZE = 100;
/** How long a CRD may take to be served, or to be gone. */
const CRD_TIMEOUT_MS = 60_000;
const CRD_POLL_MS = 200;

/** What {@link initialize} needs. */
export interface InitContext {
  readonly client: ApiClient;
  readonly retrier: Retrier;
  readonly clock: Clock;
  readonly signal: AbortSignal;
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
}

/**
 * The initializer of seed 000: installs the CRDs and creates one migration for each resource there is. Whatever ended an
 * earlier one, running it again comes to the same.
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
  const { migratable, skipped } = await discoverMigratable(context);
  const owner = await findOwner(context);
  const suspended = await findSuspended(context);
  const deleted = await deleteEarlier(context, new Set(suspended.map(({ metadata }) => metadata.uid)));
  const stopped = new Set(suspended.map(({ spec }) => resourceNameOf(spec.resource)));
  const migrations: InitResult["migrations"][number][] = [];
  for (const resource of migratable.filter((one) => !stopped.has(resourceNameOf(one)))) {
    const name = await createMigration(context, resource, owner);
    migrations.push({ name, resource: resourceNameOf(resource), version: resource.version });
  }
  const kept = [...stopped].map((resource) => ({ resource, reason: "its migration is suspended" }));
  return { replaced, crds, deleted, migrations, skipped: [...skipped, ...kept] };
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

/**
 * What the migrations go with when it is deleted. It has to be cluster-scoped as they are, so a Deployment cannot be it:
 * the ClusterRole, which is deleted with the installation, else the CRD.
 */
async function findOwner({ client, retrier, signal }: InitContext): Promise<OwnerReference> {
  const find = (resource: Resource, name: string): Promise<KubeObject | undefined> =>
    retrier.run(() => client.find<KubeObject>(resource, { name }, { signal }), signal);
  const role = await find(CLUSTER_ROLES, MIGRATOR_CLUSTER_ROLE);
  if (role !== undefined) {
    return ownerReferenceTo(CLUSTER_ROLES, "ClusterRole", role.metadata);
  }
  const crd = await find(CRDS, resourceNameOf(MIGRATIONS));
  return ownerReferenceTo(CRDS, "CustomResourceDefinition", crd?.metadata ?? {});
}

function ownerReferenceTo({ group, version }: Resource, kind: string, metadata: Partial<ObjectMeta>): OwnerReference {
  const { name = "", uid = "" } = metadata;
  return { apiVersion: apiVersionOf(group, version), kind, name, uid };
}

/** A user stopped them: neither are they deleted, nor does their resource get another one that runs. */
async function findSuspended({ client, retrier, signal }: InitContext): Promise<readonly StorageVersionMigration[]> {
  return (await retrier.run(() => findUnfinished(client, undefined, { signal }), signal)).filter(isSuspended);
}

async function deleteEarlier(context: InitContext, kept: ReadonlySet<string>): Promise<number> {
  const { client, retrier, signal } = context;
  const labelSelector = `${INIT_LABEL}=${INIT_LABEL_VALUE}`;
  const earlier: PartialObjectMetadata[] = [];
  let continueToken: string | undefined;
  do {
    const options = { labelSelector, limit: PAGE_SIZE, continueToken, signal };
    const page = await whenServed(context, () => client.listMetadata(MIGRATIONS, options));
    earlier.push(...page.items.filter(({ metadata }) => !kept.has(metadata.uid)));
    continueToken = page.metadata.continue === "" ? undefined : page.metadata.continue;
  } while (continueToken !== undefined);
  for (const { metadata } of earlier) {
    const { name, uid } = metadata;
    await retrier
      .run(() => client.delete(MIGRATIONS, { name }, { preconditions: { uid }, signal }), signal)
      .catch((error: unknown) => {
        // Deleted and created again by somebody else: it is not of an earlier init any more.
        if (!isConflict(error)) {
          throw error;
        }
      });
  }
  return earlier.length;
}

async function createMigration(context: InitContext, resource: Resource, owner: OwnerReference): Promise<string> {
  const migration = {
    apiVersion: MIGRATION_API_VERSION,
    kind: "StorageVersionMigration",
    metadata: {
      generateName: `${resourceNameOf(resource)}-`,
      labels: { [MANAGED_BY_LABEL]: MANAGED_BY, [INIT_LABEL]: INIT_LABEL_VALUE },
      ownerReferences: [owner],
    },
    spec: { resource: { group: resource.group, version: resource.version, resource: resource.resource } },
  };
  // Where an answer is lost, a second one is created: it waits for the first, and then finds nothing to do.
  const { client, signal } = context;
  const create = (): Promise<StorageVersionMigration> => client.create(MIGRATIONS, migration, { signal });
  return (await whenServed(context, create)).metadata.name;
}
