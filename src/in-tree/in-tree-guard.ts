import type { CustomResourceDefinition } from "../api/crd.ts";
import { STORAGE_MIGRATING_CONDITION } from "../api/names.ts";
import { KsvmError } from "../errors.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { ApiError } from "../old/kube/errors.ts";
import { type InTreeMigration, inTreeMigrations, inTreeResourceOf, inTreeStateOf } from "./in-tree-migrations.ts";
import { findCrd } from "../resources/read-crd.ts";

/** Keeps a run away, or ends it: Kubernetes' own migrator is at work on the same resource. */
export class InTreeAtWork extends KsvmError {
  override readonly name = "InTreeAtWork";

  constructor(migration: string) {
    const by = `Kubernetes' own migrator (storageversionmigrations.storagemigration.k8s.io "${migration}")`;
    super("AlreadyMigrating", `Cannot migrate now: ${by} is at work on the same resource`);
  }
}

/** Keeps a run away: the CRD says that Kubernetes' own migrator is at work, and no migration of it explains that. */
export class StorageMigratingStuck extends KsvmError {
  override readonly name = "StorageMigratingStuck";

  constructor(crdName: string) {
    super(
      "StorageMigratingStuck",
      `Cannot migrate "${crdName}": its condition ${STORAGE_MIGRATING_CONDITION} is True and no running migration of ` +
        `Kubernetes' own migrator explains it; clear it with: ksvm unfreeze ${crdName}`,
    );
  }
}

/**
 * What Kubernetes' own migrator has to say against a migration of a resource; `undefined` where nothing. A user who may
 * not see its migrations gets that, too: what is migrated twice is migrated.
 * @throws {ApiError | TransportError}
 */
export async function inTreeObjection(
  client: ApiClient,
  resource: string,
  signal: AbortSignal,
): Promise<InTreeAtWork | StorageMigratingStuck | undefined> {
  const running = await inTreeRunning(client, resource, signal);
  if (running !== undefined) {
    return new InTreeAtWork(running.metadata.name);
  }
  const crd = await findCrd(client, resource, { signal });
  return crd !== undefined && isMigrating(crd) ? new StorageMigratingStuck(resource) : undefined;
}

/**
 * The migration of Kubernetes' own migrator that runs on a resource. One that has not begun is left out: where that controller does
 * not run, it never begins.
 * @throws {ApiError | TransportError}
 */
export async function inTreeRunning(
  client: ApiClient,
  resource: string,
  signal: AbortSignal,
): Promise<InTreeMigration | undefined> {
  return (await inTreeOf(client, resource, signal)).find((one) => inTreeStateOf(one) === "Running");
}

/** None for a user who may not see them. */
async function inTreeOf(client: ApiClient, resource: string, signal: AbortSignal): Promise<readonly InTreeMigration[]> {
  try {
    const migrations = await inTreeMigrations(client, { signal });
    return migrations.filter((found) => inTreeResourceOf(found) === resource);
  } catch (error) {
    if (error instanceof ApiError && error.status === 403) {
      return [];
    }
    throw error;
  }
}

function isMigrating({ status }: CustomResourceDefinition): boolean {
  const conditions = status?.conditions ?? [];
  return conditions.some(({ type, status: value }) => type === STORAGE_MIGRATING_CONDITION && value === "True");
}
