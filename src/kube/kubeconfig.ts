import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import type { RequestOptions } from "node:https";
import { delimiter, dirname, isAbsolute, join, resolve } from "node:path";
import { type Cluster, KubeConfig, loadYaml, type User } from "@kubernetes/client-node";
import { KsvmError, messageOf } from "../errors.ts";

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

/** What client-node leaves out of a user or a cluster. */
interface Extra {
  readonly tokenFile?: string;
  readonly "as-uid"?: string;
  readonly "as-groups"?: readonly string[];
  readonly "as-user-extra"?: Readonly<Record<string, readonly string[]>>;
  readonly extensions?: readonly { readonly name: string; readonly extension: unknown }[];
}

/** Those of client-node, which may be written to, with what it leaves out. */
type FullUser = { -readonly [K in keyof User]: User[K] } & { extra?: Extra };
type FullCluster = { -readonly [K in keyof Cluster]: Cluster[K] } & { extra?: Extra };

interface RawKubeconfig {
  readonly users?: readonly { readonly name: string; readonly user?: Extra }[] | null;
  readonly clusters?: readonly { readonly name: string; readonly cluster?: Extra }[] | null;
}

/**
 * Loads a configuration as kubectl does; in a pod without one, the service account.
 * @throws {KsvmError} KubeconfigInvalid where it cannot be read or does not name a cluster
 */
export function loadKubeconfig(options: KubeconfigOptions): ClusterAccess {
  let config = load(options);
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
    credentials: () => credentialsOf(config, options),
    refuse: () => {
      // The tokens that plugins have issued are kept in the configuration.
      try {
        config = load(options);
      } catch {
        // The file is being written at this moment: what was read before has to do.
      }
    },
  };
}

async function credentialsOf(config: KubeConfig, { as }: KubeconfigOptions): Promise<Credentials> {
  const user: FullUser | null = config.getCurrentUser();
  const applied: RequestOptions = {};
  try {
    await config.applyToHTTPSOptions(applied);
  } catch (error) {
    // What a plugin printed is quoted by a SyntaxError, and may be a token.
    const text = error instanceof SyntaxError ? "the exec plugin printed no JSON" : messageOf(error).slice(0, 500);
    const { installHint = "" } = (user?.exec ?? {}) as { installHint?: string };
    const isMissing = (error as NodeJS.ErrnoException).code === "ENOENT";
    throw new Error(isMissing ? `${text}; ${installHint}` : text, { cause: error });
  }
  // As with client-go, what proves who asks is sent to no server without TLS, such as `kubectl proxy`.
  const isSecret = config.getCurrentCluster()?.server.startsWith("https:") ?? false;
  const { Authorization } = (applied.headers ?? {}) as { Authorization?: string };
  const basic =
    applied.auth === undefined || applied.auth === null
      ? undefined
      : `Basic ${Buffer.from(applied.auth).toString("base64")}`;
  const authorization = Authorization?.trim() ?? basic;
  return {
    headers: {
      ...(isSecret && authorization !== undefined ? { authorization: headerText(authorization, "the token") } : {}),
      ...impersonation(user, as),
    },
    ca: applied.ca as string | Buffer | undefined,
    cert: applied.cert as string | Buffer | undefined,
    key: applied.key as string | Buffer | undefined,
  };
}

const WHO = "what is to be impersonated";

/** https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation */
function impersonation(user: FullUser | null, as: KubeconfigOptions["as"]): Record<string, string | string[]> {
  const name = as?.user ?? user?.impersonateUser;
  const groups = as === undefined ? user?.extra?.["as-groups"] : as.groups;
  const uid = as === undefined ? user?.extra?.["as-uid"] : as.uid;
  const extra = as === undefined ? (user?.extra?.["as-user-extra"] ?? {}) : {};
  if (!name) {
    if (groups?.length || uid) throw invalid("as-groups and as-uid need as");
    return {};
  }
  const extras = Object.entries(extra).map(([key, values]) => [
    `impersonate-extra-${encodeURIComponent(key).toLowerCase()}`,
    values.map((value) => headerText(value, WHO)),
  ]);
  return {
    "impersonate-user": headerText(name, WHO),
    ...(uid ? { "impersonate-uid": headerText(uid, WHO) } : {}),
    ...(groups?.length ? { "impersonate-group": groups.map((group) => headerText(group, WHO)) } : {}),
    ...(Object.fromEntries(extras) as Record<string, string[]>),
  };
}

/** A header has bytes, and Node.js takes the characters of a text for them. */
function headerText(text: string, what: string): string {
  if (/[\r\n\0]/.test(text)) throw invalid(`${what} has a line break`);
  return Buffer.from(text).toString("latin1");
}

