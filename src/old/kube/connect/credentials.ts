import { readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { messageOf } from "../../../errors.ts";
import {
  clusterOf,
  type ConnectionConfig,
  environmentOf,
  type KubeCluster,
  type KubeEnvironment,
  type KubeUser,
  userOf,
} from "./cluster-config.ts";
import type { ExecCluster, ExecCredential, ExecSpec } from "./exec-credential.ts";
import { runExecPlugin } from "./exec-plugin.ts";
import { headerText } from "./header-text.ts";
import { impersonation } from "./impersonation.ts";
import { RestartPace } from "./restart-pace.ts";

/** What proves to an API server who asks. */
export interface Credentials {
  readonly headers: Readonly<Record<string, string | string[]>>;
  /** PEM. */
  readonly cert?: string | Buffer;
  /** PEM. */
  readonly key?: string | Buffer;
}

/** There are no credentials to send a request with. */
export class CredentialsError extends Error {
  override readonly name = "CredentialsError";
  /** Whether there were some before: then this may pass, as where a plugin could not reach its own server. */
  readonly isTransient: boolean;

  constructor(cause: unknown, isTransient: boolean) {
    super(messageOf(cause), { cause });
    this.isTransient = isTransient;
  }
}

/** Hands out the credentials of one user. */
export interface CredentialSource {
  /** The credentials as they are now. @throws {CredentialsError} */
  get(): Promise<Credentials>;
  /** Whether an API server has accepted credentials of this source. */
  readonly wereAccepted: boolean;
  /** An API server answered a request with these credentials, and did what was asked. */
  accept(): void;
  /** An API server refused what {@link get} returned: an exec plugin is asked again, see {@link RestartPace}. */
  refuse(refused: Credentials): void;
  /** This source is in use until {@link release}. */
  hold(): void;
  /** Ends a plugin that runs once no request waits for what it prints. */
  release(): void;
}

/** A plugin that fails at once is not run again sooner than this, in milliseconds. */
const PAUSE_AFTER_FAILURE_MS = 500;

/** By user, by the variables that a plugin has, and by what the API servers of a cluster have in common. */
const sources = new WeakMap<object, WeakMap<object, Map<string, UserCredentials>>>();

/**
 * The credentials of the current user. All connections of this process to one cluster share them, so that a plugin runs once for
 * all API servers. It may be told for which cluster: what it prints is for no other one of the same user, and for no other environment.
 */
export function credentialsOf(config: ConnectionConfig): CredentialSource {
  const user = userOf(config);
  const cluster = clusterOf(config);
  const environment = environmentOf(config);
  const ofUser = sources.get(user) ?? new WeakMap<object, Map<string, UserCredentials>>();
  sources.set(user, ofUser);
  const ofVariables = ofUser.get(environment.variables) ?? new Map<string, UserCredentials>();
  ofUser.set(environment.variables, ofVariables);
  const key = JSON.stringify([cluster.name, cluster.caData, cluster.caFile]);
  const source = ofVariables.get(key) ?? new UserCredentials(user, cluster, environment);
  ofVariables.set(key, source);
  return source;
}

class UserCredentials implements CredentialSource {
  readonly #user: KubeUser;
  readonly #cluster: KubeCluster;
  readonly #environment: KubeEnvironment;
  readonly #files = new Map<string, Buffer>();
  #held = 0;
  #abort = new AbortController();
  #issued: ExecCredential | undefined;
  #isRefused = false;
  readonly #restarts = new RestartPace();
  #running: Promise<ExecCredential> | undefined;
  #failedAt = Number.NEGATIVE_INFINITY;
  #hasWorked = false;
  #wereAccepted = false;
  #handedOut = new WeakMap<Credentials, ExecCredential>();

  constructor(user: KubeUser, cluster: KubeCluster, environment: KubeEnvironment) {
    this.#user = user;
    this.#cluster = cluster;
    this.#environment = environment;
  }

  hold(): void {
    this.#held++;
  }

  release(): void {
    this.#held--;
    if (this.#held === 0) {
      this.#abort.abort();
      this.#abort = new AbortController();
      // A connection that begins now does not wait for a plugin that is being ended, but starts one.
      this.#issued = this.#running === undefined ? this.#issued : undefined;
      this.#running = undefined;
    }
  }

  get wereAccepted(): boolean {
    return this.#wereAccepted;
  }

  accept(): void {
    this.#wereAccepted = true;
  }

  refuse(refused: Credentials): void {
    // Many requests find out at the same time; what was issued since is not what they were refused with.
    if (this.#issued !== undefined && this.#handedOut.get(refused) === this.#issued) {
      this.#isRefused = true;
    }
  }

  async get(): Promise<Credentials> {
    try {
      const issued = this.#spec === undefined ? undefined : await this.#execCredential(this.#spec);
      const credentials = await this.#credentialsWith(issued);
      if (issued !== undefined) {
        this.#handedOut.set(credentials, issued);
      }
      this.#hasWorked = true;
      return credentials;
    } catch (error) {
      throw new CredentialsError(error, this.#hasWorked);
    }
  }

  /** A token of the kubeconfig goes before the plugin, as with client-go. */
  get #spec(): ExecSpec | undefined {
    const { authProvider, exec, token, username } = this.#user;
    return hasText(token) || hasText(username)
      ? undefined
      : ((exec ?? authProvider?.config?.exec) as ExecSpec | undefined);
  }

  async #credentialsWith(issued: ExecCredential | undefined): Promise<Credentials> {
    const { certData, certFile, keyData, keyFile } = this.#user;
    const cert = issued?.cert ?? (await this.#pem(certData, certFile));
    const key = issued?.key ?? (await this.#pem(keyData, keyFile));
    const authorization = await this.#authorization(issued?.token);
    return {
      headers: { ...impersonation(this.#user), ...(authorization === undefined ? {} : { authorization }) },
      ...(cert === undefined ? {} : { cert }),
      ...(key === undefined ? {} : { key }),
    };
  }

  async #authorization(issued: string | undefined): Promise<string | undefined> {
    const { password, username } = this.#user;
    if (hasText(username)) {
      return `Basic ${Buffer.from(`${username}:${password ?? ""}`).toString("base64")}`;
    }
    const token = (await this.#token()) ?? issued;
    return token === undefined ? undefined : headerText(`Bearer ${token.trim()}`, "the token");
  }

  /** The file goes before the token beside it, which counts where the file could never be read. */
  async #token(): Promise<string | undefined> {
    const { authProvider, token, tokenFile = authProvider?.config?.tokenFile as string | undefined } = this.#user;
    if (!hasText(tokenFile)) {
      return hasText(token) ? token : undefined;
    }
    try {
      return (await this.#read(tokenFile)).toString();
    } catch (error) {
      if (hasText(token)) {
        return token;
      }
      throw error;
    }
  }

  async #pem(data: string | undefined, path: string | undefined): Promise<Buffer | undefined> {
    if (hasText(data)) {
      return Buffer.from(data, "base64");
    }
    return hasText(path) ? this.#read(path) : undefined;
  }

  /** A file that cannot be read for a moment, as while it is replaced, is what it last was. */
  async #read(path: string): Promise<Buffer> {
    try {
      const bytes = await readFile(path);
      if (bytes.length === 0) {
        throw new Error(`"${path}" is empty`);
      }
      this.#files.set(path, bytes);
      return bytes;
    } catch (error) {
      const last = this.#files.get(path);
      if (last === undefined) {
        throw error;
      }
      return last;
    }
  }

  async #execCredential(spec: ExecSpec): Promise<ExecCredential> {
    const issued = this.#issued;
    if (issued !== undefined && this.#running === undefined) {
      const isValid = !this.#isRefused && (issued.expiresAt ?? Number.POSITIVE_INFINITY) > Date.now();
      const now = performance.now();
      // The request fails with what there is, and is tried again later.
      if (isValid || !this.#restarts.isDue(now)) {
        return issued;
      }
      this.#restarts.restarted(now, this.#isRefused);
    }
    const running = this.#running ?? this.#run(spec);
    this.#running = running;
    try {
      return await running;
    } finally {
      this.#running = this.#running === running ? undefined : this.#running;
    }
  }

  async #run(spec: ExecSpec): Promise<ExecCredential> {
    const { signal } = this.#abort;
    const pauseMs = this.#failedAt + PAUSE_AFTER_FAILURE_MS - performance.now();
    if (pauseMs > 0) {
      await delay(pauseMs, undefined, { signal });
    }
    try {
      const cluster = await this.#clusterInfo();
      this.#issued = await runExecPlugin(spec, { environment: this.#environment, cluster, signal });
      this.#isRefused = false;
      return this.#issued;
    } catch (error) {
      // One that release() has ended did not fail.
      if (!signal.aborted) {
        this.#issued = undefined;
        this.#failedAt = performance.now();
      }
      throw error;
    }
  }

  async #clusterInfo(): Promise<ExecCluster> {
    const { caData, caFile, execConfig = null, proxyUrl, server, skipTLSVerify, tlsServerName } = this.#cluster;
    const ca = await this.#pem(caData, caFile);
    return {
      server,
      ...(hasText(tlsServerName) ? { "tls-server-name": tlsServerName } : {}),
      ...(skipTLSVerify ? { "insecure-skip-tls-verify": true } : {}),
      ...(ca === undefined ? {} : { "certificate-authority-data": ca.toString("base64") }),
      ...(hasText(proxyUrl) ? { "proxy-url": proxyUrl } : {}),
      config: execConfig,
    };
  }
}

function hasText(value: string | null | undefined): value is string {
  return value !== undefined && value !== null && value !== "";
}
