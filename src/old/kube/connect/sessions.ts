import { readFile } from "node:fs/promises";
import { getCACertificates } from "node:tls";
import type { Cluster } from "@kubernetes/client-node";
import { Agent, type Dispatcher } from "undici";
import type { Clock } from "../../../clock.ts";
import { KsvmError, messageOf } from "../../../errors.ts";
import { clusterOf, type ConnectionConfig } from "./cluster-config.ts";
import { type ConnectionSpec, connectorFor, isForwarded, proxyAuthorization } from "./connector.ts";
import { type CredentialSource, type Credentials, CredentialsError, credentialsOf } from "./credentials.ts";
import { parseProxy, proxyOf } from "./proxy.ts";

/** What a request is sent with. */
export interface Session {
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly dispatcher: Dispatcher;
  /** On the monotonic clock. */
  readonly since: number;
}

/**
 * Makes what carries requests to an API server: a new one for each session, which closes it.
 * @param onConnect as {@link SessionsOptions} has it
 */
export type Carrier = (server: string, onConnect: (() => void) | undefined) => Dispatcher;

/** How {@link Sessions} behave. */
export interface SessionsOptions {
  readonly clock: Clock;
  /** @default those of the configuration's user, shared by all connections of this process */
  readonly credentials?: CredentialSource | undefined;
  /** Called whenever a connection was made; then there is one at a time. @default none */
  readonly onConnect?: (() => void) | undefined;
  /** @default connections by the configuration */
  readonly carrier?: Carrier | undefined;
}

/**
 * How long credentials are used before their source is asked for them again. It keeps the token of an exec plugin until that
 * expires, so that asking is cheap; service account tokens on disk are renewed by the kubelet well before they expire.
 */
const SESSION_LIFETIME_MS = 60_000;

interface OpenSession extends Session {
  readonly credentials: Credentials;
}

/** The credentials and connections for one API server. */
export class Sessions {
  readonly #server: string;
  readonly #clock: Clock;
  readonly #config: ConnectionConfig;
  readonly #credentials: CredentialSource;
  readonly #onConnect: (() => void) | undefined;
  readonly #carrier: Carrier | undefined;
  readonly #connecting = new AbortController();
  readonly #underWay = new Set<Promise<unknown>>();
  #isHolding = false;
  #current: OpenSession | undefined;
  #opening: Promise<OpenSession> | undefined;
  #retired: Dispatcher | undefined;
  #ca: string[] | Buffer | undefined;

  constructor(config: ConnectionConfig, server: string, { carrier, clock, credentials, onConnect }: SessionsOptions) {
    this.#carrier = carrier;
    this.#config = config;
    this.#server = server;
    this.#clock = clock;
    this.#onConnect = onConnect;
    this.#credentials = credentials ?? credentialsOf(config);
  }

