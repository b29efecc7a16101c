import { once } from "node:events";
import { type TLSSocket, connect } from "node:tls";
import * as fc from "fast-check";
import pino from "pino";
import tap, { type Test } from "tap";
import { Metrics } from "../../src/observability/metrics.ts";
import { buildWebhookApp, STATUS_TEXTS, VALIDATE_PATH } from "../../src/webhook/app.ts";
import { type WebhookServerOptions, startWebhookServer } from "../../src/webhook/server.ts";
import { FROZEN, crdWith, reviewOf } from "../freeze/freeze-rule-crd.ts";
import { counted } from "../observability/counted.ts";
import { issueServing } from "./issue-serving.ts";
import { TEST_SEED } from "../seed.ts";

const { caPem, certificate } = await issueServing();
const REVIEW = JSON.stringify(reviewOf(crdWith({ annotations: FROZEN }), crdWith({ versions: { v2: true } })));
const LIMIT = 64 * 1024;

async function serve(t: Test, change: Partial<WebhookServerOptions> = {}) {
  const logger = pino({ level: "silent" });
  const metrics = new Metrics();
  const options = { host: "127.0.0.1", port: 0, drainMs: 0, bodyLimit: LIMIT, certificate, metrics, logger };
  const server = await startWebhookServer({ ...options, ...change });
  t.teardown(() => server.close());
  return { port: server.port, metrics };
}

/** A connection on which a review was announced; `answered` has all that came back when it is closed. */
async function begin(t: Test, port: number, header: string) {
  const socket: TLSSocket = connect({ port, ca: caPem });
  t.teardown(() => socket.destroy());
  await once(socket, "secureConnect");
  let text = "";
  socket.on("data", (chunk: Buffer) => (text += chunk.toString()));
  socket.on("error", () => undefined);
  const answered = once(socket, "close").then(() => text);
  socket.write(
    `POST ${VALIDATE_PATH} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n${header}\r\n\r\n`,
  );
  return { socket, answered };
}

function bodyOf(answer: string): unknown {
  return JSON.parse(answer.slice(answer.indexOf("\r\n\r\n") + 4));
}

for (const chunked of [false, true]) {
  const how = chunked ? "in chunks" : "announced";
  await tap.test(`a review over the limit, ${how}, is refused, and the connection ended`, async (t) => {
    const { port, metrics } = await serve(t);
    const body = "x".repeat(LIMIT + 1);
    const header = chunked ? "transfer-encoding: chunked" : `content-length: ${body.length}`;
    const { socket, answered } = await begin(t, port, header);
    socket.write(chunked ? `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n` : body);
    const answer = await answered;
    t.match(answer, /^HTTP\/1.1 413 /);
    t.match(bodyOf(answer), { response: { uid: "", allowed: false, status: { message: STATUS_TEXTS[413] } } });
    t.same(await counted(metrics.webhookReviews, "decision"), { invalid: 1 });
  });
}

await tap.test("a body far over the limit is not read to its end", async (t) => {
  const { port } = await serve(t);
  const { socket, answered } = await begin(t, port, `content-length: ${1024 * LIMIT}`);
  const flood = setInterval(() => socket.write("x".repeat(LIMIT)), 1);
  socket.on("end", () => clearInterval(flood));
  const answer = await answered;
  clearInterval(flood);
  t.match(answer, /^HTTP\/1.1 413 /);
  t.match(bodyOf(answer), { response: { uid: "", allowed: false, status: { message: STATUS_TEXTS[413] } } });
});

await tap.test("a review of exactly the limit is read", async (t) => {
  const { port } = await serve(t);
  const body = REVIEW + " ".repeat(LIMIT - REVIEW.length);
  const { socket, answered } = await begin(t, port, "transfer-encoding: chunked");
  for (let at = 0; at < LIMIT; at += 10_000) {
    const part = body.slice(at, at + 10_000);
    socket.write(`${part.length.toString(16)}\r\n${part}\r\n`);
  }
  socket.write("0\r\n\r\n");
  t.match(bodyOf(await answered), { response: { uid: "705ab4f5", status: { code: 403 } } });
});

await tap.test("a slow request is answered 408, and the connection ended", async (t) => {
  const { port } = await serve(t, { requestTimeoutMs: 200 });
  const { socket, answered } = await begin(t, port, `content-length: ${REVIEW.length}`);
  socket.write(REVIEW.slice(0, 40));
  t.match(await answered, /^HTTP\/1.1 408 /);
});

await tap.test("a body that breaks off does no harm", async (t) => {
  const { port } = await serve(t);
  const broken = await begin(t, port, `content-length: ${REVIEW.length}`);
  broken.socket.write(REVIEW.slice(0, 40));
  broken.socket.destroy();
  await broken.answered;
  const { socket, answered } = await begin(t, port, `content-length: ${REVIEW.length}`);
  socket.write(REVIEW);
  t.match(await answered, /^HTTP\/1.1 200 /);
});

await tap.test("no body makes the webhook fail, allow what is frozen, or tell of its insides", async (t) => {
  const app = buildWebhookApp();
  t.teardown(() => app.close());
  const cut = fc.nat({ max: REVIEW.length }).map((at) => REVIEW.slice(0, at));
  const changed = fc
    .tuple(fc.nat({ max: REVIEW.length - 1 }), fc.nat({ max: 20 }), fc.string({ maxLength: 8 }))
    .map(([at, length, text]) => REVIEW.slice(0, at) + text + REVIEW.slice(at + length));
  const values = fc.jsonValue().map((value) => JSON.stringify({ ...JSON.parse(REVIEW), request: value }));
  const payloads = fc.oneof(cut, changed, values, fc.string({ unit: "binary" }), fc.json());
  const send = (payload: string) =>
    app.inject({ method: "POST", url: VALIDATE_PATH, headers: { "content-type": "application/json" }, payload });
  await fc.assert(
    fc.asyncProperty(payloads, async (payload) => {
      const { statusCode, body } = await send(payload);
      const { kind, response } = JSON.parse(body);
      const isWellFormed = kind === "AdmissionReview" && typeof response.uid === "string";
      // A change may well make another review of it, one that is to be allowed.
      const isVerdict = statusCode === 200 && (response.allowed || response.status.code === 403);
      const isRefusal = statusCode === 400 && !response.allowed && response.status.code === 400;
      return isWellFormed && (isVerdict || isRefusal) && !/\.ts|node_modules|stack|Unexpected token/.test(body);
    }),
    { seed: TEST_SEED, numRuns: 500 },
  );
  await fc.assert(
    fc.asyncProperty(cut, async (payload) => {
      const { statusCode } = await send(payload);
      return statusCode === (payload === REVIEW ? 200 : 400);
    }),
    { seed: TEST_SEED, numRuns: 200 },
  );
});
