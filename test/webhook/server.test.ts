import { once } from "node:events";
import { type ConnectionOptions, connect, type TLSSocket } from "node:tls";
import pino from "pino";
import tap, { type Test } from "tap";
import { Agent, request } from "undici";
import { Metrics } from "../../src/observability/metrics.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { startWebhookServer, type WebhookServer, type WebhookServerOptions } from "../../src/webhook/server.ts";
import { ServingCertificate } from "../../src/webhook/serving-certificate.ts";
import { crdWith, FROZEN, reviewOf } from "../freeze/freeze-rule-crd.ts";
import { issueServing } from "./issue-serving.ts";
import { counted } from "../observability/counted.ts";

const [first, second] = await Promise.all([issueServing(), issueServing()]);
const DENIED = reviewOf(crdWith({ annotations: FROZEN }), crdWith({ versions: { v2: true } }));

/** A server of this test, with the first certificate. */
async function serve(t: Test, change: Partial<WebhookServerOptions> = {}) {
  const certificate = new ServingCertificate();
  certificate.offer(first.pair);
  const options = { host: "127.0.0.1", port: 0, metrics: new Metrics(), logger: pino({ level: "silent" }), drainMs: 0 };
  const server = await startWebhookServer({ ...options, certificate, ...change });
  t.teardown(() => server.close());
  return { server, certificate, metrics: options.metrics };
}

function agentFor(t: Test, caPem: string): Agent {
  const agent = new Agent({ connect: { ca: caPem }, connections: 1, keepAliveTimeout: 60_000 });
  t.teardown(() => agent.destroy());
  return agent;
}

async function send({ url }: WebhookServer, dispatcher: Agent) {
  const { statusCode, headers, body } = await request(`${url}${VALIDATE_PATH}`, {
    dispatcher,
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(DENIED),
  });
  return { statusCode, headers, body: await body.json() };
}

await tap.test("startWebhookServer() reviews over TLS on a free port, and counts", async (t) => {
  const { server, metrics } = await serve(t);
  t.equal(server.url, `https://127.0.0.1:${server.port}`);
  t.equal(server.ready(), undefined);
  const answer = await send(server, agentFor(t, first.caPem));
  t.equal(answer.statusCode, 200);
  t.match(answer.body, { response: { uid: "705ab4f5", allowed: false, status: { code: 403 } } });
  t.same(await counted(metrics.webhookReviews, "decision"), { denied: 1 });
  t.match(await metrics.registry.metrics(), /^ksvm_webhook_review_duration_seconds_count 1$/m);
  t.match(await metrics.registry.metrics(), /^ksvm_certificate_reloads_total\{result="loaded"\} 1$/m);
  t.match(
    await metrics.registry.metrics(),
    /^ksvm_certificate_reloads_total\{result="rejected"\} 0$/m,
    "from the beginning",
  );
});

await tap.test("startWebhookServer() speaks nothing older than TLS 1.3, also after a reload", async (t) => {
  const { server, certificate } = await serve(t);
  for (const { caPem, pair } of [first, second]) {
    certificate.offer(pair);
    const to = { port: server.port, ca: caPem };
    t.equal(await handshake({ ...to, maxVersion: "TLSv1.2" }), "ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION");
    t.equal(await handshake(to), "TLSv1.3");
  }
});

await tap.test("startWebhookServer() starts without a certificate and serves once there is one", async (t) => {
  const certificate = new ServingCertificate();
  const { server, metrics } = await serve(t, { certificate });
  t.equal(server.ready(), "there is no serving certificate yet");
  t.match(await handshake({ port: server.port, ca: first.caPem }), /^ERR_SSL|ECONNRESET/);
  certificate.offer({ certPem: "", keyPem: "" });
  t.match(server.ready(), /no serving certificate/);
  certificate.offer(first.pair);
  t.equal(server.ready(), undefined);
  t.equal((await send(server, agentFor(t, first.caPem))).statusCode, 200);
  t.same(await counted(metrics.certificateReloads, "result"), { loaded: 1, rejected: 1 });
  const expiry = (await metrics.certificateExpiry.get()).values[0]?.value;
  t.equal(expiry, (certificate.expiresAt?.getTime() ?? 0) / 1_000);
});