  /**
   * The session to send a request with.
   * @throws {KsvmError} Unauthorized where there are no credentials, as where an exec plugin fails.
   * @throws {Error} where there were some before: that may pass.
   */
  async get(): Promise<Session> {
    const current = this.#current;
    if (current !== undefined && this.#clock.monotonic() - current.since < SESSION_LIFETIME_MS) {
      return current;
    }
    this.#hold();
    this.#opening ??= this.#open().finally(() => {
      this.#opening = undefined;
    });
    return this.#opening;
  }

  /** Whether an API server has accepted the credentials of this user, on whatever connection. */
  get wereAccepted(): boolean {
    return this.#credentials.wereAccepted;
  }

  /** Says that the API server did what was asked. */
  accept(): void {
    this.#credentials.accept();
  }

  /** The session to try again with after the API server refused the credentials of `refused`. */
  async renew(refused: Session): Promise<Session> {
    // Many requests find out at the same time; the first of them drops it.
    if (this.#current === refused) {
      this.#credentials.refuse(this.#current.credentials);
      this.#retire();
    }
    return this.get();
  }

  /**
   * Waits until the connection of an answer that was read can be used again. undici does so a full turn of the event loop later, and
   * makes a new connection for a request that is sent before, which takes two round trips.
   */
  async free(): Promise<void> {
    if (this.#carrier === undefined) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Has {@link close} wait for a request. */
  async track<T>(request: Promise<T>): Promise<T> {
    this.#underWay.add(request);
    try {
      return await request;
    } finally {
      this.#underWay.delete(request);
    }
  }

  /** Ends all connections once the requests under way are done. */
  async close(): Promise<void> {
    await Promise.allSettled(this.#underWay);
    // No request waits for a connection any more; only what reads the body of a watch may be left.
    this.#connecting.abort(new Error("the connection is no longer needed"));
    if (this.#isHolding) {
      this.#isHolding = false;
      this.#credentials.release();
    }
    this.#retire();
    await this.#closeRetired();
  }

  #hold(): void {
    if (!this.#isHolding) {
      this.#isHolding = true;
      this.#credentials.hold();
    }
  }

  /**
   * A request that was handed the old session may not have been sent yet, so its dispatcher is closed one session
   * later. Watches keep their connections: close() waits for what is under way.
   */
  #retire(): void {
    if (this.#current !== undefined) {
      void this.#closeRetired();
      this.#retired = this.#current.dispatcher;
      this.#current = undefined;
    }
  }

  async #closeRetired(): Promise<void> {
    const retired = this.#retired;
    this.#retired = undefined;
    await retired?.close();
  }

  async #open(): Promise<OpenSession> {
    try {
      const credentials = await this.#credentials.get();
      const dispatcher = this.#carrier?.(this.#server, this.#onConnect) ?? (await this.#connections(credentials));
      this.#retire();
      const { headers } = credentials;
      this.#current = { credentials, headers, dispatcher, since: this.#clock.monotonic() };
      return this.#current;
    } catch (error) {
      if (error instanceof CredentialsError && error.isTransient) {
        throw new Error(`nothing can be sent without credentials: ${error.message}`, { cause: error });
      }
      const text = `Cannot authenticate: no credentials for ${this.#server}: ${messageOf(error)}`;
      throw new KsvmError("Unauthorized", text, { cause: error });
    }
  }

  async #connectionSpec({ cert, key }: Credentials): Promise<ConnectionSpec> {
    const cluster = clusterOf(this.#config);
    const { skipTLSVerify, tlsServerName = "" } = cluster;
    const proxy = proxyOf(this.#config, new URL(this.#server));
    return {
      tls: {
        ...(skipTLSVerify ? { rejectUnauthorized: false } : { ca: await this.#authorities(cluster) }),
        ...(cert === undefined ? {} : { cert }),
        ...(key === undefined ? {} : { key }),
        ...(tlsServerName === "" ? {} : { servername: tlsServerName }),
      },
      proxy: proxy === undefined ? undefined : parseProxy(proxy),
    };
  }

  /** As last read where the file cannot be read for a moment; without any, what this machine and Node trust. */
  async #authorities({ caData = "", caFile = "" }: Cluster): Promise<string[] | Buffer> {
    if (caData !== "") {
      return Buffer.from(caData, "base64");
    }
    if (caFile === "") {
      this.#ca ??= [...new Set([...getCACertificates("default"), ...getCACertificates("system")])];
      return this.#ca;
    }
    try {
      this.#ca = await readFile(caFile);
      return this.#ca;
    } catch (error) {
      if (this.#ca === undefined) {
        throw error;
      }
      return this.#ca;
    }
  }

  async #connections(credentials: Credentials): Promise<Dispatcher> {
    const spec = await this.#connectionSpec(credentials);
    const server = new URL(this.#server);
    // undici would agree on HTTP/2 with any API server. One stream that ends badly there can take the session down, and
    // with it all requests on their way; and sixteen connections are no slower than sixteen streams.
    const connect = connectorFor(spec, this.#connecting.signal);
    const onConnect = this.#onConnect;
    const agent = new Agent({ allowH2: false, connect, ...(onConnect === undefined ? {} : { connections: 1 }) });
    if (onConnect !== undefined) {
      agent.on("connect", onConnect);
    }
    return spec.proxy !== undefined && isForwarded(spec, server) ? agent.compose(inAbsoluteForm(spec.proxy)) : agent;
  }
}

/** A proxy is asked for a plain http server by the whole URL, RFC 9112, section 3.2.2. */
function inAbsoluteForm(proxy: URL): Dispatcher.DispatcherComposeInterceptor {
  const authorization = proxyAuthorization(proxy);
  return (dispatch) => (options, handler) => {
    const headers = { ...(options.headers as Record<string, string>), ...authorization };
    return dispatch({ ...options, headers, path: `${String(options.origin)}${options.path}` }, handler);
  };
}
