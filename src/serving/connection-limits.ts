import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Server as TlsServer } from "node:https";
import type { Socket } from "node:net";

/** How many connections may be open. */
export interface ConnectionLimits {
  readonly total: number;
  readonly perAddress: number;
}

/**
 * 512 connections, 128 of one address. An API server has one for each review that is under way at the same time, and
 * keeps 25 idle ones.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/util/net/http.go (SetTransportDefaults)
 */
export const DEFAULT_CONNECTION_LIMITS: ConnectionLimits = { total: 512, perAddress: 128 };

/** A connection that is open. */
export interface OpenConnection {
  readonly address: string;
  /** Whether a request is under way on it. */
  isBusy: boolean;
}

/**
 * Which connection is closed when another one comes, so that no client keeps others out: one of the same address where
 * that has as many as it may, one of the address with the most where all together are as many as there may be. Those
 * without a request go first, then those that are open for longest. `undefined` where there is room.
 *
 * @param open in the order in which they were opened, without the new one
 */
export function connectionToClose<T extends OpenConnection>(
  open: readonly T[],
  address: string,
  { total, perAddress }: ConnectionLimits,
): T | undefined {
  const counts = new Map<string, number>();
  for (const one of open) counts.set(one.address, (counts.get(one.address) ?? 0) + 1);
  const own = counts.get(address) ?? 0;
  if (own < perAddress && open.length < total) {
    return undefined;
  }
  const most = Math.max(...counts.values());
  const crowd = own >= perAddress || own === most ? address : [...counts].find(([, count]) => count === most)?.[0];
  const candidates = open.filter((one) => one.address === crowd);
  return candidates.find(({ isBusy }) => !isBusy) ?? candidates[0];
}

/** Keeps the connections of a server within limits, from before a TLS handshake on. */
export function limitConnections(server: Server | TlsServer, limits: ConnectionLimits): void {
  /**
   * By the client's address and port, which a connection and its requests share; in the order in which they were
   * opened.
   */
  const open = new Map<string, OpenConnection & { readonly socket: Socket }>();
  server.on("connection", (socket: Socket) => {
    const { remoteAddress: address = "" } = socket;
    const key = keyOf(socket);
    connectionToClose([...open.values()], address, limits)?.socket.destroy();
    open.set(key, { address, isBusy: false, socket });
    socket.once("close", () => {
      // Another connection may have come from the same port before this one was known to be closed.
      if (open.get(key)?.socket === socket) {
        open.delete(key);
      }
    });
  });
  server.on("request", ({ socket }: IncomingMessage, response: ServerResponse) => {
    const connection = open.get(keyOf(socket));
    if (connection === undefined) {
      return;
    }
    connection.isBusy = true;
    response.once("close", () => {
      connection.isBusy = false;
    });
  });
}

function keyOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
