import { request as httpRequest } from "node:http";
import { isIP, connect as tcpConnect, type Socket } from "node:net";
import { rootCertificates, connect as tlsConnect, type ConnectionOptions, type TLSSocket } from "node:tls";
import { callbackify } from "node:util";
import type { buildConnector } from "undici";
import { messageOf } from "../../../errors.ts";
import { openThroughSocks } from "./socks.ts";

/** How connections to one server are made. */
export interface ConnectionSpec {
  readonly tls: Pick<ConnectionOptions, "ca" | "cert" | "key" | "rejectUnauthorized" | "servername">;
  /** Passed on the way. @default none */
  readonly proxy?: URL | undefined;
}

/**
 * How long a connection may take to stand: TCP, the proxy and the TLS handshake together, in milliseconds. A request that
 * waits for it has a deadline of its own.
 */
const CONNECT_TIMEOUT_MS = 10_000;
/** As client-go: load balancers often drop a connection that is silent for a minute. */
const KEEP_ALIVE_MS = 30_000;

/**
 * Makes connections for undici. Each of its own connectors bounds one stage and none heeds a signal.
 * @param signal ends the connections that do not stand yet
 */
export function connectorFor(spec: ConnectionSpec, signal: AbortSignal): buildConnector.connector {
  const sessions: { last?: Buffer } = {};
  const connect = callbackify((target: buildConnector.Options) => open(spec, target, signal, sessions));
  return (target, callback) =>
    connect(target, (error, socket) => (error === null ? callback(null, socket) : callback(error, null)));
}

/** Whether requests go to the proxy in absolute form, instead of through a tunnel. */
export function isForwarded({ proxy }: ConnectionSpec, server: URL): boolean {
  return server.protocol === "http:" && proxy !== undefined && proxy.protocol !== "socks5:";
}

async function open(
  spec: ConnectionSpec,
  target: buildConnector.Options,
  signal: AbortSignal,
  sessions: { last?: Buffer },
): Promise<Socket> {
  const opening = new Opening(signal);
  try {
    const { hostname, protocol } = target;
    const isTls = protocol === "https:";
    const port = Number(target.port === "" ? (isTls ? 443 : 80) : target.port);
    const socket = await openRaw(spec, { hostname, port, isTls }, opening);
    if (!isTls) {
      return socket;
    }
    const options = { ...spec.tls, ...(sessions.last === undefined ? {} : { session: sessions.last }) };
    const secure = await handshake(socket, hostname, options, opening);
    secure.on("session", (session: Buffer) => {
      sessions.last = session;
    });
    return secure;
  } catch (error) {
    opening.destroy();
    throw signal.aborted ? (signal.reason as Error) : error;
  } finally {
    opening.end();
  }
}

interface Address {
  readonly hostname: string;
  readonly port: number;
}

async function openRaw(
  { proxy, tls }: ConnectionSpec,
  { isTls, ...address }: Address & { readonly isTls: boolean },
  opening: Opening,
): Promise<Socket> {
  if (proxy === undefined) {
    return connectTcp(address, opening);
  }
  const defaultPort = { "http:": 80, "https:": 443 }[proxy.protocol] ?? 1080;
  const raw = await connectTcp(
    { hostname: hostOf(proxy), port: Number(proxy.port === "" ? defaultPort : proxy.port) },
    opening,
  );
  if (proxy.protocol === "socks5:") {
    return opening.bound(raw, openThroughSocks(raw, proxy, address));
  }
  const toProxy = proxy.protocol === "https:" ? await proxyHandshake(raw, proxy, tls, opening) : raw;
  return isTls ? opening.bound(toProxy, openTunnel(toProxy, proxy, address)) : toProxy;
}

/** The cluster's authority is trusted for the proxy, too, as with kubectl, and so are public ones. */
async function proxyHandshake(
  raw: Socket,
  proxy: URL,
  { ca, rejectUnauthorized }: ConnectionSpec["tls"],
  opening: Opening,
): Promise<TLSSocket> {
  const trusted = ca === undefined ? {} : { ca: [...rootCertificates, ...[ca].flat()] };
  const isChecked = rejectUnauthorized === undefined ? {} : { rejectUnauthorized };
  try {
    return await handshake(raw, hostOf(proxy), { ...trusted, ...isChecked }, opening);
  } catch (error) {
    throw new Error(`proxy ${proxy.host}: ${messageOf(error)}`, { cause: error });
  }
}

