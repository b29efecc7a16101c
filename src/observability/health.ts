import Fastify, { type FastifyBaseLogger, type FastifyInstance, type FastifyReply, LogController } from "fastify";
import { collectDefaultMetrics, type Registry } from "prom-client";
import { messageOf } from "../errors.ts";
import { DEFAULT_CONNECTION_LIMITS, limitConnections } from "../serving/connection-limits.ts";
import { listenAt } from "../serving/listen.ts";

/** One thing that has to be so. */
export interface HealthCheck {
  /** One word, as shown by `/readyz?verbose`. */
  readonly name: string;
  /** What is wrong; `undefined` where nothing is. */
  check(): string | undefined;
}

/** Options of {@link buildHealthApp}. */
export interface HealthAppOptions {
  /** What restarting the process would repair, and nothing else: an API server that is down is no reason. */
  readonly liveness: readonly HealthCheck[];
  /** What has to be so before the API server may send reviews here. */
  readonly readiness: readonly HealthCheck[];
  readonly registry: Registry;
  /** @default no logging */
  readonly logger?: FastifyBaseLogger | undefined;
}

/** Options of {@link startHealthServer}. */
export interface HealthServerOptions extends HealthAppOptions {
  /** The address to listen on. */
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
}

/** A health server that serves. */
export interface HealthServer {
  /** Without a path: `http://host:port`. */
  readonly url: string;
  /** Stops listening and ends the connections. */
  close(): Promise<void>;
}

/** Milliseconds; kubelets wait a second for an answer, and scrapers are asked to come every few seconds. */
const TIME_LIMITS = {
  requestTimeout: 10_000,
  connectionTimeout: 120_000,
  http: { headersTimeout: 10_000, connectionsCheckingInterval: 5_000 },
};

/**
 * `/livez`, `/readyz` and `/metrics`, without a port. As at an API server, `?verbose` shows every check, and a failure
 * shows them in any case.
 *
 * https://kubernetes.io/docs/reference/using-api/health-checks/
 */
export function buildHealthApp(options: HealthAppOptions): FastifyInstance {
  const { liveness, readiness, registry, logger } = options;
  const app = Fastify({
    ...(logger === undefined ? { logger: false } : { loggerInstance: logger }),
    logController: new LogController({ disableRequestLogging: true }),
    ...TIME_LIMITS,
    // Probes keep their connections: they must not hold up the end of the process.
    forceCloseConnections: true,
  });
  app.setNotFoundHandler((_, reply) => text(reply, 404, "served here: /livez, /readyz, /metrics"));
  app.setErrorHandler((error, request, reply) => {
    request.log.error({ err: error }, "Failed to answer a request");
    return text(reply, 500, "failed; the log says why");
  });
  for (const [name, checks] of [
    ["livez", liveness],
    ["readyz", readiness],
  ] as const) {
    app.get<{ Querystring: { verbose?: string } }>(`/${name}`, (request, reply) => {
      const { passed, report } = runChecks(name, checks);
      const isVerbose = !passed || request.query.verbose !== undefined;
      return text(reply, passed ? 200 : 503, isVerbose ? report : "ok");
    });
  }
  app.get("/metrics", async (_, reply) => {
    reply.header("content-type", registry.contentType);
    return registry.metrics();
  });
  return app;
}

/**
 * Runs every check, also after one that fails.
 * @returns the report has a line for each, such as `[-]webhook failed: no serving certificate yet`
 */
export function runChecks(
  name: string,
  checks: readonly HealthCheck[],
): { readonly passed: boolean; readonly report: string } {
  const problems = checks.map((check) => problemOf(check));
  const passed = problems.every((problem) => problem === undefined);
  const lines = checks.map((check, index) => {
    const problem = problems[index];
    return problem === undefined ? `[+]${check.name} ok` : `[-]${check.name} failed: ${problem}`;
  });
  return { passed, report: [...lines, `${name} check ${passed ? "passed" : "failed"}`].join("\n") };
}

/** Adds the metrics of the process (CPU, memory, event loop, garbage collection) to a registry. */
export function addProcessMetrics(registry: Registry): void {
  collectDefaultMetrics({ register: registry });
}

/**
 * Serves {@link buildHealthApp}.
 * @throws {Error} of node:net where the address cannot be had
 */
export async function startHealthServer(options: HealthServerOptions): Promise<HealthServer> {
  const { host, port, ...appOptions } = options;
  const app = buildHealthApp(appOptions);
  limitConnections(app.server, DEFAULT_CONNECTION_LIMITS);
  const { authority } = await listenAt(app, { host, port, message: "Listening for probes", flags: "--health" });
  return {
    url: `http://${authority}`,
    close: () => app.close(),
  };
}

/** A check that throws has failed. */
function problemOf(check: HealthCheck): string | undefined {
  try {
    return check.check();
  } catch (error) {
    return messageOf(error);
  }
}

function text(reply: FastifyReply, status: number, body: string): string {
  reply.code(status).type("text/plain; charset=utf-8");
  return `${body}\n`;
}