function load(options: KubeconfigOptions): KubeConfig {
  const { context, kubeconfig, server, variables } = options;
  const config = merge(pathsOf(options).map(readFile));
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
  const cluster: FullCluster | null = config.getCurrentCluster();
  if (cluster !== null) {
    // As with kubectl, one without a scheme is of plain http. A user name and password would get into messages.
    const address = (server ?? cluster.server).replace(/^(https?:\/\/)?[^/]*@/i, "$1");
    cluster.server = /^https?:\/\//i.test(address) ? address : `http://${address}`;
    // client-node refuses plain http where this is not set.
    if (cluster.server.startsWith("http:")) cluster.skipTLSVerify = true;
  }
  const chosen = config.getContextObject(config.getCurrentContext()) as { user?: string };
  if (!chosen.user) {
    // client-node takes no certificate authority of a cluster where there is no user.
    chosen.user = "anonymous";
    config.users = [...config.users, { name: "anonymous" }];
  }
  const user: FullUser | null = config.getCurrentUser();
  const tokenFile = user?.extra?.tokenFile;
  if (user !== null && tokenFile !== undefined && existsSync(tokenFile)) {
    // As with kubectl, it goes before the token beside it.
    user.authProvider = { name: "tokenFile", config: { tokenFile } };
    delete user.token;
  }
  if (user?.exec && cluster !== null) {
    tellPlugin(user.exec as ExecSpec, cluster, variables);
    endPlugins(config);
  }
  return config;
}

const PLUGIN_MS = 60_000;

/** A plugin that hangs ends after a minute, and with this program. */
function endPlugins(config: KubeConfig): void {
  const { authenticators } = config as unknown as { readonly authenticators: readonly { execFn?: typeof spawn }[] };
  for (const authenticator of authenticators.filter((one) => "execFn" in one)) {
    authenticator.execFn = ((command: string, args: readonly string[], options: object): ChildProcess => {
      const plugin = spawn(command, args, { ...options, timeout: PLUGIN_MS, killSignal: "SIGKILL" });
      const end = (): void => void plugin.kill();
      process.once("exit", end);
      for (const over of ["error", "exit"]) plugin.once(over, () => process.off("exit", end));
      return plugin;
    }) as typeof spawn;
  }
}

interface ExecSpec {
  readonly apiVersion?: string;
  readonly interactiveMode?: string;
  readonly provideClusterInfo?: boolean;
  env?: readonly object[];
}

/** https://kubernetes.io/docs/reference/access-authn-authz/authentication/#input-and-output-formats */
function tellPlugin(
  exec: ExecSpec,
  { caData, extra, server, skipTLSVerify, tlsServerName }: FullCluster,
  variables: KubeconfigOptions["variables"],
): void {
  if (exec.interactiveMode === "Always") throw invalid("an exec plugin must ask the user, and is given no terminal");
  const cluster = {
    server,
    "certificate-authority-data": caData,
    "tls-server-name": tlsServerName,
    ...(skipTLSVerify ? { "insecure-skip-tls-verify": true } : {}),
    config: extra?.extensions?.find(({ name }) => name === "client.authentication.k8s.io/exec")?.extension,
  };
  const spec = { interactive: false, ...(exec.provideClusterInfo === true ? { cluster } : {}) };
  const value = JSON.stringify({ apiVersion: exec.apiVersion, kind: "ExecCredential", spec });
  const inherited = Object.entries(variables).map(([name, given]) => ({ name, value: given }));
  exec.env = [...inherited, ...(exec.env ?? []), { name: "KUBERNETES_EXEC_INFO", value }];
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

function readFile(path: string): KubeConfig {
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
  for (const user of config.users as FullUser[]) {
    const extra = raw?.users?.find(({ name }) => name === user.name)?.user ?? {};
    user.extra = { ...extra, ...(extra.tokenFile ? { tokenFile: absolute(extra.tokenFile) } : {}) };
  }
  for (const cluster of config.clusters as FullCluster[]) {
    cluster.extra = raw?.clusters?.find(({ name }) => name === cluster.name)?.cluster ?? {};
  }
  return config;
}

function firsts<T extends { readonly name: string }>(all: readonly T[]): T[] {
  return all.filter(({ name }, index) => all.findIndex((other) => other.name === name) === index);
}

/** The first file that defines a name defines all of it, and the first with a current context sets it. */
function merge(files: readonly KubeConfig[]): KubeConfig {
  const config = new KubeConfig();
  config.clusters = firsts(files.flatMap(({ clusters }) => clusters));
  config.users = firsts(files.flatMap(({ users }) => users));
  config.contexts = firsts(files.flatMap(({ contexts }) => contexts));
  const current = files.map((file) => file.getCurrentContext()).find((name) => name);
  if (current !== undefined) config.setCurrentContext(current);
  return config;
}

function invalid(reason: string): KsvmError {
  return new KsvmError("KubeconfigInvalid", `Cannot use the kubeconfig: ${reason}`);
}
