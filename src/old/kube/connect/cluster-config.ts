import type { Cluster, KubeConfig, User } from "@kubernetes/client-node";
import { KsvmError } from "../../../errors.ts";

/** What a connection may use of the process that it belongs to. */
export interface KubeEnvironment {
  /** For exec plugins and for HTTPS_PROXY, HTTP_PROXY and NO_PROXY. */
  readonly variables: Readonly<Record<string, string | undefined>>;
  /** Whether an exec plugin may ask the user: stdin and stderr are a terminal. */
  readonly isTerminal: boolean;
}

/** No variables and no terminal. */
const NO_ENVIRONMENT: KubeEnvironment = { variables: {}, isTerminal: false };

/** A user as a kubeconfig has it: client-node's, and what client-node leaves out. */
export interface KubeUser extends User {
  /** An absolute path. */
  readonly tokenFile?: string | undefined;
  readonly impersonateUid?: string | undefined;
  readonly impersonateGroups?: readonly string[] | undefined;
  readonly impersonateExtra?: Readonly<Record<string, readonly string[]>> | undefined;
}

/** A cluster as a kubeconfig has it: client-node's, and what client-node leaves out. */
export interface KubeCluster extends Cluster {
  /** What an exec plugin is told of the cluster: the extension `client.authentication.k8s.io/exec`. */
  readonly execConfig?: unknown;
}

/**
 * What a connection takes of a configuration; a `KubeConfig` of client-node has it. This program uses client-node's types alone:
 * to load its clients takes half of the time until a command begins, and 80 MiB.
 */
export type ConnectionConfig = Pick<KubeConfig, "getCurrentCluster" | "getCurrentContext" | "getCurrentUser">;

/** One cluster and one user of a kubeconfig. */
export class ClusterConfig implements ConnectionConfig {
  readonly environment: KubeEnvironment;
  readonly #cluster: KubeCluster;
  readonly #user: KubeUser;
  readonly #context: string;

  constructor(cluster: KubeCluster, user: KubeUser, options: { context: string; environment?: KubeEnvironment }) {
    this.#cluster = cluster;
    this.#user = user;
    this.#context = options.context;
    this.environment = options.environment ?? NO_ENVIRONMENT;
  }

  getCurrentCluster(): KubeCluster {
    return this.#cluster;
  }

  getCurrentContext(): string {
    return this.#context;
  }

  getCurrentUser(): KubeUser {
    return this.#user;
  }
}

/** The environment that a configuration was loaded in. */
export function environmentOf(config: ConnectionConfig): KubeEnvironment {
  return config instanceof ClusterConfig ? config.environment : NO_ENVIRONMENT;
}

/** The user of the current context; one without credentials where the context names none. */
export function userOf(config: ConnectionConfig): KubeUser {
  return config.getCurrentUser() ?? ANONYMOUS;
}

const ANONYMOUS: KubeUser = { name: "" };

/**
 * The cluster of the current context.
 * @throws {KsvmError} KubeconfigInvalid where there is none.
 */
export function clusterOf(config: ConnectionConfig): KubeCluster {
  const cluster = config.getCurrentCluster();
  if (cluster === null) {
    throw new KsvmError("KubeconfigInvalid", "Cannot reach an API server: the kubeconfig has no current context");
  }
  return cluster;
}
