import { existsSync, readFileSync } from "node:fs";
import type { RequestOptions } from "node:https";
import { delimiter, dirname, isAbsolute, join, resolve } from "node:path";
import { type Cluster, KubeConfig, loadYaml, type User } from "@kubernetes/client-node";
import { KsvmError, messageOf } from "../../errors.ts";

/** Where the connection to a cluster comes from. */
export interface KubeconfigOptions {
  /** Path of a kubeconfig. @default what kubectl takes: `KUBECONFIG`, `~/.kube/config`, the service account */
  readonly kubeconfig?: string | undefined;
  /** @default the current context */
  readonly context?: string | undefined;
  /** The URL of the API server. @default that of the context */
  readonly server?: string | undefined;
  /** Whom to impersonate. @default whom the user of the context impersonates, if anyone */
  readonly as?: { readonly user: string; readonly groups?: readonly string[]; readonly uid?: string } | undefined;
  /** The environment of the process. */
  readonly variables: Readonly<Record<string, string | undefined>>;
}

/** What a request is sent with. Nothing of it may get into a message. */
export interface Credentials {
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly cert: string | Buffer | undefined;
  readonly key: string | Buffer | undefined;
  /** Certificate authorities as PEM; `undefined` for those that this machine trusts. */
  readonly ca: string | Buffer | undefined;
}

/** One cluster and one user of a kubeconfig. */
export interface ClusterAccess {
  /** The base URL of the API server. */
  readonly server: string;
  readonly isInsecure: boolean;
  /** The name that the certificate must carry. @default the host of the URL */
  readonly serverName: string | undefined;
  /** A proxy that the kubeconfig names. @default the environment's */
  readonly proxyUrl: string | undefined;
  readonly variables: Readonly<Record<string, string | undefined>>;
  /**
   * The credentials as they are now: files are read again, and an exec plugin runs again once its token has expired.
   * @throws {Error} where there are none, such as where a plugin fails
   */
  readonly credentials: () => Promise<Credentials>;
  /** Has the next {@link credentials} ask exec plugins and token issuers anew: an API server refused what they gave. */
  readonly refuse: () => void;
}

/** The extra fields of a user, which client-node leaves out. */
interface RawUser {
  readonly tokenFile?: string;
  readonly "as-uid"?: string;
  readonly "as-groups"?: readonly string[];
  readonly "as-user-extra"?: Readonly<Record<string, readonly string[]>>;
}

interface RawKubeconfig {
  readonly users?: readonly { readonly name: string; readonly user?: RawUser }[] | null;
}

/** What one file, or all of them merged, define. */
interface Loaded {
  readonly config: KubeConfig;
  readonly users: Map<string, RawUser>;
}

/**
 * Loads a configuration as kubectl does; in a pod without one, the service account.
 * @throws {KsvmError} KubeconfigInvalid where it cannot be read or does not name a cluster
 */
export function loadKubeconfig(options: KubeconfigOptions): ClusterAccess {
  let loaded = load(options);
  const { config } = loaded;
  const cluster = config.getCurrentCluster();
  if (cluster === null) throw invalid(`context "${config.getCurrentContext()}" names no cluster that there is`);
  const named = config.getContextObject(config.getCurrentContext())?.user;
  if (named && config.getCurrentUser() === null) throw invalid(`there is no user "${named}"`);
  if (!URL.canParse(cluster.server)) throw invalid("the address of the API server is no URL");
  return {
    server: cluster.server,
    isInsecure: cluster.skipTLSVerify,
    // As with kubectl, the name is that of the server in the file, not of the one on the command line.
    serverName: options.server === undefined ? cluster.tlsServerName || undefined : undefined,
    proxyUrl: cluster.proxyUrl || undefined,
    variables: options.variables,
    credentials: () => credentialsOf(loaded, options),
    refuse: () => {
      // The tokens that plugins have issued are kept in the configuration.
      loaded = load(options);
    },
  };
}

