// What happens to storedVersions when a migration fails: the in-tree controller of Kubernetes and ksvm, put through the
// same case on the same cluster. Reports what it finds and judges nothing: node bench/in-tree-prune.ts [-o json]
import { parseArgs } from "node:util";

import { programVersion } from "../src/cli/shared/version.ts";
import { readVersions } from "../test/control-plane/versions.ts";
import type { Cluster } from "../test/integration/cluster.ts";
import { migrateInTree, startInTree } from "./in-tree.ts";
import { type PruneResult, renderPruneReport } from "./prune-report.ts";
import { lookAtAftermath, prepareRejectedObject } from "./rejected-object.ts";
import { runKsvm } from "./run-ksvm.ts";
import { runScript, say } from "./run-script.ts";
import { withCluster } from "./with-cluster.ts";

/**
 * Starting takes some 10 s and ksvm a second more than its --settle, 65 s. The in-tree controller waits for a cache, with
 * pauses that double: it was seen to take from 1 to 123 s, and its next try would come after 164 s.
 */
const DEADLINE_MS = 235_000;

await runScript(async (interrupted) => {
  const { values } = parseArgs({ options: { output: { type: "string", short: "o", default: "table" } } });
  if (!["table", "json"].includes(values.output)) {
    throw new Error(`Cannot print as "${values.output}": choose table or json`);
  }
  await withCluster({ signal: interrupted, deadlineMs: DEADLINE_MS }, async (cluster, signal) => {
    // Both mostly wait, each on a CRD of its own, so they may do so at the same time.
    const results = await Promise.all([measureInTree(cluster, signal), measureKsvm(cluster, signal)]);
    const report = { date: new Date().toISOString(), kubernetes: readVersions().kubernetes, results };
    console.log(values.output === "json" ? JSON.stringify(report, undefined, 2) : renderPruneReport(report));
  });
});

async function measureInTree(cluster: Cluster, signal: AbortSignal): Promise<PruneResult> {
  const kind = await prepareRejectedObject(cluster, "intree");
  await startInTree(cluster);
  say("the in-tree controller begins to migrate three objects, one of which rejects updates (1 s to 3 minutes)");
  const { seconds, outcome, conditions, crdCondition } = await migrateInTree(cluster, kind, signal);
  say(`the in-tree controller has ended after ${seconds.toFixed(0)} s`);
  return {
    tool: `in-tree ${readVersions().kubernetes}`,
    seconds,
    ended: outcome,
    conditions,
    crdCondition,
    said: conditions.find(({ type }) => type === outcome)?.message ?? "",
    ...(await lookAtAftermath(cluster, kind)),
  };
}

async function measureKsvm(cluster: Cluster, signal: AbortSignal): Promise<PruneResult> {
  const kind = await prepareRejectedObject(cluster, "ksvm");
  say("ksvm begins to migrate three objects, one of which rejects updates (about 70 s, most of it --settle)");
  const run = await runKsvm(["migrate", kind.name], { kubeconfig: cluster.kubeconfig, signal });
  say(`ksvm has ended after ${run.seconds.toFixed(0)} s`);
  return {
    tool: `ksvm ${programVersion()}`,
    seconds: run.seconds,
    ended: `exit code ${run.code}`,
    conditions: [],
    said: `${run.stdout.trim().split("\n").at(-1)}\n${run.stderr.trim()}`,
    ...(await lookAtAftermath(cluster, kind)),
  };
}