function hostOf({ hostname }: URL): string {
  return hostname.replace(/^\[(.*)\]$/, "$1");
}

async function connectTcp({ hostname, port }: Address, opening: Opening): Promise<Socket> {
  const socket = tcpConnect({ host: hostname, port });
  socket.setKeepAlive(true, KEEP_ALIVE_MS).setNoDelay(true);
  await opening.bound(socket, once(socket, "connect"));
  return socket;
}

async function handshake(
  socket: Socket,
  host: string,
  options: ConnectionOptions,
  opening: Opening,
): Promise<TLSSocket> {
  // The name of an IP address may not be sent; the certificate is compared with it all the same.
  const servername = options.servername ?? (isIP(host) === 0 ? host : undefined);
  const secure = tlsConnect({
    ALPNProtocols: ["http/1.1"],
    ...options,
    ...(servername === undefined ? {} : { servername }),
    host,
    socket,
  });
  await opening.bound(secure, once(secure, "secureConnect"));
  return secure;
}

function once(socket: Socket, event: "connect" | "secureConnect"): Promise<void> {
  return new Promise((resolve) => socket.once(event, () => resolve()));
}

/** `CONNECT host:port`, RFC 9110, section 9.3.6. */
function openTunnel(socket: Socket, proxy: URL, { hostname, port }: Address): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const path = `${isIP(hostname) === 6 ? `[${hostname}]` : hostname}:${port}`;
  const request = httpRequest({
    method: "CONNECT",
    path,
    headers: { host: path, ...proxyAuthorization(proxy) },
    createConnection: () => socket,
  });
  const refused = (status = 0): void => reject(new Error(`proxy ${proxy.host} answered ${status} to CONNECT ${path}`));
  request.on("connect", ({ statusCode }, tunnel, head) => {
    if (statusCode !== 200) {
      return refused(statusCode);
    }
    if (head.length > 0) {
      tunnel.unshift(head);
    }
    return resolve(tunnel);
  });
  request.on("response", ({ statusCode }) => refused(statusCode));
  request.on("error", reject);
  request.end();
  return promise;
}

/** The user name and password in a proxy's URL, as a header. */
export function proxyAuthorization({ username, password }: URL): Readonly<Record<string, string>> {
  if (username === "") {
    return {};
  }
  const pair = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { "proxy-authorization": `Basic ${Buffer.from(pair).toString("base64")}` };
}

/** A connection that does not stand yet: ended by the signal, and after a while. */
class Opening {
  readonly #signal: AbortSignal;
  readonly #stopped = Promise.withResolvers<never>();
  readonly #sockets: Socket[] = [];
  readonly #onAbort = (): void => this.#stopped.reject(new Error("the connection is no longer needed"));
  readonly #timer: NodeJS.Timeout;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
    const timeUp = (): void =>
      this.#stopped.reject(new Error(`no connection stood within ${CONNECT_TIMEOUT_MS / 1_000} s`));
    this.#timer = setTimeout(timeUp, CONNECT_TIMEOUT_MS);
    // The waiter of a stage gets the rejection; between two stages there is none.
    this.#stopped.promise.catch(() => undefined);
    if (signal.aborted) {
      this.#onAbort();
    }
    signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  /** Waits for one stage of `socket`, which fails with the socket. */
  async bound<T>(socket: Socket, stage: Promise<T>): Promise<T> {
    this.#sockets.push(socket);
    const failed = Promise.withResolvers<never>();
    const onClose = (): void => failed.reject(new Error("the connection was closed before it stood"));
    socket.once("error", failed.reject).once("close", onClose);
    try {
      return await Promise.race([this.#stopped.promise, failed.promise, stage]);
    } finally {
      socket.off("close", onClose).off("error", failed.reject);
      failed.promise.catch(() => undefined);
    }
  }

  destroy(): void {
    for (const socket of this.#sockets) {
      socket.on("error", () => undefined).destroy();
    }
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#signal.removeEventListener("abort", this.#onAbort);
  }
}