async function credentialsOf({ config, users }: Loaded, { as }: KubeconfigOptions): Promise<Credentials> {
  const user = config.getCurrentUser();
  const applied: RequestOptions = {};
  try {
    await config.applyToHTTPSOptions(applied);
  } catch (error) {
    // What a plugin printed is quoted by a SyntaxError, and may be a token.
    throw new Error(error instanceof SyntaxError ? "the exec plugin printed no JSON" : messageOf(error).slice(0, 500));
  }
  // As with client-go, what proves who asks is sent to no server without TLS, such as `kubectl proxy`.
  const isSecret = config.getCurrentCluster()?.server.startsWith("https:") ?? false;
  const { Authorization } = (applied.headers ?? {}) as { Authorization?: string };
  const basic = applied.auth == null ? undefined : `Basic ${Buffer.from(applied.auth).toString("base64")}`;
  const authorization = Authorization?.trim() ?? basic;
  return {
    headers: {
      ...(isSecret && authorization !== undefined ? { authorization } : {}),
      ...impersonation(user, users.get(user?.name ?? ""), as),
    },
    ca: applied.ca as string | Buffer | undefined,
    cert: applied.cert as string | Buffer | undefined,
    key: applied.key as string | Buffer | undefined,
  };
}

/** https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation */
function impersonation(
  user: User | null,
  raw: RawUser | undefined,
  as: KubeconfigOptions["as"],
): Record<string, string | string[]> {
  const name = as?.user ?? user?.impersonateUser;
  const groups = as === undefined ? raw?.["as-groups"] : as.groups;
  const uid = as === undefined ? raw?.["as-uid"] : as.uid;
  const extra = as === undefined ? (raw?.["as-user-extra"] ?? {}) : {};
  if (!name) {
    if (groups?.length || uid) throw invalid("as-groups and as-uid need as");
    return {};
  }
  const extras = Object.entries(extra).map(([key, values]) => [
    `impersonate-extra-${encodeURIComponent(key).toLowerCase()}`,
    [...values],
  ]);
  return {
    "impersonate-user": name,
    ...(uid ? { "impersonate-uid": uid } : {}),
    ...(groups?.length ? { "impersonate-group": [...groups] } : {}),
    ...(Object.fromEntries(extras) as Record<string, string[]>),
  };
}

function load(options: KubeconfigOptions): Loaded {
  const { context, kubeconfig, server, variables } = options;
  const loaded = merge(pathsOf(options).map(readFile));
  const { config } = loaded;
  if (context !== undefined) config.setCurrentContext(context);
  if (!config.getCurrentContext()) {
    const isPod = variables["KUBERNETES_SERVICE_HOST"] !== undefined && kubeconfig === undefined;
    if (!isPod) throw invalid("no context is chosen; pass --kubeconfig or --context, or set KUBECONFIG");
    config.loadFromCluster();
  }
  if (config.getContextObject(config.getCurrentContext()) === null) {
    const known = config.contexts.map(({ name }) => `"${name}"`).join(", ") || "none";
    throw invalid(`there is no context "${config.getCurrentContext()}"; there are ${known}`);
  }
  const cluster = config.getCurrentCluster() as { -readonly [K in keyof Cluster]: Cluster[K] } | null;
  if (cluster !== null) {
    cluster.server = withScheme(server ?? cluster.server);
    // client-node refuses plain http where this is not set.
    if (cluster.server.startsWith("http:")) cluster.skipTLSVerify = true;
  }
  const user = config.getCurrentUser() as { -readonly [K in keyof User]: User[K] } | null;
  if (user !== null) completeUser(user, loaded.users.get(user.name), cluster);
  return loaded;
}

