import { MERGE_PATCH, type NewObject } from "../api-client.ts";
import type { ObjectMeta } from "../../src/api/meta.ts";
import { isAtLeast } from "../control-plane/features.ts";
import type { ProgramEnd } from "../processes/program.ts";
import type { Cluster } from "./cluster.ts";
import { startAsServiceAccount } from "./installation.ts";

const JOBS = { group: "batch", version: "v1", resource: "jobs" } as const;
const PAUSE_MS = 200;

const PODS = { group: "", version: "v1", resource: "pods" } as const;

/** A Job of deploy/. */
export interface Job extends NewObject {
  readonly spec: { readonly template: { readonly spec: PodSpec } };
  readonly status?: { readonly conditions?: readonly object[] };
}

interface Pod extends NewObject {
  readonly spec: PodSpec;
  readonly status?: { readonly phase?: string };
}

interface PodSpec {
  readonly serviceAccountName: string;
  readonly containers: readonly { readonly args: readonly string[] }[];
}

type PodEnd = ProgramEnd & { readonly args: readonly string[] };

/**
 * Nothing here runs pods: runs the command of a Job's pod, under the ServiceAccount of the pod, and with times that fit a test.
 */
export async function runPodOf(cluster: Cluster, job: Job): Promise<PodEnd> {
  return runContainer(cluster, job.spec.template.spec, job.metadata.namespace);
}

async function runContainer(
  cluster: Cluster,
  { containers, serviceAccountName }: PodSpec,
  namespace: string | undefined,
): Promise<PodEnd> {
  const [command = "", ...given] = containers[0]?.args ?? [];
  const kubeconfig = await startAsServiceAccount(cluster, serviceAccountName, 0, namespace);
  const quick = given.map((arg) => (arg.startsWith("--timeout=") ? "--timeout=15s" : arg));
  const args = [...quick, "--kubeconfig", kubeconfig];
  const end = command === "migrate" ? cluster.migrate(args) : cluster.ksvm([command, ...args]);
  return { ...(await end), args };
}

/** Runs one Job to its end, and writes that into its status, as the controller of Jobs does. */
async function runJob(cluster: Cluster, job: Job): Promise<ProgramEnd> {
  const startTime = new Date().toISOString();
  const end = await runPodOf(cluster, job);
  const time = new Date().toISOString();
  const isDone = end.code === 0;
  const conditions = conditionTypesOf(isDone).map((type) => ({
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

/** Kubernetes 1.32 began to demand the first of them, which older API servers refuse. */
function conditionTypesOf(isDone: boolean): readonly string[] {
  const types = isDone ? ["SuccessCriteriaMet", "Complete"] : ["FailureTarget", "Failed"];
  return types.slice(isAtLeast(32) ? 0 : 1);
}

/** Runs one Pod to its end, and writes that into its status, as a kubelet does. */
async function runPod(cluster: Cluster, { metadata, spec }: Pod): Promise<ProgramEnd> {
  const { name = "", namespace = "" } = metadata;
  const end = await runContainer(cluster, spec, namespace);
  const body = { status: { phase: end.code === 0 ? "Succeeded" : "Failed" } };
  await cluster.api.patch(PODS, { name, namespace }, { type: MERGE_PATCH, body }, { subresource: "status" });
  return end;
}

/**
 * Runs the Jobs and the Pods of a namespace that come while `work` is under way, as a cluster with nodes does.
 * @returns what `work` returns, and how they ended
 */
export async function withPodsRunning<T>(
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
    for (const pod of await cluster.api.list<Pod & { readonly metadata: ObjectMeta }>(PODS, { namespace })) {
      if (!known.has(pod.metadata.uid) && pod.status?.phase === "Pending") ends.push(await runPod(cluster, pod));
      known.add(pod.metadata.uid);
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  return { result: await worked, ends };
}
