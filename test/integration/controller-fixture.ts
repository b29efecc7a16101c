import { fileURLToPath } from "node:url";
import { pino } from "pino";
import type { Test } from "tap";
import { SYSTEM_NAMESPACE, type CrdMode } from "../../src/api/migration.ts";
import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import { systemClock } from "../../src/clock.ts";
import { MigrationController, type MigrationControllerOptions } from "../../src/controller/migration-controller.ts";
import { runFactory } from "../../src/controller/run-factory.ts";

import type { ApiClient } from "../../src/kube/client.ts";
import { MigrationFeed } from "../../src/migrations/migration-feed.ts";
import type { MigrationOptions } from "../../src/migrator/run-context.ts";
import { startProgram } from "../processes/program.ts";
import type { Cluster } from "./cluster.ts";

export {
  createMigration,
  deleteMigration,
  eventReasons,
  installSystem,
  patchStatus,
  readMigration,
  untilState,
} from "./migrations.ts";

/** What a test's controller does differently. */
export interface ControllerSettings {
  /** @default Infinity */
  readonly maxQps?: number;
  /** @default 500 */
  readonly pageSize?: number;
  /** @default "webhook" */
  readonly guard?: MigrationOptions["guard"];
  /** @default true */
  readonly crdMode?: CrdMode;
  /** @default 1000 */
  readonly settleMs?: number;
  /** @default 300000 */
  readonly maxFreezeIdleMs?: number;
  /** @default 900000 */
  readonly maxIdleMs?: number;
  /** @default they are found */
  readonly apiserverEndpoints?: readonly string[];
}

/** Flags of a slow run: a hundred objects take some five seconds. */
export const SLOW: ControllerSettings = { maxQps: 20, pageSize: 10 };

/** How runs are made in tests. */
export function openRunFor(client: ApiClient, settings: ControllerSettings) {
  const { apiserverEndpoints, crdMode = "manage", maxIdleMs = 900_000, ...others } = settings;
  const { maxQps = Number.POSITIVE_INFINITY, ...rest } = others;
  return runFactory({
    client,
    clock: systemClock,
    seen: new SeenServers(systemClock),
    options: {
      settleMs: 1_000,
      pageSize: 500,
      guard: "webhook",
      convergenceTimeoutMs: 20_000,
      proofTimeoutMs: 20_000,
      maxFreezeIdleMs: 300_000,
      leaseNamespace: SYSTEM_NAMESPACE,
      ...rest,
      crdMode,
    },
    apiserverEndpoints,
    maxInFlight: 8,
    maxQps,
    maxIdleMs,
    webhookWaitMs: 3_600_000,
  });
}

/** A controller in this process that leads without an election. It ends with the test. */
export function startController(
  t: Test,
  cluster: Cluster,
  settings: ControllerSettings &
    Partial<Pick<MigrationControllerOptions, "client">> &
    Pick<MigrationControllerOptions, "finishedLimit" | "maxConcurrent" | "observe" | "onStates"> = {},
) {
  const { client = cluster.api, finishedLimit = 0, maxConcurrent = 1, observe, onStates, ...rest } = settings;
  const abort = new AbortController();
  const logger = pino({ level: process.env["KSVM_TEST_LOG"] ?? "silent" });
  const controller = new MigrationController({
    client,
    clock: systemClock,
    logger,
    feed: new MigrationFeed({ client, clock: systemClock, logger }),
    openRun: openRunFor(client, rest),
    identity: `test_${Math.random()}`,
    leadership: { key: `${SYSTEM_NAMESPACE}/test`, replaced: undefined, assertLeading: () => undefined },
    maxConcurrent,
    finishedLimit,
    ...(observe === undefined ? {} : { observe }),
    ...(onStates === undefined ? {} : { onStates }),
  });
  const ended = controller.run(abort.signal);
  const stop = async (): Promise<void> => {
    abort.abort(new Error("the test is over"));
    await ended;
  };
  t.teardown(stop);
  return { stop };
}

const ENTRY = fileURLToPath(new URL("controller-process.ts", import.meta.url));

/** A replica in a process of its own, with leader election. It ends with the test. */
export function spawnReplica(t: Test, cluster: Cluster, identity: string, settings: ControllerSettings = {}) {
  const args = [ENTRY, cluster.kubeconfig, identity, JSON.stringify(settings)];
  const program = startProgram(t, process.execPath, args, { stderr: "inherit" });
  return { program, isLeading: () => /leading/.test(program.stdout) };
}
