import type { NewObject } from "../../src/kube/client.ts";
import type { ObjectMeta } from "../../src/api/meta.ts";
import { MERGE_PATCH } from "../../src/kube/resources.ts";
import type { ProgramEnd } from "../processes/program.ts";
import type { Cluster } from "./cluster.ts";
import { startAsServiceAccount } from "./installation.ts";

const JOBS = { group: "batch", version: "v1", resource: "jobs" } as const;
const PAUSE_MS = 200;

/** A Job of deploy/vendor. */
export interface Job extends NewObject {
  readonly spec: { readonly template: { readonly spec: PodSpec } };
  readonly status?: { readonly conditions?: readonly object[] };
}

interface PodSpec {
  readonly serviceAccountName: string;
  readonly containers: readonly { readonly args: readonly string[] }[];
}

/**
 * Nothing here runs pods: runs the command of a Job's pod, under the ServiceAccount of the pod, and with a settle time that fits a test.
 */
export async function runPodOf(cluster: Cluster, job: Job): Promise<ProgramEnd & { readonly args: readonly string[] }> {
  const { containers, serviceAccountName } = job.spec.template.spec;
  const [command = "", ...args] = containers[0]?.args ?? [];
  if (command !== "migrate") throw new Error(`Cannot run a pod with the command "${command}"`);
  const kubeconfig = await startAsServiceAccount(cluster, serviceAccountName, 0, job.metadata.namespace);
  return {
    ...(await cluster.migrate([...args, "--kubeconfig", kubeconfig])),
    args: [...args, "--kubeconfig", kubeconfig],
  };
}

/** Runs one Job to its end, and writes that into its status, as the controller of Jobs does. */
export async function runJob(cluster: Cluster, job: Job): Promise<ProgramEnd> {
  const startTime = new Date().toISOString();
  const end = await runPodOf(cluster, job);
  const time = new Date().toISOString();
  const isDone = end.code === 0;
  const conditions = (isDone ? ["SuccessCriteriaMet", "Complete"] : ["FailureTarget", "Failed"]).map((type) => ({
    type,
    status: "True",
    lastTransitionTime: time,
  }));
  const counts = isDone ? { succeeded: 1, completionTime: time } : { failed: 1 };
  const body = { status: { startTime, conditions, ...counts } };
  const { name = "", namespace = "" } = job.metadata;
  await cluster.api.patch(JOBS, { name, namespace }, { type: MERGE_PATCH, body }, { subresource: "status" });
  return end;
}

/**
 * Runs the Jobs of a namespace that come while `work` is under way, as a cluster with nodes does.
 * @returns what `work` returns, and how the Jobs ended
 */
export async function withJobsRunning<T>(
  cluster: Cluster,
  namespace: string,
  work: () => Promise<T>,
): Promise<{ readonly result: T; readonly ends: readonly ProgramEnd[] }> {
  const ends: ProgramEnd[] = [];
  const worked = work();
  const over = new AbortController();
  const end = (): void => over.abort();
  worked.then(end, end);
  const known = new Set<string>();
  while (!over.signal.aborted) {
    for (const job of await cluster.api.list<Job & { readonly metadata: ObjectMeta }>(JOBS, { namespace })) {
      if (!known.has(job.metadata.uid) && job.status?.conditions === undefined) ends.push(await runJob(cluster, job));
      known.add(job.metadata.uid);
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  return { result: await worked, ends };
}
