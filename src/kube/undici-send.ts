import { BlockList, isIP } from "node:net";
import { getCACertificates, rootCertificates } from "node:tls";
import { Agent, type Dispatcher, ProxyAgent, Socks5ProxyAgent } from "undici";
import type { Clock } from "../clock.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { errorIn, withoutUser } from "./client.ts";
import { ApiError, isDenial } from "./errors.ts";
import type { Connection, HttpAnswer, HttpRequest, Send } from "./http.ts";
import type { ClusterAccess, Credentials } from "./kubeconfig.ts";

/**
 * Sends requests by undici, with the credentials of a kubeconfig, until `close` ends all connections. A 401 has the credentials renewed, and the request is sent once more.
 * @param clock bounds what undici does; sockets go by the clock of this machine
 */
export function senderFor(access: ClusterAccess, clock: Clock): { send: Send; close: () => Promise<void> } {
  const sessions = new Sessions(access, clock);
  return {
    send: async (request) => {
      let session = await sessions.current(request.signal);
      let answer = await sendOnce(request, session, clock);
      if (answer.status === 401 && !isDenial(errorIn("", answer))) {
        session = await sessions.renewed(session, request.signal);
        answer = await sendOnce(request, session, clock);
      }
      return answer;
    },
    close: () => sessions.close(),
  };
}

/** Credentials, and the connections that were made with them. */
interface Session {
  readonly credentials: Credentials;
  readonly since: number;
  /** What carries requests to an address, or over a connection of its own. */
  readonly dispatcher: (address: string, connection: Connection | undefined) => Dispatcher;
  readonly close: () => Promise<void>;
}

/** As client-go: files and plugins are asked again after so long. One that hangs is given up after as long. */
const SESSION_MS = 60_000;

class Sessions {
  readonly #access: ClusterAccess;
  readonly #clock: Clock;
  #session: Session | undefined;
  #opening: Promise<Session> | undefined;
  #hasWorked = false;

  constructor(access: ClusterAccess, clock: Clock) {
    this.#access = access;
    this.#clock = clock;
  }

  async current(signal: AbortSignal): Promise<Session> {
    const session = this.#session;
    if (session !== undefined && this.#clock.monotonic() - session.since < SESSION_MS) return session;
    this.#opening ??= this.#open().finally(() => {
      this.#opening = undefined;
    });
    return unlessAborted(this.#opening, signal);
  }

  /** Many requests find out at the same time that their credentials are refused: the first of them renews. */
  async renewed(refused: Session, signal: AbortSignal): Promise<Session> {
    if (this.#session === refused) {
      this.#access.refuse();
      // Its connections stay where the certificates do.
      this.#session = { ...refused, since: Number.NEGATIVE_INFINITY };
    }
    return this.current(signal);
  }

  async close(): Promise<void> {
    await this.#session?.close();
  }

  async #open(): Promise<Session> {
    let credentials: Credentials;
    try {
      credentials = await unlessAborted(this.#access.credentials(), this.#clock.timeout(SESSION_MS));
    } catch (error) {
      const text = `no credentials for ${this.#access.server}: ${messageOf(error)}`;
      // Where there were some before, this may pass: a plugin may not reach its own server for a moment.
      throw this.#hasWorked
        ? new ApiError("authenticate", 0, text)
        : new KsvmError("Unauthorized", `Cannot authenticate: ${text}`);
    }
    this.#hasWorked = true;
    const since = this.#clock.monotonic();
    const before = this.#session;
    if (before !== undefined && isSame(before.credentials, credentials)) {
      this.#session = { ...before, credentials, since };
    } else {
      this.#session = { credentials, since, ...connectionsBy(this.#access, credentials) };
      // Requests that are under way end well; no new one is given to it.
      void before?.close();
    }
    return this.#session;
  }
}

/** What the work makes, unless the signal is aborted first: the work then goes on unseen. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = (): void => aborted.reject(signal.reason);
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  return Promise.race([work, aborted.promise]).finally(() => signal.removeEventListener("abort", onAbort));
}

/** Whether connections that were made with one of them serve the other. */
function isSame(a: Credentials, b: Credentials): boolean {
  return [a.ca, a.cert, a.key].map(String).join() === [b.ca, b.cert, b.key].map(String).join();
}

function connectionsBy(access: ClusterAccess, credentials: Credentials): Pick<Session, "dispatcher" | "close"> {
  const pools = new Map<string, Dispatcher>();
  const own = new WeakMap<Connection, Dispatcher>();
  return {
    dispatcher: (address, connection) => {
      const { origin } = new URL(address);
      if (connection === undefined) {
        const pool = pools.get(origin) ?? dispatcherFor(access, credentials, origin, null);
        pools.set(origin, pool);
        return pool;
      }
      const known = own.get(connection);
      if (known !== undefined) return known;
      const made = dispatcherFor(access, credentials, origin, 1);
      own.set(connection, made);
      connection.ended.addEventListener("abort", () => void made.destroy(), { once: true });
      return made;
    },
    close: async () => {
      await Promise.all([...pools.values()].map((pool) => pool.close()));
    },
  };
}

