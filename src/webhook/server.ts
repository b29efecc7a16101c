import { createServer, type Server, type ServerOptions } from "node:https";
import { setTimeout as sleep } from "node:timers/promises";
import type { FastifyBaseLogger, FastifyInstance } from "fastify";
import { listenAt } from "../serving/listen.ts";
import type { Metrics } from "../observability/metrics.ts";
import { buildWebhookApp, type WebhookAppOptions } from "./app.ts";
import { DEFAULT_DRAIN_MS, DEFAULT_FINISH_MS } from "./webhook-configuration.ts";
import { type ConnectionLimits, DEFAULT_CONNECTION_LIMITS, limitConnections } from "../serving/connection-limits.ts";
import type { ServingCertificate, ServingPair, ServingPairOutcome } from "./serving-certificate.ts";

/** Options of {@link startWebhookServer}. */
export interface WebhookServerOptions extends Pick<WebhookAppOptions, "bodyLimit" | "progressOf"> {
  /** The address to listen on. */
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** Where the server gets its pair, now and later. Without one it listens, is not ready, and ends every handshake. */
  readonly certificate: ServingCertificate;
  /** @default {@link DEFAULT_CONNECTION_LIMITS} */
  readonly connectionLimits?: ConnectionLimits | undefined;
  /** What a server with a certificate still lacks to be ready. @default nothing */
  readonly lacking?: (() => string | undefined) | undefined;
  readonly metrics: Metrics;
  readonly logger: FastifyBaseLogger;
  /** Milliseconds for a whole request. @default {@link REQUEST_TIMEOUT_MS} */
  readonly requestTimeoutMs?: number | undefined;
  /**
   * Milliseconds that {@link WebhookServer.close} keeps answering while everybody learns that the server is not ready.
   * @default {@link DEFAULT_DRAIN_MS}
   */
  readonly drainMs?: number | undefined;
  /**
   * Milliseconds that requests which are under way then may still take.
   * @default {@link DEFAULT_FINISH_MS}
   */
  readonly finishMs?: number | undefined;
}

/** A webhook that serves. */
export interface WebhookServer {
  /** Without a path: `https://host:port`. */
  readonly url: string;
  readonly port: number;
  /** Why no new connections are to be sent here; `undefined` where they are welcome. */
  ready(): string | undefined;
  /**
   * Is not ready from the first moment, goes on answering for the drain time, each answer the last one on its
   * connection, then stops listening and finishes what is under way. Over after `drainMs` and `finishMs` at the latest.
   */
  close(): Promise<void>;
}

/**
 * 120 seconds. API servers close idle connections after 90: it must always be they who do, as a request that is sent
 * while this side closes would be lost, and that update fail.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/util/net/http.go (SetTransportDefaults)
 */
const KEEP_ALIVE_MS = 120_000;

/** 10 seconds for the handshake, and for a request: twice the time that an API server waits for an answer of this webhook. */
const REQUEST_TIMEOUT_MS = 10_000;

/** Every API server of a Kubernetes release that is supported speaks it. */
const TLS: ServerOptions = { minVersion: "TLSv1.3" };

/**
 * Serves the webhook over TLS 1.3.
 * @throws {KsvmError} ListenFailed where the address cannot be had
 */
export async function startWebhookServer(options: WebhookServerOptions): Promise<WebhookServer> {
  const server = new DrainingServer(options);
  await server.listen();
  return server;
}

class DrainingServer implements WebhookServer {
  url = "";
  port = 0;
  readonly #options: WebhookServerOptions;
  readonly #app: FastifyInstance;
  readonly #unsubscribe: () => void;
  #server: Server | undefined;
  #closed: Promise<void> | undefined;

  constructor(options: WebhookServerOptions) {
    const { certificate, requestTimeoutMs = REQUEST_TIMEOUT_MS } = options;
    this.#options = options;
    this.#app = buildWebhookApp({
      ...options,
      ready: () => this.ready(),
      isDraining: () => this.#closed !== undefined,
      serverFactory: (handler) => {
        const limits: ServerOptions = {
          keepAliveTimeout: KEEP_ALIVE_MS,
          handshakeTimeout: REQUEST_TIMEOUT_MS,
          headersTimeout: requestTimeoutMs,
          requestTimeout: requestTimeoutMs,
          connectionsCheckingInterval: requestTimeoutMs / 2,
        };
        this.#server = createServer({ ...TLS, ...limits }, (request, response) => {
          handler(request, response);
        });
        limitConnections(this.#server, options.connectionLimits ?? DEFAULT_CONNECTION_LIMITS);
        return this.#server;
      },
    });
    if (certificate.current !== undefined && certificate.expiresAt !== undefined) {
      this.#onPair({ result: "loaded", pair: certificate.current, expiresAt: certificate.expiresAt });
    }
    this.#unsubscribe = certificate.subscribe((outcome) => this.#onPair(outcome));
  }

  async listen(): Promise<void> {
    const { host, port } = this.#options;
    try {
      const listening = await listenAt(this.#app, { host, port, message: "Listening for reviews", flags: "--webhook" });
      this.port = listening.port;
      this.url = `https://${listening.authority}`;
    } catch (error) {
      this.#unsubscribe();
      throw error;
    }
  }

  ready(): string | undefined {
    if (this.#closed !== undefined) {
      return "the server is shutting down";
    }
    const { certificate, lacking } = this.#options;
    return certificate.unusable() ?? lacking?.();
  }

  close(): Promise<void> {
    this.#closed ??= this.#drainAndClose();
    return this.#closed;
  }

  async #drainAndClose(): Promise<void> {
    const { drainMs = DEFAULT_DRAIN_MS, finishMs = DEFAULT_FINISH_MS, logger } = this.#options;
    logger.info({ drainMs }, "Draining the webhook server");
    await sleep(drainMs);
    const deadline = setTimeout(() => {
      logger.warn({ finishMs }, "Ended requests that were still under way");
      this.#server?.closeAllConnections();
    }, finishMs);
    await this.#app.close();
    clearTimeout(deadline);
    this.#unsubscribe();
  }

  #onPair(outcome: ServingPairOutcome): void {
    const { metrics, logger } = this.#options;
    metrics.certificateReloads.inc({ result: outcome.result });
    if (outcome.result === "rejected") {
      logger.warn({ reason: outcome.reason }, "Turned down a serving certificate and kept the last good one");
      return;
    }
    this.#use(outcome.pair);
    metrics.certificateExpiry.set(outcome.expiresAt.getTime() / 1_000);
    logger.info({ expiresAt: outcome.expiresAt }, "Took a serving certificate into use");
  }

  /** For the handshakes that follow; connections that are open stay as they are. */
  #use({ certPem, keyPem }: ServingPair): void {
    this.#server?.setSecureContext({ ...TLS, cert: certPem, key: keyPem });
  }
}
