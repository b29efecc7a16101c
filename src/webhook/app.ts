import type { IncomingMessage } from "node:http";
import Fastify, {
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type FastifyServerFactory,
  LogController,
} from "fastify";
import { cutText } from "../cut-text.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { ReviewAnswer } from "./admission-review.ts";
import { METHODS, STATUS_TEXTS, VALIDATE_PATH } from "./http-statuses.ts";
import { BodyBudget, BodyBuffers, type BodyLimits, type ReceivedBody, receiveBody } from "./receive-body.ts";
import { type ProgressOf, refusal, type Reviewed, reviewBody } from "./review.ts";

export { VALIDATE_PATH } from "./http-statuses.ts";

/** Options of {@link buildWebhookApp}. */
export interface WebhookAppOptions {
  /** @default no logging */
  readonly logger?: FastifyBaseLogger | undefined;
  /** Bytes of the largest review that is read. @default {@link DEFAULT_BODY_LIMIT} */
  readonly bodyLimit?: number | undefined;
  /** Milliseconds that the body of a review may take to come. @default {@link DEFAULT_BODY_TIMEOUT_MS} */
  readonly bodyTimeoutMs?: number | undefined;
  /** For the words of a denial. @default they leave it out */
  readonly progressOf?: ProgressOf | undefined;
  /** Counts and times the reviews. @default none */
  readonly metrics?: Metrics | undefined;
  /** Why no new connections are to come; `undefined` where they are welcome. @default they always are */
  readonly ready?: (() => string | undefined) | undefined;
  /** Whether each answer is to be the last one on its connection. @default no */
  readonly isDraining?: (() => boolean) | undefined;
  /** Makes the server that will listen. @default Fastify's own, which speaks plain HTTP */
  readonly serverFactory?: FastifyServerFactory | undefined;
}

/**
 * 16 MiB. The API server reads request bodies of up to 3 MiB, and a review holds two objects: the new one, and the one
 * that is stored, which a default etcd caps at 1.5 MiB and an operator may raise. Both come encoded again:
 * managedFields are added, and each `<`, `>` and `&` takes six bytes instead of one. With a CRD of five versions at the
 * limits of both, descriptions in prose made a review of 4.8 MiB (docs/webhook.md): the limit is three times that.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/server/config.go (MaxRequestBodyBytes)
 */
export const DEFAULT_BODY_LIMIT = 16 * 1024 * 1024;

/** 10 seconds: twice the time that an API server waits for an answer of this webhook. */
export const DEFAULT_BODY_TIMEOUT_MS = 10_000;

/** 32 MiB for all bodies that are being received: two of the largest, or a hundred of the usual size. */
const BODIES_BUDGET = 32 * 1024 * 1024;

/** The webhook without a port: it never listens by itself. */
export function buildWebhookApp(options: WebhookAppOptions = {}): FastifyInstance {
  const { logger, serverFactory, ready, isDraining } = options;
  const limits = {
    bodyLimit: options.bodyLimit ?? DEFAULT_BODY_LIMIT,
    bodyTimeoutMs: options.bodyTimeoutMs ?? DEFAULT_BODY_TIMEOUT_MS,
    buffers: new BodyBuffers(),
    budget: new BodyBudget(BODIES_BUDGET),
  };
  const app = Fastify({
    ...(logger === undefined ? { logger: false } : { loggerInstance: logger }),
    ...(serverFactory === undefined ? {} : { serverFactory }),
    logController: new LogController({ disableRequestLogging: true }),
    // What still comes on a connection that is open while the server closes is answered, not turned away.
    return503OnClosing: false,
  });
  // A logger for each request would carry its number; what is logged here carries the review's uid.
  app.setChildLoggerFactory((parent) => parent);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("application/json", (request: FastifyRequest, payload: IncomingMessage) =>
    receiveBody(payload, contentLengthOf(request), { ...limits, address: request.socket.remoteAddress ?? "" }),
  );
  app.addHook("onRequest", (request, reply) => refuseUnknownRoute(request, reply, options.metrics));
  // Looked at when the answer goes out: the server may have begun to drain after the request came.
  app.addHook("onSend", (_request, reply, _payload, done) => {
    if (isDraining?.() === true) {
      reply.header("connection", "close");
    }
    done();
  });
  app.setErrorHandler((error: FastifyError, request, reply) => answerError(error, request, reply, options.metrics));
  app.get("/healthz", () => ({ status: "ok" }));
  app.get("/readyz", (_request, reply) => {
    const reason = ready?.();
    return reply.code(reason === undefined ? 200 : 503).send({ status: reason ?? "ok" });
  });
  app.post(VALIDATE_PATH, (request, reply) => answerReview(request, reply, options, limits));
  return app;
}

