import Fastify, {
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type FastifyServerFactory,
  LogController,
} from "fastify";
import { allowed, denied, errored, parseAdmissionReview, type ReviewAnswer, uidOf } from "./admission-review.ts";
import { type FreezeVerdict, freezeVerdict } from "./freeze-rule.ts";

/** Where the API server sends its reviews. */
export const VALIDATE_PATH = "/validate";

/** Options of {@link buildWebhookApp}. */
export interface WebhookAppOptions {
  /** @default no logging */
  readonly logger?: FastifyBaseLogger | undefined;
  /** Bytes of the largest review that is read. @default {@link DEFAULT_BODY_LIMIT} */
  readonly bodyLimit?: number | undefined;
  /** Told about every verdict, before it is answered. @default nobody */
  readonly onVerdict?: ((verdict: FreezeVerdict, crdName: string) => void) | undefined;
  /** Makes the server that will listen. @default Fastify's own, which speaks plain HTTP */
  readonly serverFactory?: FastifyServerFactory | undefined;
}

/**
 * 7 MiB. The API server reads request bodies of up to 3 MiB, and a review holds two objects: the stored one, which a
 * default etcd caps at 1.5 MiB but an operator may raise, and the new one. One more MiB is for the managedFields that
 * the API server adds to both, and for the envelope.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/server/config.go (MaxRequestBodyBytes)
 */
export const DEFAULT_BODY_LIMIT = (3 + 3 + 1) * 1024 * 1024;

/** The methods of every path. */
const METHODS: Readonly<Record<string, string>> = {
  [VALIDATE_PATH]: "POST",
  "/healthz": "GET, HEAD",
  "/readyz": "GET, HEAD",
};

/**
 * The HTTP status of every answer other than a verdict, and the text that goes with it. A verdict is always a 200, with
 * the 403 of a denial inside. A 400 for a body that is JSON but no review says instead which field is wrong. No answer
 * carries an error's own message, which may show internals.
 */
export const STATUS_TEXTS: Readonly<Record<number, string>> = {
  400: "Cannot read the AdmissionReview: the body is empty or broken JSON",
  404: "Nothing is served at this path",
  405: "This path does not take this method",
  413: "The AdmissionReview is larger than this webhook reads",
  415: "The content type must be application/json",
  500: "The webhook failed to review the update; its log says why",
};

/** The webhook without a port: it never listens by itself. */
export function buildWebhookApp(options: WebhookAppOptions = {}): FastifyInstance {
  const { logger, serverFactory, onVerdict, bodyLimit = DEFAULT_BODY_LIMIT } = options;
  const app = Fastify({
    ...(logger === undefined ? { logger: false } : { loggerInstance: logger }),
    ...(serverFactory === undefined ? {} : { serverFactory }),
    bodyLimit,
    logController: new LogController({ disableRequestLogging: true }),
    // A schema may well have a property named "__proto__" or "constructor". The body is read field by field and never
    // copied, so such keys do no harm; refusing them would block updates of that CRD.
    onProtoPoisoning: "ignore",
    onConstructorPoisoning: "ignore",
  });
  app.removeContentTypeParser("text/plain");
  app.addHook("onRequest", refuseUnknownRoute);
  app.setErrorHandler(answerError);
  app.get("/healthz", isServing);
  app.get("/readyz", isServing);
  app.post(VALIDATE_PATH, (request, reply) => review(request, reply, onVerdict));
  return app;
}

function isServing(): { status: string } {
  return { status: "ok" };
}

function review(request: FastifyRequest, reply: FastifyReply, onVerdict: WebhookAppOptions["onVerdict"]): ReviewAnswer {
  const parsed = parseAdmissionReview(request.body);
  if (!parsed.valid) {
    const { uid, problem } = parsed;
    request.log.warn({ uid, problem }, "Refused a review");
    reply.code(400);
    return errored(uid, 400, problem);
  }
  const { uid, object, oldObject } = parsed.request;
  const crd = oldObject.metadata.name;
  const verdict = freezeVerdict(oldObject, object);
  onVerdict?.(verdict, crd);
  request.log.info({ uid, crd, allowed: verdict.allowed }, "Reviewed an update of a CRD");
  return verdict.allowed ? allowed(uid) : denied(uid, verdict.message);
}

/** Answers before the body is looked at, so that a wrong path or method is never reported as a wrong body. */
async function refuseUnknownRoute(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  if (!request.is404) {
    return;
  }
  const methods = METHODS[request.url.split("?", 1)[0] ?? ""];
  const status = methods === undefined ? 404 : 405;
  if (methods !== undefined) {
    reply.header("allow", methods);
  }
  await reply.code(status).send({ message: STATUS_TEXTS[status] });
}

function answerError(error: FastifyError, request: FastifyRequest, reply: FastifyReply): ReviewAnswer {
  const status = error.statusCode !== undefined && error.statusCode in STATUS_TEXTS ? error.statusCode : 500;
  if (status === 500) {
    request.log.error({ err: error }, "Failed to answer a request");
  } else {
    request.log.warn({ err: error }, "Refused a request");
  }
  reply.code(status);
  return errored(uidOf(request.body), status, STATUS_TEXTS[status] ?? "");
}