await tap.test("startWebhookServer() takes a new certificate without dropping a connection", async (t) => {
  const { server, certificate } = await serve(t);
  const before = agentFor(t, first.caPem);
  const connections: unknown[] = [];
  before.on("connect", (origin) => connections.push(origin));
  t.equal((await send(server, before)).statusCode, 200);
  t.equal(certificate.offer(second.pair), undefined);
  t.equal((await send(server, before)).statusCode, 200, "the old connection goes on");
  t.equal(connections.length, 1);
  t.equal((await send(server, agentFor(t, second.caPem))).statusCode, 200, "a new one gets the new certificate");
  await t.rejects(send(server, agentFor(t, first.caPem)), /certificate/);
  t.match(certificate.offer({ ...second.pair, keyPem: first.pair.keyPem }), /another certificate/);
  t.equal((await send(server, agentFor(t, second.caPem))).statusCode, 200, "the last good one stays");
});

await tap.test("close() is not ready at once, answers while it drains, and ends each connection", async (t) => {
  const { server } = await serve(t, { drainMs: 8_000 });
  const open = agentFor(t, first.caPem);
  t.equal((await send(server, open)).headers["connection"], "keep-alive");
  const closed = server.close();
  t.equal(server.close(), closed, "closing twice is closing once");
  t.equal(server.ready(), "the server is shutting down");
  const ready = await request(`${server.url}/readyz`, { dispatcher: agentFor(t, first.caPem) });
  t.equal(ready.statusCode, 503);
  t.same(await ready.body.json(), { status: "the server is shutting down" });
  for (const dispatcher of [open, open, agentFor(t, first.caPem)]) {
    const answer = await send(server, dispatcher);
    t.equal(answer.statusCode, 200);
    t.equal(answer.headers["connection"], "close");
  }
  await closed;
  t.equal(await handshake({ port: server.port, ca: first.caPem }), "ECONNREFUSED");
});

await tap.test("close() finishes a review that is under way, and ends one that never comes to an end", async (t) => {
  for (const isFinished of [true, false]) {
    const { server } = await serve(t, { finishMs: isFinished ? 30_000 : 300 });
    const body = JSON.stringify(DENIED);
    const socket = await connectTo(t, { port: server.port, ca: first.caPem });
    socket.write(
      `POST ${VALIDATE_PATH} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n` +
        `content-length: ${body.length}\r\n\r\n${body.slice(0, 100)}`,
    );
    let answer = "";
    socket.on("data", (chunk: Buffer) => (answer += chunk.toString()));
    const ended = once(socket, "close");
    // Another review is answered after the server has read the beginning of this one.
    await send(server, agentFor(t, first.caPem));
    const closed = server.close();
    if (isFinished) socket.write(body.slice(100));
    await Promise.all([closed, ended]);
    t.match(answer, isFinished ? /^HTTP\/1.1 200 [^]*connection: close[^]*"allowed":false/i : /^$/);
  }
});

async function connectTo(t: Test, to: ConnectionOptions): Promise<TLSSocket> {
  const socket = connect(to);
  socket.on("error", () => undefined);
  t.teardown(() => socket.destroy());
  await once(socket, "secureConnect");
  return socket;
}

/** The protocol that client and server agree on, or the code of the error that ends the attempt. */
async function handshake(to: ConnectionOptions): Promise<string | null | undefined> {
  const socket = connect(to);
  try {
    await once(socket, "secureConnect");
    return socket.getProtocol();
  } catch (error) {
    return (error as NodeJS.ErrnoException).code;
  } finally {
    socket.destroy();
  }
}

await tap.test("startWebhookServer() listens on IPv6 and IPv4", async (t) => {
  const { server } = await serve(t, { host: "::" });
  t.equal(server.url, `https://[::]:${server.port}`);
  for (const host of ["::1", "127.0.0.1"]) {
    t.equal(await handshake({ port: server.port, host, ca: first.caPem, servername: "localhost" }), "TLSv1.3", host);
  }
});