/** The host name that every API server's certificate carries, whatever address it is reached by. */
const IN_CLUSTER_NAME = "kubernetes.default.svc";

function dispatcherFor(
  { isInsecure, proxyUrl, server, serverName, variables }: ClusterAccess,
  { ca, cert, key }: Credentials,
  origin: string,
  connections: number | null,
): Dispatcher {
  const { hostname } = new URL(origin);
  const name = hostname === new URL(server).hostname ? serverName : IN_CLUSTER_NAME;
  const tls = {
    ...(isInsecure ? { rejectUnauthorized: false } : { ca: ca ?? trusted() }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
    ...(name === undefined ? {} : { servername: name }),
  };
  // One HTTP/2 session that ends badly takes all of its requests down, and is no faster.
  const options = { allowH2: false, connections, headersTimeout: 0, bodyTimeout: 0 };
  const proxy = proxyUrl ?? proxyFromEnvironment(new URL(origin), variables);
  if (proxy === undefined)
    return new Agent({ ...options, connect: { ...tls, keepAlive: true, keepAliveInitialDelay: 30_000 } });
  const url = URL.parse(/^[a-z0-9]+:\/\//i.test(proxy) ? proxy : `http://${proxy}`);
  if (url === null || !["http:", "https:", "socks5:"].includes(url.protocol)) {
    // Its value is not quoted: it may hold a password.
    const text = "the proxy of the cluster, or of the environment, is not the URL of an http, https or socks5 proxy";
    throw new KsvmError("KubeconfigInvalid", `Cannot use the kubeconfig: ${text}`);
  }
  if (url.protocol === "socks5:") return new Socks5ProxyAgent(url, { ...options, requestTls: tls });
  // The cluster's authority is trusted for the proxy, too, as with kubectl, and so are public ones.
  const proxyTls = isInsecure
    ? { rejectUnauthorized: false }
    : { ca: [...rootCertificates, ...(ca ? [ca.toString()] : [])] };
  return new ProxyAgent({ ...options, uri: url.href, requestTls: tls, proxyTls, proxyTunnel: false });
}

function trusted(): string[] {
  return [...new Set([...getCACertificates("default"), ...getCACertificates("system")])];
}

/**
 * The proxy for a server by HTTPS_PROXY, HTTP_PROXY and NO_PROXY, in upper or lower case, as Go's net/http finds it. A
 * server on this machine needs none.
 *
 * https://pkg.go.dev/golang.org/x/net/http/httpproxy
 */
export function proxyFromEnvironment(
  server: URL,
  variables: Readonly<Record<string, string | undefined>>,
): string | undefined {
  const value = (name: string): string => variables[name] || variables[name.toLowerCase()] || "";
  const proxy = value(server.protocol === "https:" ? "HTTPS_PROXY" : "HTTP_PROXY");
  const host = server.hostname
    .replace(/^\[(.*)\]$/, "$1")
    .replace(/\.$/, "")
    .toLowerCase();
  const port = server.port || (server.protocol === "https:" ? "443" : "80");
  const isLocal = host === "localhost" || isWithin(host, host.includes(":") ? "::1/128" : "127.0.0.0/8");
  const isExcluded = value("NO_PROXY")
    .split(",")
    .some((pattern) => excludes(pattern.trim().toLowerCase(), host, port));
  return proxy === "" || isLocal || isExcluded ? undefined : proxy;
}

/** `example.com` stands for itself and all below it, `.example.com` and `*.example.com` for what is below it alone. */
function excludes(pattern: string, host: string, port: string): boolean {
  if (pattern === "" || pattern === "*") return pattern === "*";
  if (pattern.includes("/")) return isWithin(host, pattern);
  const [, named = pattern, onlyPort] = (isIP(pattern) === 6 ? null : /^(.*?)(?::(\d+))?$/.exec(pattern)) ?? [];
  if (onlyPort !== undefined && onlyPort !== port) return false;
  const name = named.replace(/^\[(.*)\]$/, "$1").replace(/^\*\./, ".");
  if (isIP(name) > 0) return name === host;
  return name.startsWith(".") ? host.endsWith(name) : host === name || host.endsWith(`.${name}`);
}

function isWithin(host: string, cidr: string): boolean {
  const [network = "", bits = ""] = cidr.split("/");
  const family = isIP(host);
  if (family === 0 || isIP(network) !== family || !/^\d{1,3}$/.test(bits) || Number(bits) > (family === 4 ? 32 : 128)) {
    return false;
  }
  const list = new BlockList();
  list.addSubnet(network, Number(bits), family === 4 ? "ipv4" : "ipv6");
  return list.check(host, family === 4 ? "ipv4" : "ipv6");
}

async function sendOnce(request: HttpRequest, session: Session, clock: Clock): Promise<HttpAnswer> {
  const { address, body, isStream, maxBytes, method, path, query, signal, timeoutMs } = request;
  // One controller and one timer per request: AbortSignal.any() costs more than the rest of it.
  const abort = new AbortController();
  const onAbort = (): void => abort.abort(signal.reason);
  const timeUp = (): void => abort.abort(new Error(`no answer within ${timeoutMs / 1_000} s`));
  signal.throwIfAborted();
  const cancelTimer = clock.timer(timeoutMs, timeUp);
  signal.addEventListener("abort", onAbort, { once: true });
  const free = (): void => {
    cancelTimer();
    signal.removeEventListener("abort", onAbort);
  };
  let isHandedOn = false;
  try {
    const { origin, pathname } = new URL(address);
    const search = new URLSearchParams(query).toString();
    const response = await session.dispatcher(address, request.connection).request({
      origin,
      path: `${pathname.replace(/\/$/, "")}${path}${search === "" ? "" : `?${search}`}`,
      method,
      headers: { ...session.credentials.headers, "user-agent": "ksvm", ...request.headers },
      body: body ?? null,
      signal: abort.signal,
    });
    const headers = response.headers as Record<string, string>;
    if (isStream && response.statusCode === 200) {
      cancelTimer();
      isHandedOn = true;
      // One that is aborted before it is read has nobody else to tell.
      response.body.on("error", () => undefined);
      return { status: 200, headers, text: "", lines: linesOf(response.body, maxBytes, { request, free }) };
    }
    return { status: response.statusCode, headers, text: await textOf(response, maxBytes) };
  } catch (error) {
    signal.throwIfAborted();
    throw unanswered(request, error);
  } finally {
    if (!isHandedOn) free();
  }
}

/** Errors are small, but a message may quote an object, of which etcd takes 1.5 MiB. */
const MAX_ERROR_BYTES = 4 * 2 ** 20;

async function textOf({ body, headers, statusCode }: Dispatcher.ResponseData, maxBytes: number): Promise<string> {
  const limit = statusCode < 300 ? maxBytes : MAX_ERROR_BYTES;
  const announced = Number(headers["content-length"] ?? Number.NaN);
  if (announced <= limit) return body.text();
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > limit || announced > limit) throw new Error(`the answer goes on beyond ${limit} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** A line that arrives in many chunks is joined once it is whole: a CRD of a megabyte comes in some sixty. */
async function* linesOf(
  body: Dispatcher.ResponseData["body"],
  maxBytes: number,
  { request, free }: { readonly request: HttpRequest; readonly free: () => void },
): AsyncGenerator<string> {
  let pieces: string[] = [];
  let length = 0;
  try {
    body.setEncoding("utf8");
    for await (const chunk of body as AsyncIterable<string>) {
      const [first = "", ...others] = chunk.split("\n");
      pieces.push(first);
      length += first.length;
      for (const next of others) {
        yield pieces.join("");
        pieces = [next];
        length = next.length;
      }
      if (length > maxBytes) throw new Error(`a line goes on beyond ${maxBytes} bytes`);
    }
    if (length > 0) yield pieces.join("");
  } catch (error) {
    request.signal.throwIfAborted();
    throw unanswered(request, error);
  } finally {
    free();
    body.destroy();
  }
}

function unanswered({ address, method, path }: HttpRequest, error: unknown): Error {
  if (error instanceof KsvmError) return error;
  const why = causeText(error);
  const remedy = untrustedRemedy(error);
  const server = withoutUser(address);
  return remedy === undefined
    ? new ApiError(`${method} ${path}`, 0, `no answer from ${server}: ${why}`, { cause: error })
    : new ApiError(`${method} ${path}`, 0, `no trusted connection to ${server}: ${why}; ${remedy}`, {
        cause: error,
        code: "ServerUntrusted",
      });
}

/** undici wraps the error of the socket, and Happy Eyeballs an AggregateError without a message. */
function causeText(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return causeText(error.errors[0]);
  const inner = error instanceof Error && error.cause instanceof Error ? error.cause.message : "";
  const text = messageOf(error);
  return text.includes(inner) ? text : `${text}: ${inner}`;
}

/** What to do about a certificate, by the code of OpenSSL: https://nodejs.org/docs/latest-v24.x/api/tls.html */
const REMEDIES: Readonly<Record<string, string>> = {
  ERR_TLS_CERT_ALTNAME_INVALID:
    "use an address in the kubeconfig that its certificate is valid for, or set tls-server-name of the cluster to a name that it is",
  CERT_HAS_EXPIRED: "renew it, or correct the clock of this machine",
  CERT_NOT_YET_VALID: "correct the clock of this machine, or of the one that issued it",
  CERT_REVOKED: "have another one issued",
};
const WRONG_CA_CODES =
  /^(CERT_(SIGNATURE_FAILURE|UNTRUSTED)|INVALID_CA|UNABLE_TO_(GET_ISSUER|VERIFY_LEAF)\w+|\w*SELF_SIGNED\w+)$/;
const WRONG_CA =
  "set certificate-authority or certificate-authority-data of the cluster in the kubeconfig to the CA that signed its certificate";

function untrustedRemedy(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code = "" } = error as NodeJS.ErrnoException;
  const inner: unknown = error instanceof AggregateError ? error.errors[0] : error.cause;
  return (WRONG_CA_CODES.test(code) ? WRONG_CA : REMEDIES[code]) ?? untrustedRemedy(inner);
}
