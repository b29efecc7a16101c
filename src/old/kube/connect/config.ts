import { existsSync, readFileSync } from "node:fs";
import { delimiter, join, resolve } from "node:path";
import type { Cluster } from "@kubernetes/client-node";
import { KsvmError, messageOf } from "../../../errors.ts";
import {
  ClusterConfig,
  type ConnectionConfig,
  clusterOf,
  environmentOf,
  type KubeEnvironment,
  type KubeUser,
  userOf,
} from "./cluster-config.ts";
import { type Kubeconfig, mergeKubeconfigs, parseKubeconfig, textOf } from "./kubeconfig-merge.ts";
import { readCluster, readUser } from "./kubeconfig-user.ts";
import { parseProxy, proxyFromEnvironment } from "./proxy.ts";

/** Where the connection to the API server comes from. */
export interface KubeConfigOptions {
  /** Path of a kubeconfig. @default what kubectl would take: `KUBECONFIG`, `~/.kube/config`, the service account */
  readonly kubeconfig?: string;
  /** Name of a context in it. @default its current context */
  readonly context?: string;
  /** The URL of the API server. @default that of the context */
  readonly server?: string;
  /** Who is to be impersonated. @default whom the user of the context impersonates, if anyone */
  readonly impersonated?: Impersonated;
  /** @default no variables and no terminal */
  readonly environment?: KubeEnvironment;
  /** Where a pod has its service account. @default /var/run/secrets/kubernetes.io/serviceaccount */
  readonly serviceAccount?: string;
}

/** A user that requests are sent for, as `kubectl --as` has it. */
export interface Impersonated {
  readonly user: string;
  /** @default none */
  readonly groups?: readonly string[] | undefined;
  /** @default none */
  readonly uid?: string | undefined;
}

const SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";

/**
 * Loads the configuration as kubectl would; inside a cluster the service account. docs/kubeconfig.md says what is supported.
 * @throws {KsvmError} KubeconfigInvalid where it cannot be read, names no cluster or user, or has no such context.
 */
export function loadKubeConfig(options: KubeConfigOptions = {}): ConnectionConfig {
  const { environment, kubeconfig } = options;
  const paths = pathsOf(options);
  const merged = mergeKubeconfigs(paths.map(readKubeconfig));
  const context = options.context ?? merged.currentContext;
  const inCluster = context === "" && kubeconfig === undefined ? serviceAccountOf(options) : undefined;
  const { cluster, user } = withOverrides(inCluster ?? selected(merged, context, sourceOf(options, paths)), options);
  assertProxyOf(cluster, environment);
  return new ClusterConfig(cluster, user, { context, ...(environment === undefined ? {} : { environment }) });
}

/** The files to merge. One that is named must exist, one of a list may be missing. */
function pathsOf({ environment, kubeconfig }: KubeConfigOptions): readonly string[] {
  if (kubeconfig !== undefined) {
    return [resolve(kubeconfig)];
  }
  const { HOME, KUBECONFIG, USERPROFILE } = environment?.variables ?? {};
  const home = HOME ?? USERPROFILE;
  const listed = (KUBECONFIG ?? "").split(delimiter).filter((path) => path !== "");
  const byDefault = home === undefined ? [] : [join(home, ".kube", "config")];
  return [...new Set(listed.length > 0 ? listed : byDefault)].map((path) => resolve(path)).filter(existsSync);
}

const NO_FILE = "the kubeconfig";

function sourceOf({ kubeconfig }: KubeConfigOptions, paths: readonly string[]): string {
  const named = kubeconfig === undefined ? paths : [kubeconfig];
  return named.length === 0 ? NO_FILE : `kubeconfig ${named.map((path) => `"${path}"`).join(", ")}`;
}

function readKubeconfig(path: string): Kubeconfig {
  try {
    return parseKubeconfig(readFileSync(path, "utf8"), path);
  } catch (error) {
    throw new KsvmError("KubeconfigInvalid", `Cannot load kubeconfig "${path}": ${messageOf(error)}`, { cause: error });
  }
}

/** The proxy of a kubeconfig is read with it. */
function assertProxyOf({ proxyUrl, server }: Cluster, environment: KubeEnvironment | undefined): void {
  const proxy =
    proxyUrl === undefined ? proxyFromEnvironment(new URL(server), environment?.variables ?? {}) : undefined;
  try {
    if (proxy !== undefined) parseProxy(proxy);
  } catch (error) {
    throw new KsvmError("KubeconfigInvalid", `Cannot use HTTPS_PROXY or HTTP_PROXY: ${messageOf(error)}`);
  }
}

interface Selected {
  readonly cluster: Cluster;
  readonly user: KubeUser;
}

