import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { DEFAULT_CONVERGENCE_TIMEOUT_MS } from "../apiservers/converge.ts";
import { DEFAULT_SETTLE_MS, DEFAULT_SHUTDOWN_DELAY_MS } from "../apiservers/settle.ts";
import { KsvmError } from "../errors.ts";
import { DEFAULT_PROOF_TIMEOUT_MS } from "../freeze/freeze-proof.ts";
import { DEFAULT_GUARD, type GuardChoice } from "../freeze/guard.ts";
import type { ApiClient } from "../kube/client.ts";
import { DEFAULT_LEASE_NAMESPACE } from "../lease/run-lease-ref.ts";
import { assembleRun, type RunSettings } from "../migrator/assemble-run.ts";
import { migrateBesideInTree } from "../migrator/beside-in-tree.ts";
import type { EventSink } from "../migrator/events.ts";
import type { MigrationResult } from "../migrator/result.ts";
import { DEFAULT_PAGE_SIZE } from "../migrator/rewrite/page-size.ts";
import { DEFAULT_MAX_FREEZE_IDLE_MS } from "../migrator/run-until-done.ts";
import { findCrd } from "../resources/read-crd.ts";
import { ONE_SHOT_CLEANUP_MS } from "../retry/cleanup.ts";
import { DEFAULT_MAX_IN_FLIGHT } from "../retry/limiter.ts";
import { DEFAULT_MAX_QPS } from "../retry/pacer.ts";
import { DEFAULT_MAX_IDLE_MS, DEFAULT_WEBHOOK_WAIT_MS } from "../retry/retrier.ts";
import { assertSwitches, checkedNumbers, withoutUndefined } from "./checked-numbers.ts";
import { type ClusterOptions, withCluster } from "./cluster.ts";
import { environmentOf, observerOf } from "./run-environment.ts";

/** How a migration is carried out. Each field is the flag of `ksvm migrate` by that name, with its default. */
export interface MigrateOptions extends ClusterOptions {
  /** Milliseconds since the last change of the storage version; more than the `--request-timeout` of the API servers. */
  readonly settleMs?: number;
  /** Milliseconds for which an API server that has begun to end takes requests: the `--shutdown-delay-duration` of the kube-apiserver. */
  readonly shutdownDelayMs?: number;
  /** What enforces the freeze. */
  readonly guard?: GuardChoice;
  /** Rewrites the objects of a CRD that is clean already. */
  readonly force?: boolean;
  /** Tries every object by a dry run, and changes nothing. */
  readonly dryRun?: boolean;
  /** Requests at the same time, at most. */
  readonly maxInFlight?: number;
  /** Requests in a second, at most; 0 means no limit. */
  readonly maxQps?: number;
  /** Milliseconds without progress after which the migration fails. */
  readonly maxIdleMs?: number;
  /** The same where the cause is a webhook of another client, and where the migrator of Kubernetes itself is at work. */
  readonly webhookWaitMs?: number;
  /** The namespace of the Lease of the run. */
  readonly leaseNamespace?: string;
  /** Told what happens. It must not throw. */
  readonly onEvent?: EventSink;
}

/** What `ksvm migrate` does without flags. */
const DEFAULTS = {
  settleMs: DEFAULT_SETTLE_MS,
  shutdownDelayMs: DEFAULT_SHUTDOWN_DELAY_MS,
  guard: DEFAULT_GUARD,
  force: false,
  dryRun: false,
  maxInFlight: DEFAULT_MAX_IN_FLIGHT,
  maxQps: DEFAULT_MAX_QPS,
  maxIdleMs: DEFAULT_MAX_IDLE_MS,
  webhookWaitMs: DEFAULT_WEBHOOK_WAIT_MS,
  leaseNamespace: DEFAULT_LEASE_NAMESPACE,
  onEvent: () => undefined,
} satisfies Partial<MigrateOptions>;

type Chosen = Omit<ClusterOptions, "signal"> & Required<Omit<MigrateOptions, keyof ClusterOptions>>;

/**
 * Migrates one CRD, as `ksvm migrate --standalone` does: freezes its storage version, rewrites every object, prunes
 * storedVersions, and lifts the freeze. It works with the rights that `ksvm rbac` prints, and beside a controller: the Lease of
 * the run and the freeze keep two runs apart.
 *
 * @param name `plural.group`
 * @returns what came of it; with the outcome `incomplete` nothing was pruned, and `failures` names the objects
 * @throws {KsvmError} Usage where a number or a truth value is none, or a number out of range; ResourceNotFound where it is no CRD of the cluster; with the reason where the run failed, see
 *   docs/errors.md: storedVersions is untouched then, and the freeze is lifted. The reason of `signal` where that is aborted.
 */
export async function migrateCrd(name: string, options: MigrateOptions): Promise<MigrationResult> {
  const chosen: Chosen = { ...DEFAULTS, ...withoutUndefined(options) };
  const { dryRun, force, onEvent, webhookWaitMs } = chosen;
  assertSwitches({ dryRun, force });
  const settings = settingsOf(chosen);
  const work = async (client: ApiClient, signal: AbortSignal): Promise<MigrationResult> => {
    const run = assembleRun(
      { ...settings, ...environmentOf(client) },
      {
        dryRun,
        force,
        purpose: "ksvm migrate",
        identity: `${hostname()}_${randomUUID()}`,
        emit: onEvent,
        cleanupPatience: { ms: ONE_SHOT_CLEANUP_MS, interrupted: signal },
        signal,
      },
    );
    const { context } = run;
    try {
      const crd = await context.retrier.run(() => findCrd(context.client, name, { signal }), signal);
      if (crd === undefined) {
        throw new KsvmError("ResourceNotFound", `Cannot migrate "${name}": the cluster has no such CRD`);
      }
      return await migrateBesideInTree(context, name, webhookWaitMs);
    } finally {
      await run.close();
    }
  };
  return await withCluster(options, work, observerOf);
}

function settingsOf({ guard, leaseNamespace, ...numbers }: Chosen): RunSettings {
  const { maxIdleMs, maxInFlight, maxQps, settleMs, shutdownDelayMs, webhookWaitMs } = checkedNumbers(numbers);
  return {
    options: {
      convergenceTimeoutMs: DEFAULT_CONVERGENCE_TIMEOUT_MS,
      crdMode: "manage",
      guard,
      leaseNamespace,
      maxFreezeIdleMs: DEFAULT_MAX_FREEZE_IDLE_MS,
      pageSize: DEFAULT_PAGE_SIZE,
      proofTimeoutMs: DEFAULT_PROOF_TIMEOUT_MS,
      settleMs,
      shutdownDelayMs,
    },
    maxIdleMs,
    maxInFlight,
    maxQps,
    webhookWaitMs,
  };
}
