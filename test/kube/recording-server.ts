import { once } from "node:events";
import {
  createServer as createHttpServer,
  type IncomingMessage,
  request as httpRequest,
  type ServerResponse,
} from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { issueSelfSigned } from "../certs/self-signed.ts";

/** The name in the server's certificate that no name server knows: a proxy alone finds it. */
export const NAME = "ksvm.test";

/** What a server could tell of who asked. */
export interface Seen {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The name in the client certificate. */
  readonly client: string | undefined;
}

interface Test {
  teardown(end: () => unknown): unknown;
}

/** Listens on loopback until the test ends. @returns the port */
export async function listenFor(t: Test, server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined).on("close", () => sockets.delete(socket));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/**
 * A stand-in for an API server that tells with which credentials it was asked. A real one does not say: it answers what the
 * user may see.
 */
export async function recordingServer(t: Test, isTls = true) {
  const seen: Seen[] = [];
  const { caPem, certPem, keyPem } = await issueSelfSigned({
    dnsNames: [NAME],
    ipAddresses: ["127.0.0.1"],
    now: new Date(),
    lifetimeMs: 3_600_000,
  });
  const handle = (request: IncomingMessage, response: ServerResponse): void => {
    seen.push(describe(request));
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ major: "1", minor: "36", gitVersion: "v1.36.3" }));
  };
  const tls = { cert: certPem, key: keyPem, requestCert: true, rejectUnauthorized: false };
  const server = isTls ? createHttpsServer(tls, handle) : createHttpServer(handle);
  return { port: await listenFor(t, server), caPem, certPem, keyPem, seen };
}

function describe({ headers, socket, url = "" }: IncomingMessage): Seen {
  const told = Object.entries(headers).filter(([name]) => name === "authorization" || name.startsWith("impersonate-"));
  const client = "getPeerCertificate" in socket ? (socket as TLSSocket).getPeerCertificate().subject?.CN : undefined;
  return {
    path: url,
    headers: Object.fromEntries(told.map(([name, value]) => [name, String(value)])),
    client: client === undefined ? undefined : String(client),
  };
}

/**
 * An HTTP proxy that takes every name for this machine, and tells what it was asked for and by whom.
 * @param tls its certificate, where it is spoken to by TLS. @default none
 */
export async function recordingProxy(t: Test, tls?: { readonly certPem: string; readonly keyPem: string }) {
  const asked: string[] = [];
  const handle = (request: IncomingMessage, response: ServerResponse): void => {
    const url = new URL(request.url ?? "");
    asked.push(`${request.method} ${url.origin} ${request.headers["proxy-authorization"] ?? "-"}`);
    const headers = { ...request.headers, host: url.host };
    const onward = httpRequest({ host: "127.0.0.1", port: url.port, path: url.pathname, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    onward.end();
  };
  const server =
    tls === undefined ? createHttpServer(handle) : createHttpsServer({ cert: tls.certPem, key: tls.keyPem }, handle);
  server.on("connect", ({ url = "", headers }: IncomingMessage, socket: Socket) => {
    asked.push(`CONNECT ${url} ${headers["proxy-authorization"] ?? "-"}`);
    socket.write("HTTP/1.1 200 OK\r\n\r\n");
    join(socket, Number(url.split(":").at(-1)));
  });
  return { port: await listenFor(t, server), asked };
}

/** A SOCKS5 proxy that takes every name for this machine, and tells what it was asked for. */
export async function recordingSocks(t: Test) {
  const asked: string[] = [];
  const server = createServer((socket) => {
    socket.once("data", () => {
      socket.write(Buffer.from([5, 0]));
      socket.once("data", (request) => {
        const length = request[4] ?? 0;
        const port = request.readUInt16BE(5 + length);
        asked.push(`${request.subarray(5, 5 + length).toString()}:${port}`);
        socket.write(Buffer.from([5, 0, 0, 1, 127, 0, 0, 1, 0, 0]));
        join(socket, port);
      });
    });
  });
  return { port: await listenFor(t, server), asked };
}

function join(socket: Socket, port: number): void {
  const onward = connect(port, "127.0.0.1");
  onward.on("error", () => socket.destroy()).pipe(socket);
  socket.on("close", () => onward.destroy()).pipe(onward);
}
