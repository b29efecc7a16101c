import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { FastifyBaseLogger } from "fastify";
import { buildWebhookApp, type WebhookAppOptions } from "./app.ts";

/** A serving certificate, with the CAs between it and the root behind it, and its key. */
export interface TlsPair {
  readonly certPem: string;
  readonly keyPem: string;
}

/** Options of {@link startWebhookServer}. */
export interface WebhookServerOptions extends Pick<WebhookAppOptions, "bodyLimit" | "onVerdict"> {
  /** The address to listen on. */
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  readonly tls: TlsPair;
  readonly logger: FastifyBaseLogger;
  /** Closes the server. @default only close() does */
  readonly signal?: AbortSignal;
}

/** A webhook that serves. */
export interface WebhookServer {
  /** Without a path: `https://host:port`. */
  readonly url: string;
  readonly port: number;
  /** Stops listening, answers what is under way, and ends the connections. */
  close(): Promise<void>;
}

/**
 * Serves the webhook over TLS 1.2 or newer, as every API server speaks it.
 * @throws {Error} of node:tls where certificate and key do not fit, of node:net where the address cannot be had
 * @throws the signal's reason where it was aborted before
 */
export async function startWebhookServer(options: WebhookServerOptions): Promise<WebhookServer> {
  const { host, port, tls, signal, ...appOptions } = options;
  signal?.throwIfAborted();
  const app = buildWebhookApp({
    ...appOptions,
    serverFactory: (handler) =>
      createServer({ cert: tls.certPem, key: tls.keyPem, minVersion: "TLSv1.2" }, (request, response) => {
        handler(request, response);
      }),
  });
  await app.listen({ host, port, ...(signal === undefined ? {} : { signal }) });
  const { port: actualPort } = app.server.address() as AddressInfo;
  return {
    url: `https://${host.includes(":") ? `[${host}]` : host}:${actualPort}`,
    port: actualPort,
    close: () => app.close(),
  };
}
