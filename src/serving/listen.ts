import type { AddressInfo } from "node:net";
import type { FastifyInstance } from "fastify";

/** Listens on all addresses, of IPv4 and IPv6. */
export const ALL_ADDRESSES = "::";

/** What a machine without IPv6 answers. */
const NO_IPV6 = new Set(["EAFNOSUPPORT", "EADDRNOTAVAIL"]);

/** Where a server listens. */
export interface ListenOptions {
  /** An address; {@link ALL_ADDRESSES} means those of IPv4 where there is no IPv6. */
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** Logged once it listens. */
  readonly message: string;
}

/**
 * Begins to listen.
 * @returns the authority of its URL, `host:port`, and its port
 * @throws {Error} of node:net where the address cannot be had
 */
export async function listenAt(
  app: FastifyInstance,
  { host, port, message }: ListenOptions,
): Promise<{ readonly authority: string; readonly port: number }> {
  const listenTextResolver = (): string => message;
  try {
    await app.listen({ host, port, listenTextResolver });
  } catch (error) {
    if (host !== ALL_ADDRESSES || !NO_IPV6.has((error as NodeJS.ErrnoException).code ?? "")) {
      throw error;
    }
    await app.listen({ host: "0.0.0.0", port, listenTextResolver });
  }
  const { address, port: actualPort } = app.server.address() as AddressInfo;
  return { authority: `${address.includes(":") ? `[${address}]` : address}:${actualPort}`, port: actualPort };
}
