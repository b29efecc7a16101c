import Fastify, {
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyInstance,
  type FastifyRequest,
  type FastifyServerFactory,
  LogController,
} from "fastify";
import { cutText } from "../cut-text.ts";
import type { Metrics } from "../observability/metrics.ts";
import { type ProgressOf, refusal, type Reviewed, reviewBody } from "./review.ts";

/** Where the API server sends its reviews. */
export const VALIDATE_PATH = "/validate";

/** Options of {@link buildWebhookApp}. */
export interface WebhookAppOptions {
  /** @default no logging */
  readonly logger?: FastifyBaseLogger | undefined;
  /** Bytes of the largest review that is read. @default {@link BODY_LIMIT} */
  readonly bodyLimit?: number | undefined;
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
 * 7 MiB, as controller-runtime has it: the API server reads request bodies of up to 3 MiB, and a review holds two
 * objects. The largest that two objects near the limits of API server and etcd made has 4.8 MiB.
 *
 * https://github.com/kubernetes-sigs/controller-runtime/blob/v0.22.0/pkg/webhook/admission/http.go (maxRequestSize)
 */
export const BODY_LIMIT = 7 * 1024 * 1024;

/** The methods of every path. */
const METHODS: Readonly<Record<string, string>> = {
  [VALIDATE_PATH]: "POST",
  "/healthz": "GET, HEAD",
  "/readyz": "GET, HEAD",
};

/**
 * The HTTP status of every answer other than a verdict, and the text that goes with it; docs/webhook.md has the same
 * table. A verdict is always a 200, with the 403 of a denial inside. A 400 for a body that is JSON but no review says
 * instead which field is wrong. No answer carries an error's own message, which may show internals.
 */
export const STATUS_TEXTS = {
  400: "Cannot read the AdmissionReview: the body is empty or broken JSON",
  404: "Nothing is served at this path",
  405: "This path does not take this method",
  413: "Cannot read the AdmissionReview: it is larger than this webhook reads",
  415: "The content type must be application/json",
  500: "The webhook failed to review the update; its log says why",
} as const;

/** The webhook without a port: it never listens by itself. */
export function buildWebhookApp(options: WebhookAppOptions = {}): FastifyInstance {
  const { bodyLimit = BODY_LIMIT, isDraining, logger, metrics, progressOf, ready, serverFactory } = options;
  const app = Fastify({
    ...(logger === undefined ? { logger: false } : { loggerInstance: logger }),
    ...(serverFactory === undefined ? {} : { serverFactory }),
    bodyLimit,
    logController: new LogController({ disableRequestLogging: true }),
    // What still comes on a connection that is open while the server closes is answered, not turned away.
    return503OnClosing: false,
  });
  // A logger for each request would carry its number; what is logged here carries the review's uid.
  app.setChildLoggerFactory((parent) => parent);
  app.removeAllContentTypeParsers();
  // Fastify's own parser refuses property names such as `__proto__`, which a schema may have.
  app.addContentTypeParser("application/json", { parseAs: "string" }, (_request, text, done) => {
    try {
      done(null, JSON.parse(text as string));
    } catch {
      // The error of JSON.parse quotes what it could not read, which is a user's object.
      done(Object.assign(new Error("the body is no JSON"), { statusCode: 400 }));
    }
  });
  // Before the body is looked at, so that a wrong path or method is never reported as a wrong body.
  app.addHook("onRequest", async (request, reply) => {
    if (!request.is404) return;
    const path = pathOf(request);
    const methods = METHODS[path];
    const status = methods === undefined ? 404 : 405;
    if (methods !== undefined) reply.header("allow", methods);
    if (path === VALIDATE_PATH) metrics?.webhookReviews.inc({ decision: "invalid" });
    await reply.code(status).send({ message: STATUS_TEXTS[status] });
  });
  // Looked at when the answer goes out: the server may have begun to drain after the request came.
  app.addHook("onSend", (_request, reply, _payload, done) => {
    if (isDraining?.() === true) reply.header("connection", "close");
    done();
  });
  app.setErrorHandler((error: FastifyError, request, reply) => {
    const { statusCode: status = 500 } = error;
    const known = status in STATUS_TEXTS ? (status as keyof typeof STATUS_TEXTS) : 500;
    if (known === 500) request.log.error({ err: error }, "Failed to answer a request");
    else request.log.warn({ reason: cutText(error.message, MAX_LOGGED_LENGTH) }, "Refused a request");
    if (pathOf(request) === VALIDATE_PATH) metrics?.webhookReviews.inc({ decision: "invalid" });
    // The rest of a body that was not read to its end would be taken for the next request.
    return reply.code(known).header("connection", "close").send(refusal(known, STATUS_TEXTS[known]).answer);
  });
  app.get("/healthz", () => ({ status: "ok" }));
  app.get("/readyz", (_request, reply) => {
    const reason = ready?.();
    return reply.code(reason === undefined ? 200 : 503).send({ status: reason ?? "ok" });
  });
  app.post(VALIDATE_PATH, (request, reply) => {
    const reviewed = reviewBody(request.body, progressOf);
    log(reviewed, request);
    metrics?.webhookReviews.inc({ decision: reviewed.decision });
    metrics?.webhookDuration.observe(reply.elapsedTime / 1_000);
    return reply.code(reviewed.status).send(reviewed.answer);
  });
  return app;
}

/**
 * Characters of a review's text in the log: any client that reaches the port could fill the disk by a log line of the
 * size of a body.
 */
const MAX_LOGGED_LENGTH = 300;

function log({ answer, crdName, decision }: Reviewed, request: FastifyRequest): void {
  const { status, uid } = answer.response;
  const facts = { uid: cutText(uid, MAX_LOGGED_LENGTH) };
  if (crdName === undefined) {
    request.log.warn({ ...facts, problem: cutText(status?.message ?? "", MAX_LOGGED_LENGTH) }, "Refused a review");
    return;
  }
  const crd = cutText(crdName, MAX_LOGGED_LENGTH);
  request.log.info({ ...facts, crd, allowed: decision === "allowed" }, "Reviewed an update of a CRD");
}

function pathOf({ url }: FastifyRequest): string {
  return url.split("?", 1)[0] ?? "";
}
