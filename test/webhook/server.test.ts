import { once } from "node:events";
import { type ConnectionOptions, connect } from "node:tls";
import pino from "pino";
import tap from "tap";
import { Agent, request } from "undici";
import { issueSelfSigned } from "../../src/certs/self-signed.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { startWebhookServer } from "../../src/webhook/server.ts";
import { crdWith, FROZEN, reviewOf } from "./crd-fixture.ts";

const issue = (): ReturnType<typeof issueSelfSigned> =>
  issueSelfSigned({ dnsNames: ["localhost"], ipAddresses: ["127.0.0.1"], now: new Date(), lifetimeMs: 3_600_000 });
const { caPem, ...tls } = await issue();
const options = { host: "127.0.0.1", port: 0, tls, logger: pino({ level: "silent" }) };

await tap.test("startWebhookServer() reviews over TLS on a free port", async (t) => {
  const verdicts: boolean[] = [];
  const server = await startWebhookServer({ ...options, onVerdict: ({ allowed }) => verdicts.push(allowed) });
  t.teardown(() => server.close());
  t.equal(server.url, `https://127.0.0.1:${server.port}`);
  const agent = new Agent({ connect: { ca: caPem } });
  t.teardown(() => agent.close());
  const answer = await request(`${server.url}${VALIDATE_PATH}`, {
    dispatcher: agent,
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(reviewOf(crdWith({ annotations: FROZEN }), crdWith({ versions: { v2: true } }))),
  });
  t.equal(answer.statusCode, 200);
  t.match(await answer.body.json(), { response: { uid: "705ab4f5", allowed: false, status: { code: 403 } } });
  t.same(verdicts, [false]);
});

await tap.test("startWebhookServer() speaks nothing older than TLS 1.2", async (t) => {
  const server = await startWebhookServer(options);
  t.teardown(() => server.close());
  // Security level 0 lets this client offer TLS 1.1, so that it is the server that refuses.
  const old = { minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "DEFAULT@SECLEVEL=0" } as const;
  t.equal(await handshake({ port: server.port, ca: caPem, ...old }), "ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION");
  t.equal(await handshake({ port: server.port, ca: caPem, maxVersion: "TLSv1.2" }), "TLSv1.2");
  t.equal(await handshake({ port: server.port, ca: caPem }), "TLSv1.3");
});

await tap.test("startWebhookServer() refuses a key of another certificate", async (t) => {
  const { keyPem } = await issue();
  await t.rejects(startWebhookServer({ ...options, tls: { ...tls, keyPem } }), /key values mismatch/);
});

await tap.test("startWebhookServer() rejects where the port is taken", async (t) => {
  const server = await startWebhookServer(options);
  t.teardown(() => server.close());
  await t.rejects(startWebhookServer({ ...options, port: server.port }), { code: "EADDRINUSE" });
});

await tap.test("startWebhookServer() closes when the signal is aborted", async (t) => {
  const controller = new AbortController();
  const server = await startWebhookServer({ ...options, signal: controller.signal });
  t.teardown(() => server.close());
  const { port } = server;
  const socket = connect({ port, ca: caPem });
  await once(socket, "secureConnect");
  const closed = once(socket, "close");
  controller.abort();
  socket.end();
  await closed;
  t.equal(await handshake({ port, ca: caPem }), "ECONNREFUSED");
  await t.rejects(startWebhookServer({ ...options, signal: AbortSignal.abort(new Error("stop")) }), /stop/);
});

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
