import { KsvmError } from "../errors.ts";
import { resourcesOf } from "../kube/discovery.ts";
import { accessForRewrite, assertAccess } from "./access-check.ts";
import type { ApiClient } from "../kube/client.ts";
import { type ApiServers, serversOf } from "./api-servers.ts";
import { type AskResult, askAll, type Check, checkFailureOf } from "./ask-all.ts";
import { type BuiltIn, resourceNameOf } from "./built-in.ts";
import { Cleanup } from "./cleanup.ts";
import { Tally } from "./counts.ts";
import { type MigrationResult, outcomeOf, reportOf } from "./result.ts";
import { RewritePass } from "./rewrite-pass.ts";
import type { RunContext } from "./run-context.ts";
import { leaseNameOf } from "./lease-acquire.ts";
import { RunLease } from "./run-lease.ts";
import { settle } from "./settle-wait.ts";

/**
 * Rewrites every object of a built-in resource. There is no storedVersions to prune and no storage version that a user
 * could change, so nothing is frozen. The watermark is good for one run only: a rotated encryption key changes no hash.
 *
 * @param crdName the CRD of a custom resource that is only rewritten: a change of its storage version is settled, too
 * @throws {KsvmError} NotConverged where the API servers disagree on the storage version.
 */
export async function migrateBuiltIn(
  context: RunContext,
  resource: BuiltIn,
  crdName?: string,
): Promise<MigrationResult> {
  const name = resourceNameOf(resource);
  await assertAccess(context, name, accessForRewrite(resource, context.options.leaseNamespace));
  const cleanup = new Cleanup(context.emit);
  return cleanup.after(async () => {
    const lease = await RunLease.acquire({
      ...context,
      namespace: context.options.leaseNamespace,
      name: leaseNameOf(name),
      onContended: (holder) => context.emit({ type: "contended", holder }),
    });
    cleanup.defer(`release Lease "${lease.key}"`, "it expires by itself", (signal) =>
      lease.release({ keepCheckpoint: false }, signal),
    );
    const apiServers = await context.findApiServers(context.signal);
    const { lagged, silent } = await waitForSameHash(context, resource, apiServers);
    context.emit({ type: "converged", apiServers: serversOf(apiServers) });
    const clients = apiServers.mode === "each" ? apiServers.clients : [context.client];
    await settle(context, {
      apiServers: clients,
      newestJoin: apiServers.newestJoin,
      lagged: lagged || silent,
      ...(crdName === undefined ? {} : { crdName }),
    });
    const client = context.client.fencedBy(() => lease.confirm(context.signal));
    const tally = await rewriteOnce({ ...context, client }, resource);
    return { resource: name, outcome: outcomeOf(tally, "migrated"), ...reportOf(tally) };
  });
}

/** Tries every object of a resource by a dry-run: says which would be rejected, changes nothing. */
export async function dryRun(context: RunContext, resource: BuiltIn): Promise<MigrationResult> {
  const tally = await rewriteOnce(context, resource);
  return { resource: resourceNameOf(resource), outcome: outcomeOf(tally, "dry-run"), ...reportOf(tally) };
}

async function rewriteOnce(context: RunContext, resource: BuiltIn): Promise<Tally> {
  const tally = new Tally();
  const report = (): void => context.emit({ type: "progress", counts: { ...tally.counts } });
  const { dryRun: isDryRun, pageSize } = context.options;
  const { kind } = resource;
  const pass = new RewritePass({
    ...context,
    resource,
    kind,
    otherVersions: [],
    pageSize,
    dryRun: isDryRun,
    tally,
    onObject: report,
    onPage: async (point) => {
      report();
      await context.onPageDone?.(point);
    },
  });
  await pass.run();
  return tally;
}

/**
 * Waits until every API server shows the hash that the first one shows: which of two is the new one nobody can tell, so
 * they have to agree.
 */
async function waitForSameHash(context: RunContext, resource: BuiltIn, apiServers: ApiServers): Promise<AskResult> {
  const { client, clock, emit, options, retrier, signal } = context;
  const hashOf = async ({ transport }: ApiClient): Promise<string> => {
    const resources = await resourcesOf(transport, resource, { signal });
    return resources.find(({ name }) => name === resource.resource)?.storageVersionHash ?? "";
  };
  const check: Check = async (asked) => {
    try {
      const [expected, shown] = [await hashOf(client), await hashOf(asked)];
      const reason = `it shows storageVersionHash "${shown}", and ${client.transport.server} "${expected}"`;
      return shown === expected ? undefined : { reason, silent: false };
    } catch (error) {
      return checkFailureOf(error, signal);
    }
  };
  await retrier.run(() => hashOf(client), signal);
  return askAll(apiServers, check, {
    clock,
    signal,
    spreadMs: options.settleMs,
    timeoutMs: options.convergenceTimeoutMs + options.settleMs,
    onFailure: (server, { reason }) => emit({ type: "lagging", server, reason }),
    errorOf: (server, reason) =>
      new KsvmError("NotConverged", `Cannot migrate "${resourceNameOf(resource)}": ${server} disagrees: ${reason}`),
  });
}
