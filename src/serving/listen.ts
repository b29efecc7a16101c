import type { AddressInfo } from "node:net";
import type { FastifyInstance } from "fastify";
import { KsvmError, messageOf } from "../errors.ts";

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
  /** What the flags that set host and port begin with, such as `--webhook`. */
  readonly flags: string;
}

/**
 * Begins to listen.
 * @returns the authority of its URL, `host:port`, and its port
 * @throws {KsvmError} ListenFailed where the address cannot be had
 */
export async function listenAt(
  app: FastifyInstance,
  { host, port, message, flags }: ListenOptions,
): Promise<{ readonly authority: string; readonly port: number }> {
  const listenTextResolver = (): string => message;
  const listen = (address: string): Promise<string> => app.listen({ host: address, port, listenTextResolver });
  const failed = (error: unknown): never => {
    throw listenFailed(error, { host, port, flags });
  };
  await listen(host).catch((error: unknown) =>
    host === ALL_ADDRESSES && NO_IPV6.has(codeOf(error)) ? listen("0.0.0.0").catch(failed) : failed(error),
  );
  const { address, port: actualPort } = app.server.address() as AddressInfo;
  return { authority: `${address.includes(":") ? `[${address}]` : address}:${actualPort}`, port: actualPort };
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? "";
}

function listenFailed(error: unknown, { host, port, flags }: Omit<ListenOptions, "message">): KsvmError {
  const address = `${host.includes(":") ? `[${host}]` : host}:${port}`;
  const why = REASONS[codeOf(error)]?.(flags) ?? messageOf(error);
  return new KsvmError("ListenFailed", `Cannot listen on ${address}: ${why}`, { cause: error });
}

/** Why an address cannot be had, and what to do. */
const REASONS: Readonly<Record<string, (flags: string) => string>> = {
  EADDRINUSE: (flags) => `another process uses this port; end it, or set another port with ${flags}-port`,
  EACCES: (flags) => `this user may not use this port; set one above 1023 with ${flags}-port`,
  EADDRNOTAVAIL: (flags) => `this machine has no such address; set one that it has with ${flags}-host`,
};
