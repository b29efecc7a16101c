import type { Socket } from "node:net";

const VERSION = 5;
const NO_AUTHENTICATION = 0;
const USER_AND_PASSWORD = 2;
const CONNECT = 1;
const DOMAIN_NAME = 3;
/** Bytes of an address by its type; a domain name has its length before it. */
const ADDRESS_BYTES: Readonly<Record<number, number>> = { 1: 4, 4: 16 };

/**
 * Has a SOCKS5 proxy connect to an address; the proxy resolves its name (RFC 1928, RFC 1929).
 * @param socket a connection to the proxy
 * @throws {Error} where the proxy refuses.
 */
export async function openThroughSocks(
  socket: Socket,
  proxy: URL,
  address: { readonly hostname: string; readonly port: number },
): Promise<Socket> {
  const host = Buffer.from(address.hostname);
  if (host.length > 255) {
    throw new Error(`SOCKS5 cannot carry the name "${address.hostname}"`);
  }
  await authenticate(socket, proxy);
  const port = Buffer.alloc(2);
  port.writeUInt16BE(address.port);
  socket.write(Buffer.concat([Buffer.from([VERSION, CONNECT, 0, DOMAIN_NAME, host.length]), host, port]));
  const [, reply = 0, , type = 0] = await read(socket, 4);
  if (reply !== 0) {
    throw new Error(`proxy ${proxy.host} cannot connect to ${address.hostname}: SOCKS5 reply ${reply}`);
  }
  const length = ADDRESS_BYTES[type] ?? (await read(socket, 1))[0] ?? 0;
  await read(socket, length + 2);
  return socket;
}

async function authenticate(socket: Socket, proxy: URL): Promise<void> {
  const offered = proxy.username === "" ? NO_AUTHENTICATION : USER_AND_PASSWORD;
  socket.write(Buffer.from([VERSION, 1, offered]));
  const [version, chosen] = await read(socket, 2);
  if (version !== VERSION || chosen !== offered) {
    throw new Error(`proxy ${proxy.host} does not take this way to log in to SOCKS5`);
  }
  if (offered === USER_AND_PASSWORD) {
    const [user, password] = [proxy.username, proxy.password].map((part) => Buffer.from(decodeURIComponent(part)));
    const pair = [user, password].flatMap((part = Buffer.alloc(0)) => [Buffer.from([part.length]), part]);
    socket.write(Buffer.concat([Buffer.from([1]), ...pair]));
    const [, status] = await read(socket, 2);
    if (status !== 0) {
      throw new Error(`proxy ${proxy.host} refuses the user name or password`);
    }
  }
}

/** Exactly so many bytes; what comes after them stays in the socket. */
async function read(socket: Socket, length: number): Promise<Buffer> {
  for (;;) {
    const bytes = socket.read(length) as Buffer | null;
    if (bytes !== null) {
      return bytes;
    }
    await new Promise((resolve) => socket.once("readable", resolve));
  }
}
