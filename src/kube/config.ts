import { KubeConfig, type User } from "@kubernetes/client-node";
import { KsvmError, messageOf } from "../errors.ts";
import { tokenFilesIn } from "./token-files.ts";

/** Where the connection to the API server comes from. */
export interface KubeConfigOptions {
  /** Path of a kubeconfig. @default what kubectl would take: `KUBECONFIG`, `~/.kube/config`, the service account */
  readonly kubeconfig?: string;
  /** Name of a context in it. @default its current context */
  readonly context?: string;
  /** The files that `kubeconfig`, or what kubectl would take, stands for. @default `kubeconfig` alone */
  readonly files?: readonly string[];
}

/**
 * Loads the configuration as kubectl would; inside a cluster the service account.
 * @throws {KsvmError} KubeconfigInvalid where it cannot be read, names no cluster, or has no such context.
 */
export function loadKubeConfig(options: KubeConfigOptions = {}): KubeConfig {
  const config = new KubeConfig();
  const source = options.kubeconfig === undefined ? "the kubeconfig" : `kubeconfig "${options.kubeconfig}"`;
  try {
    if (options.kubeconfig === undefined) {
      config.loadFromDefault();
    } else {
      config.loadFromFile(options.kubeconfig);
    }
  } catch (error) {
    throw new KsvmError("KubeconfigInvalid", `Cannot load ${source}: ${messageOf(error)}`, { cause: error });
  }
  const files = options.files ?? (options.kubeconfig === undefined ? [] : [options.kubeconfig]);
  config.users = config.users.map(withTokenFile(tokenFilesIn(files)));
  if (options.context !== undefined) {
    selectContext(config, options.context, source);
  }
  assertUsable(config, source);
  return config;
}

/** client-node reads a token from a file for its own auth provider, not for the kubeconfig's `tokenFile`. */
function withTokenFile(tokenFiles: ReadonlyMap<string, string>): (user: User) => User {
  return (user) => {
    const tokenFile = tokenFiles.get(user.name);
    return tokenFile === undefined ? user : { ...user, authProvider: { name: "tokenFile", config: { tokenFile } } };
  };
}

function selectContext(config: KubeConfig, context: string, source: string): void {
  if (config.getContextObject(context) === null) {
    const known = config.getContexts().map(({ name }) => `"${name}"`);
    const names = known.length === 0 ? "none" : known.join(", ");
    throw new KsvmError("KubeconfigInvalid", `Cannot use context "${context}": ${source} has ${names}`);
  }
  config.setCurrentContext(context);
}

function assertUsable(config: KubeConfig, source: string): void {
  const server = config.getCurrentCluster()?.server;
  if (server === undefined) {
    throw new KsvmError(
      "KubeconfigInvalid",
      `Cannot use ${source}: its current context names no cluster; choose one with --context`,
    );
  }
  // client-node falls back to this cluster where it found neither a kubeconfig nor a service account.
  if (config.getCurrentContext() === "loaded-context" && server === "http://localhost:8080") {
    throw new KsvmError(
      "KubeconfigInvalid",
      "Cannot find a cluster: there is no kubeconfig and no service account; pass --kubeconfig or set KUBECONFIG",
    );
  }
  if (!URL.canParse(server)) {
    throw new KsvmError("KubeconfigInvalid", `Cannot use ${source}: server "${server}" is not a URL`);
  }
}

/** The host name that every API server's certificate carries, whatever address it is reached by. */
const IN_CLUSTER_SERVER_NAME = "kubernetes.default.svc";

/** The same credentials for another API server of the same cluster. */
export function withServer(config: KubeConfig, server: string): KubeConfig {
  const cluster = config.getCurrentCluster();
  const sameHost =
    cluster !== null && URL.canParse(server) && new URL(server).hostname === new URL(cluster.server).hostname;
  return copyOf(config, { server, ...(sameHost ? {} : { tlsServerName: IN_CLUSTER_SERVER_NAME }) });
}

function copyOf(
  config: KubeConfig,
  changes: { readonly server?: string; readonly tlsServerName?: string },
): KubeConfig {
  const cluster = config.getCurrentCluster();
  const context = config.getContextObject(config.getCurrentContext());
  if (cluster === null || context === null) {
    throw new KsvmError("KubeconfigInvalid", "Cannot reach an API server: the kubeconfig has no current context");
  }
  const copy = new KubeConfig();
  copy.loadFromOptions({
    clusters: [{ ...cluster, ...changes }],
    users: config.getUsers(),
    contexts: [context],
    currentContext: context.name,
  });
  return copy;
}
