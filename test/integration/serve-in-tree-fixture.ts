import { pino } from "pino";
import type { Test } from "tap";
import { MIGRATIONS as IN_TREE } from "../../bench/in-tree.ts";

import { STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { systemClock } from "../../src/clock.ts";
import { type InTreeMigration, inTreeStateOf } from "../../src/in-tree/in-tree-migrations.ts";
import { apiVersionOf, MERGE_PATCH } from "../../src/kube/resources.ts";
import { MigrationFeed } from "../../src/migrations/migration-feed.ts";
import { InTreeService, type ServiceState } from "../../src/serve-in-tree/in-tree-service.ts";
import { type Cluster, eventually } from "./cluster.ts";
import { type ControllerSettings, startController } from "./controller-fixture.ts";
import { GROUP, type TestKind } from "./crd-fixture.ts";

/** The status of an in-tree migration, and its conditions as `type=status reason`. */
export interface ServedStatus {
  readonly state: string;
  readonly conditions: readonly string[];
  readonly message: string;
  readonly resourceVersion: string | undefined;
}

/** What the test's controller serves in-tree migrations with: a probe of a second, and slots for all. */
export function startServing(
  t: Test,
  cluster: Cluster,
  settings: ControllerSettings & { readonly probeMs?: number } = {},
) {
  const { probeMs = 1_000, ...rest } = settings;
  const logger = pino({ level: process.env["KSVM_TEST_LOG"] ?? "silent" });
  let state: ServiceState | undefined;
  const service = new InTreeService({
    client: cluster.api,
    clock: systemClock,
    logger,
    feed: new MigrationFeed({ client: cluster.api, clock: systemClock, logger }),
    onState: (now) => (state = now),
    probeMs,
  });
  const controller = startController(t, cluster, { ...rest, isServed: service.isServed, maxConcurrent: 4 });
  const abort = new AbortController();
  const ended = service.run(abort.signal);
  const stop = async (): Promise<void> => {
    abort.abort(new Error("the test is over"));
    await ended;
    await controller.stop();
  };
  t.teardown(stop);
  return {
    stop,
    state: () => state,
    until: (wanted: ServiceState) => eventually(async () => state === wanted, `it is ${wanted}`),
  };
}

/** Creates an in-tree migration of a test's CRD, or of the resource that is named. */
export function createInTree(
  { api }: Cluster,
  name: string,
  of: TestKind | { readonly group: string; readonly resource: string },
): Promise<InTreeMigration> {
  const resource = "plural" in of ? { group: GROUP, resource: of.plural } : of;
  return api.create<InTreeMigration>(IN_TREE, {
    apiVersion: apiVersionOf(IN_TREE.group, IN_TREE.version),
    kind: "StorageVersionMigration",
    metadata: { name },
    spec: { resource: { group: resource.group, resource: resource.resource } },
  });
}

/** What the status of an in-tree migration says now. */
export async function servedStatus({ api }: Cluster, name: string): Promise<ServedStatus> {
  const migration = await api.get<InTreeMigration>(IN_TREE, { name });
  const conditions = migration.status?.conditions ?? [];
  return {
    state: inTreeStateOf(migration),
    conditions: conditions.map(({ reason, status, type }) => `${type}=${status} ${reason}`),
    message: conditions.find(({ type }) => type === "Failed")?.message ?? "",
    resourceVersion: migration.status?.resourceVersion,
  };
}

/** Waits until nothing is left to do for an in-tree migration. */
export async function untilServed(cluster: Cluster, name: string): Promise<ServedStatus> {
  await eventually(
    async () => (await servedStatus(cluster, name)).conditions.some((text) => text.startsWith("Running=False")),
    `in-tree migration ${name} is completed`,
  );
  return servedStatus(cluster, name);
}

/** What StorageMigrating of a CRD says: `status reason`. */
export async function migratingOf(cluster: Cluster, kind: TestKind): Promise<string | undefined> {
  const conditions = (await cluster.crd(kind)).status?.conditions ?? [];
  const found = conditions.find(({ type }) => type === STORAGE_MIGRATING_CONDITION);
  return found && `${found.status} ${found.reason}`;
}

/** Sets the status of an in-tree migration as another client. */
export function writeAsOther({ api }: Cluster, name: string, type = "Running"): Promise<unknown> {
  const lastTransitionTime = new Date().toISOString();
  const condition = { type, status: "True", reason: "Test", message: "by another client", lastTransitionTime };
  const body = { status: { conditions: [condition] } };
  return api.patch(IN_TREE, { name }, { type: MERGE_PATCH, body }, { subresource: "status", fieldManager: "other" });
}
