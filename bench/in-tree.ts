import { setTimeout as sleep } from "node:timers/promises";

import type { CustomResourceDefinition } from "../test/crd.ts";
import type { ManagedProcess } from "../test/control-plane/control-plane.ts";
import { type Cluster, eventually } from "../test/integration/cluster.ts";
import { GROUP, type TestKind } from "../test/integration/crd-fixture.ts";
import type { Resource } from "../test/api-client.ts";

/** StorageVersionMigrations of Kubernetes itself, as they are served by default since 1.37. */
export const MIGRATIONS: Resource = {
  group: "storagemigration.k8s.io",
  version: "v1",
  resource: "storageversionmigrations",
};

/** The collector runs too, because the controller takes its list of objects from the collector's cache. */
const CONTROLLERS = ["storage-version-migrator-controller", "garbage-collector-controller"];

const POLL_MS = 250;
const CRD_CONDITION_TIMEOUT_MS = 30_000;

export interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason?: string;
  readonly message?: string;
}

/** How a StorageVersionMigration ended. */
export interface InTreeRun {
  /** From its creation until it had ended. */
  readonly seconds: number;
  /** "Succeeded" or "Failed". */
  readonly outcome: string;
  readonly conditions: readonly Condition[];
  /** The condition StorageMigrating of the CRD. */
  readonly crdCondition: Condition | undefined;
}

/** Starts the kube-controller-manager with nothing but the in-tree migrator and what it needs. */
export function startInTree(
  { controlPlane }: Cluster,
  { extraArgs = [] }: { readonly extraArgs?: readonly string[] } = {},
): Promise<ManagedProcess> {
  return controlPlane.startControllerManager({
    controllers: CONTROLLERS,
    extraArgs,
  });
}

/** Creates a StorageVersionMigration and waits until it has succeeded or failed. */
export async function migrateInTree(cluster: Cluster, kind: TestKind, signal: AbortSignal): Promise<InTreeRun> {
  const { api } = cluster;
  const name = kind.plural;
  const startedAt = performance.now();
  await api.create(MIGRATIONS, {
    apiVersion: `${MIGRATIONS.group}/${MIGRATIONS.version}`,
    kind: "StorageVersionMigration",
    metadata: { name },
    spec: { resource: { group: GROUP, resource: kind.plural } },
  });
  for (;;) {
    const { status } = await api.get<{ status?: { conditions?: readonly Condition[] } }>(MIGRATIONS, { name });
    const conditions = status?.conditions ?? [];
    const end = conditions.find(({ type, status: is }) => is === "True" && ["Succeeded", "Failed"].includes(type));
    if (end !== undefined) {
      const seconds = (performance.now() - startedAt) / 1_000;
      return { seconds, outcome: end.type, conditions, crdCondition: await finishedCondition(cluster, kind) };
    }
    await sleep(POLL_MS, undefined, { signal });
  }
}

/** The controller finishes the CRD, storedVersions included, in one update after the migration has ended. */
async function finishedCondition(cluster: Cluster, kind: TestKind): Promise<Condition | undefined> {
  let condition: Condition | undefined;
  await eventually(
    async () => {
      const { status } = await cluster.crd(kind);
      condition = (status as WithConditions | undefined)?.conditions?.find(({ type }) => type === "StorageMigrating");
      return condition?.status === "False";
    },
    "the in-tree controller is done with the CRD",
    CRD_CONDITION_TIMEOUT_MS,
  );
  return condition;
}

type WithConditions = CustomResourceDefinition["status"] & { readonly conditions?: readonly Condition[] };
