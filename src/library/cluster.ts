import type { KubeConfig } from "@kubernetes/client-node";
import type { ApiClient } from "../kube/client.ts";
import {
  ClusterConfig,
  type ConnectionConfig,
  clusterOf,
  type KubeEnvironment,
  userOf,
} from "../kube/connect/cluster-config.ts";
import { loadKubeConfig } from "../kube/connect/config.ts";
import { connectTo } from "../kube/connection.ts";
import type { RequestObserver } from "../kube/transport-options.ts";

/** Which cluster, and until when. */
export interface ClusterOptions {
  /** A configuration that the caller has loaded: its current context at the time of the call. It wins over `kubeconfig` and `context`. */
  readonly kubeConfig?: KubeConfig;
  /** The path of a kubeconfig. @default what kubectl takes in this `environment`: `KUBECONFIG`, `~/.kube/config`, the service account of the pod */
  readonly kubeconfig?: string;
  /** A context of that kubeconfig. @default its current context */
  readonly context?: string;
  /** For `KUBECONFIG`, `HOME`, proxies and exec plugins: usually `process.env`. The library reads no variable by itself. @default none */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Ends the work when it is aborted; a migration lifts its freeze first. @default never */
  readonly signal?: AbortSignal;
}

/** One for all calls: what an exec plugin prints is for all that have the same variables. */
const NO_VARIABLES: KubeEnvironment["variables"] = {};

/**
 * Works with a connection that ends with the work.
 * @param observerFor makes what is told of its requests, from the first one on. @default none
 * @throws {KsvmError} KubeconfigInvalid, ServerUnreachable, Unauthorized, Forbidden or ServerUnsupported; whatever `work` throws.
 */
export async function withCluster<T>(
  {
    kubeConfig,
    environment: variables = NO_VARIABLES,
    kubeconfig,
    context,
    signal = new AbortController().signal,
  }: ClusterOptions,
  work: (client: ApiClient, signal: AbortSignal) => Promise<T>,
  observerFor?: (config: ConnectionConfig) => RequestObserver,
): Promise<T> {
  const environment = { variables, isTerminal: false };
  const config =
    kubeConfig === undefined
      ? loadKubeConfig({
          environment,
          ...(kubeconfig === undefined ? {} : { kubeconfig }),
          ...(context === undefined ? {} : { context }),
        })
      : currentOf(kubeConfig, environment);
  const connection = await connectTo(config, signal, { observer: observerFor?.(config) });
  try {
    return await work(connection.client, signal);
  } finally {
    await connection.close();
  }
}

/** The caller may choose another context before the work ends, as for a call that it begins beside this one. */
function currentOf(kubeConfig: KubeConfig, environment: KubeEnvironment): ConnectionConfig {
  return new ClusterConfig({ ...clusterOf(kubeConfig) }, userOf(kubeConfig), {
    context: kubeConfig.getCurrentContext(),
    environment,
  });
}