/**
 * Characters of a review's text in the log: any client that reaches the port could fill the disk by a log line of the
 * size of a body.
 */
const MAX_LOGGED_LENGTH = 300;

const NO_BODY: ReceivedBody = { bytes: Buffer.alloc(0), release: () => undefined };

function answerReview(
  request: FastifyRequest,
  reply: FastifyReply,
  options: WebhookAppOptions,
  limits: BodyLimits,
): ReviewAnswer {
  const body = bodyOf(request);
  const reviewed = reviewBody(body, { bodyLimit: limits.bodyLimit, progressOf: options.progressOf });
  body.release();
  log(reviewed, request);
  const { status, answer, decision } = reviewed;
  options.metrics?.webhookReviews.inc({ decision });
  options.metrics?.webhookDuration.observe(reply.elapsedTime / 1_000);
  reply.code(status);
  return answer;
}

/** Nothing was read where there is no body at all. */
function bodyOf({ body }: FastifyRequest): ReceivedBody {
  return (body as ReceivedBody | null | undefined) ?? NO_BODY;
}

function log({ answer, crdName, decision }: Reviewed, request: FastifyRequest): void {
  const { status, uid } = answer.response;
  const facts = { uid: cutText(uid, MAX_LOGGED_LENGTH) };
  if (crdName === undefined) {
    const problem = cutText(status?.message ?? "", MAX_LOGGED_LENGTH);
    request.log.warn({ ...facts, problem }, "Refused a review");
    return;
  }
  const crd = cutText(crdName, MAX_LOGGED_LENGTH);
  request.log.info({ ...facts, crd, allowed: decision === "allowed" }, "Reviewed an update of a CRD");
}

function contentLengthOf(request: FastifyRequest): number | undefined {
  const length = Number(request.headers["content-length"] ?? Number.NaN);
  return Number.isNaN(length) ? undefined : length;
}

/** Answers before the body is looked at, so that a wrong path or method is never reported as a wrong body. */
async function refuseUnknownRoute(request: FastifyRequest, reply: FastifyReply, metrics?: Metrics): Promise<void> {
  if (!request.is404) {
    return;
  }
  const path = pathOf(request);
  const methods = METHODS[path];
  const status = methods === undefined ? 404 : 405;
  if (methods !== undefined) {
    reply.header("allow", methods);
  }
  countInvalid(path, metrics);
  await reply.code(status).send({ message: STATUS_TEXTS[status] });
}

function answerError(
  error: FastifyError,
  request: FastifyRequest,
  reply: FastifyReply,
  metrics?: Metrics,
): ReviewAnswer {
  const status = error.statusCode !== undefined && error.statusCode in STATUS_TEXTS ? error.statusCode : 500;
  if (status === 500) {
    request.log.error({ err: error }, "Failed to answer a request");
  } else {
    request.log.warn({ err: error }, "Refused a request");
  }
  countInvalid(pathOf(request), metrics);
  // The rest of a body that was not read to its end would be taken for the next request.
  reply.code(status).header("connection", "close");
  return refusal(status).answer;
}

function pathOf({ url }: FastifyRequest): string {
  return url.split("?", 1)[0] ?? "";
}

function countInvalid(path: string, metrics: Metrics | undefined): void {
  if (path === VALIDATE_PATH) {
    metrics?.webhookReviews.inc({ decision: "invalid" });
  }
}
