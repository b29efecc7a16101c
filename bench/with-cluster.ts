import { ensureBinaries } from "../test/control-plane/binaries.ts";
import { startControlPlane } from "../test/control-plane/control-plane.ts";
import type { ControlPlaneOptions } from "../test/control-plane/options.ts";
import { Cluster } from "../test/integration/cluster.ts";

export interface WithClusterOptions extends ControlPlaneOptions {
  readonly signal: AbortSignal;
  /** Milliseconds for `work`, not counting a build of the control plane. @default no limit */
  readonly deadlineMs?: number;
}

/**
 * Starts etcd and an API server on 127.0.0.1, builds them first where need be, and ends all of it when `work` is done,
 * has failed or is aborted.
 * @throws {Error} what `work` throws, or the reason of the abort
 */
export async function withCluster(
  options: WithClusterOptions,
  work: (cluster: Cluster, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const { signal: interrupted, deadlineMs, ...controlPlaneOptions } = options;
  await Promise.race([ensureBinaries(["etcd", "kube-apiserver", "kube-controller-manager"]), rejectionOf(interrupted)]);
  const end = new AbortController();
  const timer = setTimeout(
    () => {
      end.abort(new Error(`Cannot measure: it did not end within ${(deadlineMs ?? 0) / 1_000} s`));
    },
    deadlineMs ?? 2 ** 31 - 1,
  );
  const signal = AbortSignal.any([interrupted, end.signal]);
  const controlPlane = await startControlPlane(controlPlaneOptions);
  try {
    signal.throwIfAborted();
    const cluster = new Cluster(controlPlane);
    // Raced, because not every wait in there knows the signal; what goes on fails once the API server is gone.
    await Promise.race([work(cluster, signal), rejectionOf(signal)]);
    await cluster.close();
  } finally {
    clearTimeout(timer);
    // Where one part has failed, others may still be at work.
    end.abort();
    await controlPlane.stop();
  }
}

function rejectionOf(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const onAbort = (): void => reject(signal.reason as Error);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  });
}