function selected(kubeconfig: Kubeconfig, context: string, source: string): Selected {
  if (context === "") {
    throw new KsvmError(
      "KubeconfigInvalid",
      source === NO_FILE
        ? "Cannot find a cluster: there is no kubeconfig and no service account; pass --kubeconfig or set KUBECONFIG"
        : `Cannot use ${source}: its current context names no cluster; choose one with --context`,
    );
  }
  const { clusterName, userName } = namesIn(kubeconfig, context, source);
  const missing = kubeconfig.clusters.has(clusterName) ? `user "${userName}"` : `cluster "${clusterName}"`;
  const cluster = kubeconfig.clusters.get(clusterName);
  const user = userName === "" ? {} : kubeconfig.users.get(userName);
  if (cluster === undefined || user === undefined) {
    throw new KsvmError("KubeconfigInvalid", `Cannot use context "${context}": ${source} has no ${missing}`);
  }
  try {
    return { cluster: readCluster(clusterName, cluster), user: readUser(userName, user) };
  } catch (error) {
    throw new KsvmError("KubeconfigInvalid", `Cannot use ${source}: ${messageOf(error)}`, { cause: error });
  }
}

function namesIn(
  { contexts }: Kubeconfig,
  context: string,
  source: string,
): { readonly clusterName: string; readonly userName: string } {
  const entry = contexts.get(context);
  if (entry === undefined) {
    const known = [...contexts.keys()].map((name) => `"${name}"`);
    const names = known.length === 0 ? "none" : known.join(", ");
    throw new KsvmError("KubeconfigInvalid", `Cannot use context "${context}": ${source} has ${names}`);
  }
  return { clusterName: textOf(entry["cluster"]) ?? "", userName: textOf(entry["user"]) ?? "" };
}

/** As with client-go, what proves who asks is sent to no server without TLS, such as `kubectl proxy`. */
function usable(cluster: Cluster, user: KubeUser): Selected {
  const { name, impersonateExtra, impersonateGroups, impersonateUid, impersonateUser } = user;
  const unproven: KubeUser = {
    name,
    impersonateExtra,
    impersonateGroups,
    impersonateUid,
    ...(impersonateUser === undefined ? {} : { impersonateUser }),
  };
  return { cluster, user: cluster.server.startsWith("https:") ? user : unproven };
}

/** What the command line names goes before what the kubeconfig has. As with kubectl, `tls-server-name` is then not of that server. */
function withOverrides({ cluster, user }: Selected, { impersonated, server }: KubeConfigOptions): Selected {
  const asked: KubeUser =
    impersonated === undefined
      ? user
      : {
          ...user,
          impersonateUser: impersonated.user,
          impersonateGroups: impersonated.groups,
          impersonateUid: impersonated.uid,
          impersonateExtra: undefined,
        };
  return usable(server === undefined ? cluster : withoutServerName({ ...cluster, server }), asked);
}

function withoutServerName(cluster: Cluster): Cluster {
  const { tlsServerName: _, ...rest } = cluster;
  return rest;
}

/** The service account of the pod that this program runs in; `undefined` where it runs in none. */
function serviceAccountOf(options: KubeConfigOptions): Selected | undefined {
  const { environment, serviceAccount = SERVICE_ACCOUNT } = options;
  const { KUBERNETES_SERVICE_HOST: host = "", KUBERNETES_SERVICE_PORT: port = "" } = environment?.variables ?? {};
  const tokenFile = join(serviceAccount, "token");
  if (host === "" || port === "" || !existsSync(tokenFile)) {
    return undefined;
  }
  const server = `https://${host.includes(":") ? `[${host}]` : host}:${port}`;
  const caFile = join(serviceAccount, "ca.crt");
  return {
    cluster: { name: "in-cluster", server, caFile, skipTLSVerify: false },
    user: { name: "in-cluster", tokenFile },
  };
}

/** The host name that every API server's certificate carries, whatever address it is reached by. */
const IN_CLUSTER_SERVER_NAME = "kubernetes.default.svc";

/**
 * The same credentials for another API server of the same cluster.
 * @throws {KsvmError} KubeconfigInvalid where the configuration has no current context.
 */
export function withServer(config: ConnectionConfig, server: string): ConnectionConfig {
  const cluster = clusterOf(config);
  const sameHost = URL.canParse(server) && new URL(server).hostname === new URL(cluster.server).hostname;
  const changes = { server, ...(sameHost ? {} : { tlsServerName: IN_CLUSTER_SERVER_NAME }) };
  const context = config.getCurrentContext();
  // The same user object: with it the credentials are shared.
  return new ClusterConfig({ ...cluster, ...changes }, userOf(config), { context, environment: environmentOf(config) });
}