/** Adds what client-node reads otherwise than kubectl: token files, and what an exec plugin is told. */
function completeUser(
  user: { -readonly [K in keyof User]: User[K] },
  raw: RawUser | undefined,
  cluster: Cluster | null,
): void {
  if (raw?.tokenFile !== undefined && existsSync(raw.tokenFile)) {
    user.authProvider = { name: "tokenFile", config: { tokenFile: raw.tokenFile } };
    // A token file goes before the token beside it.
    delete user.token;
  }
  const exec = user.exec as undefined | { apiVersion?: string; env?: object[]; provideClusterInfo?: boolean };
  if (exec) {
    const { caData, server, skipTLSVerify, tlsServerName } = cluster ?? {};
    const told = { server, "certificate-authority-data": caData, "insecure-skip-tls-verify": skipTLSVerify };
    const spec = {
      interactive: false,
      ...(exec.provideClusterInfo === true ? { cluster: { ...told, "tls-server-name": tlsServerName } } : {}),
    };
    const value = JSON.stringify({ apiVersion: exec.apiVersion, kind: "ExecCredential", spec });
    exec.env = [...(exec.env ?? []), { name: "KUBERNETES_EXEC_INFO", value }];
  }
}

/** The files to merge. One that is named must exist; of a list, one may be missing. */
function pathsOf({ kubeconfig, variables }: KubeconfigOptions): readonly string[] {
  if (kubeconfig !== undefined) return [resolve(kubeconfig)];
  const { HOME, KUBECONFIG = "", USERPROFILE } = variables;
  const listed = KUBECONFIG.split(delimiter).filter((path) => path !== "");
  const home = HOME ?? USERPROFILE;
  const paths = listed.length > 0 || home === undefined ? listed : [join(home, ".kube", "config")];
  return [...new Set(paths.map((path) => resolve(path)))].filter((path) => existsSync(path));
}

function readFile(path: string): Loaded {
  const config = new KubeConfig();
  let raw: RawKubeconfig | null;
  try {
    const text = readFileSync(path, "utf8");
    raw = loadYaml<RawKubeconfig | null>(text);
    if (raw !== null) config.loadFromString(text, { onInvalidEntry: "filter" });
  } catch (error) {
    // The message of a YAML error quotes the lines around it, which may hold a token.
    const { reason, mark } = error as { reason?: string; mark?: { line?: number } };
    const text = reason === undefined ? messageOf(error) : `${reason} in line ${(mark?.line ?? 0) + 1}`;
    throw invalid(`"${path}" cannot be read: ${text}`);
  }
  const folder = dirname(path);
  config.makePathsAbsolute(folder);
  const absolute = (file: string): string => (isAbsolute(file) ? file : join(folder, file));
  for (const { exec } of config.users as { exec?: { command?: string } }[]) {
    // As with kubectl, a command with a slash in it is a path beside the file.
    if (exec?.command?.includes("/")) exec.command = absolute(exec.command);
  }
  const users = new Map<string, RawUser>();
  for (const { name, user } of raw?.users ?? []) {
    users.set(name, { ...user, ...(user?.tokenFile ? { tokenFile: absolute(user.tokenFile) } : {}) });
  }
  return { config, users };
}

/** The first file that defines a name defines all of it, and the first with a current context sets it. */
function merge(files: readonly Loaded[]): Loaded {
  const config = new KubeConfig();
  const users = new Map<string, RawUser>();
  for (const file of files) {
    const known = <T extends { readonly name: string }>(all: readonly T[], more: readonly T[]): T[] => [
      ...all,
      ...more.filter(({ name }) => !all.some((one) => one.name === name)),
    ];
    config.clusters = known(config.clusters, file.config.clusters);
    config.users = known(config.users, file.config.users);
    config.contexts = known(config.contexts, file.config.contexts);
    if (!config.getCurrentContext() && file.config.getCurrentContext()) {
      config.setCurrentContext(file.config.getCurrentContext());
    }
    for (const [name, user] of file.users) if (!users.has(name)) users.set(name, user);
  }
  return { config, users };
}

/** As with kubectl, an address without a scheme is one of plain http. */
function withScheme(server: string): string {
  return /^https?:\/\//i.test(server) ? server : `http://${server}`;
}

function invalid(reason: string): KsvmError {
  return new KsvmError("KubeconfigInvalid", `Cannot use the kubeconfig: ${reason}`);
}
