import { setTimeout as delay } from "node:timers/promises";
import { inspect } from "node:util";

import tap from "tap";

import { KsvmError } from "../../src/errors.ts";
import { BodyTooLarge } from "../../src/kube/bounded-body.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { CredentialsError } from "../../src/kube/connect/credentials.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import { failureKindOf } from "../../src/kube/failure.ts";
import { Transport } from "../../src/kube/transport.ts";
import { FakeClock } from "../fake-clock.ts";
import { configFor, kubeconfigFor, sendJson, sendStatus, startServer } from "./local-server.ts";

const MIB = 2 ** 20;
const GET = { method: "GET", path: "/x" } as const;

async function errorOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => Promise.reject(new Error("nothing was thrown")),
    (error: unknown) => error,
  );
}

await tap.test("Transport.request() sends what it is given and parses the answer", async (t) => {
  // Local, to see the bytes of the request.
  const server = await startServer(t, (_, response) =>
    sendJson(response, 201, { a: "ü" }, { date: "Wed, 21 Oct 2026 07:28:00 GMT" }),
  );
  const response = await server.transport().request({
    method: "PATCH",
    path: "/apis/example.com/v1/widgets/a%2Fb",
    query: { limit: 5, dryRun: "All", watch: true, continue: undefined, odd: "a b&c" },
    body: { b: 1 },
    contentType: "application/merge-patch+json",
    accept: "application/json;as=X",
  });
  t.same(response, { status: 201, body: { a: "ü" }, serverTime: Date.UTC(2026, 9, 21, 7, 28) });
  const [seen] = server.seen;
  t.match(seen, { method: "PATCH", path: "/apis/example.com/v1/widgets/a%2Fb", body: { b: 1 } });
  t.same(Object.fromEntries(seen?.query ?? []), { limit: "5", dryRun: "All", watch: "true", odd: "a b&c" });
  t.match(seen?.headers, {
    "content-type": "application/merge-patch+json",
    accept: "application/json;as=X",
    "user-agent": "ksvm",
  });
});

await tap.test("Transport.request() has no server time when the answer has none", async (t) => {
  // A real API server always sends one.
  const server = await startServer(t, (_, response) => {
    response.sendDate = false;
    response.end("{}");
  });
  t.same(await server.transport().request(GET), { status: 200, body: {}, serverTime: undefined });
});

await tap.test("Transport.request() throws ApiError with the Status when the answer is one", async (t) => {
  // A real API server cannot be made to answer 429 on demand.
  const server = await startServer(t, (_, response) =>
    sendStatus(response, 429, { message: "slow down", reason: "TooManyRequests", details: { retryAfterSeconds: 2 } }),
  );
  const error = await errorOf(server.transport().request(GET));
  t.ok(error instanceof ApiError);
  t.match(error, { status: 429, reason: "TooManyRequests", said: "slow down", retryAfterSeconds: 2 });
});

const plainAnswers: readonly [name: string, type: string, text: string][] = [
  ["plain text", "text/plain", "404 page not found\n"],
  ["a proxy's HTML", "text/html", "<html>bad gateway</html>"],
  ["JSON of another kind", "application/json", '{"kind":"Widget"}'],
  ["null", "application/json", "null"],
  ["nothing", "text/plain", ""],
];

for (const [name, type, text] of plainAnswers) {
  await tap.test(`Transport.request() throws ApiError without a Status when the body is ${name}`, async (t) => {
    // What proxies in front of a real API server send.
    const server = await startServer(t, (_, response) => {
      response.writeHead(404, { "content-type": type, "retry-after": "4" }).end(text);
    });
    const error = await errorOf(server.transport().request(GET));
    t.ok(error instanceof ApiError);
    t.match(error, { status: 404, answer: undefined, retryAfterSeconds: 4 });
    t.match((error as ApiError).message, `Cannot GET /x: the API server answered 404: ${text.trim()}`);
  });
}

await tap.test("Transport.request() throws ApiError when the answer is a redirect", async (t) => {
  // What a proxy or a login page in front of a real API server sends.
  const server = await startServer(t, (_, response) => {
    response.writeHead(302, { location: "https://login.example.com/" }).end("<html>");
  });
  const error = await errorOf(server.transport().request(GET));
  t.ok(error instanceof ApiError);
  t.match(error, {
    status: 302,
    message: "Cannot GET /x: the API server answered 302: it redirects to https://login.example.com/",
  });
  t.equal(failureKindOf(error), "transient", "it is not an API server that answers so");
  t.equal(server.seen.length, 1, "the redirect is not followed");
});

for (const status of [200, 500]) {
  await tap.test(`Transport.request() throws TransportError when the body of a ${status} is cut off`, async (t) => {
    // A real API server would have to crash in the middle of an answer.
    const server = await startServer(t, async (_, response) => {
      response.writeHead(status, { "content-type": "application/json", "content-length": "100" });
      response.write('{"kind":"Status"');
      await delay(20);
      response.destroy();
    });
    const error = await errorOf(server.transport().request(GET));
    t.ok(error instanceof TransportError);
    t.match((error as Error).message, `Cannot GET /x: no answer from ${server.url}: `);
  });
}

await tap.test("Transport.request() reads no more than 4 MiB of an error", async (t) => {
  // What a proxy may send; a real API server cannot be made to.
  let sent = 0;
  const server = await startServer(t, async (_, response) => {
    response.writeHead(500);
    while (!response.destroyed && sent < 64) {
      response.write("x".repeat(2 ** 20));
      sent++;
      await delay(5);
    }
    response.end();
  });
  const error = await errorOf(server.transport().request(GET));
  t.ok(error instanceof TransportError);
  t.match((error as Error).message, /continues beyond 4194304 bytes/);
  t.ok(sent < 64, `${sent} MiB were sent`);
});

for (const [isAnnounced, said] of [
  [true, "has 83886080 bytes"],
  [false, "goes on"],
] as const) {
  const title = `whose size is ${isAnnounced ? "" : "not "}announced`;
  await tap.test(`Transport.request() reads no more than 64 MiB of a success ${title}`, async (t) => {
    // What a proxy may send; no object or page of an API server is that large.
    let sent = 0;
    const server = await startServer(t, async (_, response) => {
      response.writeHead(200, isAnnounced ? { "content-length": String(80 * MIB) } : {});
      while (!response.destroyed && sent < 80) {
        sent++;
        response.write(" ".repeat(MIB));
        await delay(5);
      }
      response.end();
    });
    const error = await errorOf(server.transport().request(GET));
    t.equal(
      (error as Error).message,
      `Cannot GET /x: the answer of ${server.url} ${said}, beyond 67108864 bytes`,
      "one line says what, from where and how large",
    );
    t.equal(failureKindOf(error), "transient", "another answer may be better");
    t.ok(sent < (isAnnounced ? 20 : 80), `${sent} MiB were sent`);
  });
}

await tap.test("Transport.request() reads an answer of many MiB", async (t) => {
  const text = "x".repeat(40 * MIB);
  const server = await startServer(t, (_, response) => sendJson(response, 200, { text }));
  const { body } = await server.transport().request<{ text: string }>(GET);
  t.equal(body.text.length, text.length);
});

await tap.test("Transport.request() throws TransportError when a success is not JSON", async (t) => {
  // What a captive portal sends.
  const server = await startServer(t, (_, response) => response.end("<html>log in</html>"));
  t.ok((await errorOf(server.transport().request(GET))) instanceof TransportError);
});

await tap.test("Transport.request() throws TransportError when no server listens", async (t) => {
  const transport = new Transport(configFor(kubeconfigFor("http://127.0.0.1:1")));
  t.teardown(() => transport.close());
  const error = await errorOf(transport.request(GET));
  t.ok(error instanceof TransportError);
  t.match((error as Error).message, /ECONNREFUSED/);
});

await tap.test("Transport.request() throws TransportError when no answer comes in time", async (t) => {
  // A real API server answers.
  const server = await startServer(t, () => undefined);
  t.ok((await errorOf(server.transport({ timeoutMs: 50 }).request(GET))) instanceof TransportError);
});

await tap.test("Transport.request() throws TransportError when the body stalls", async (t) => {
  // A real API server writes its answer at once.
  const server = await startServer(t, (_, response) => response.writeHead(200).write("{"));
  t.ok((await errorOf(server.transport({ timeoutMs: 50 }).request(GET))) instanceof TransportError);
});

const stalls: readonly [name: string, answer: boolean][] = [
  ["before the answer", false],
  ["in the middle of the answer", true],
];

for (const [name, answer] of stalls) {
  await tap.test(`Transport.request() throws the signal's reason when it is aborted ${name}`, async (t) => {
    const abort = new AbortController();
    const reason = new KsvmError("Interrupted", "Interrupted");
    // A real API server would have answered before the abort.
    const server = await startServer(t, (_, response) => {
      if (answer) response.writeHead(200).write("{");
      setTimeout(() => abort.abort(reason), 50);
    });
    t.equal(await errorOf(server.transport().request({ ...GET, signal: abort.signal })), reason);
  });
}

await tap.test("Transport.request() sends nothing when the signal is aborted already", async (t) => {
  const server = await startServer(t, (_, response) => sendJson(response, 200, {}));
  const reason = new Error("stop");
  t.equal(await errorOf(server.transport().request({ ...GET, signal: AbortSignal.abort(reason) })), reason);
  t.same(server.seen, []);
});

await tap.test("Transport.close() lets a request under way end, and then ends its connection", async (t) => {
  // A real API server would have answered before.
  const transport: { current?: Transport } = {};
  const server = await startServer(t, async (_, response) => {
    setTimeout(() => sendJson(response, 200, { late: true }), 50);
    await transport.current?.close();
  });
  transport.current = server.transport();
  t.match(await transport.current.request(GET), { body: { late: true } });
});

await tap.test("Transport takes the slash off the end of the server's URL", async (t) => {
  const server = await startServer(t, (_, response) => sendJson(response, 200, {}));
  const transport = new Transport(configFor(kubeconfigFor(`${server.url}/`)));
  t.teardown(() => transport.close());
  t.equal(transport.server, server.url);
  await transport.request(GET);
  t.equal(server.seen[0]?.path, "/x");
});

await tap.test("Transport keeps the path of the server's URL, as behind a proxy for many clusters", async (t) => {
  const server = await startServer(t, (_, response) => sendJson(response, 200, {}));
  const transport = new Transport(configFor(kubeconfigFor(`${server.url}/k8s/clusters/c-1/`)));
  t.teardown(() => transport.close());
  await transport.request(GET);
  await transport.read(GET, async (body) => body.dump());
  await (await transport.stream(GET)).toArray();
  const path = "/k8s/clusters/c-1/x";
  t.same(
    server.seen.map((request) => request.path),
    [path, path, path],
  );
});

await tap.test("Transport.readBytes() hands over the bytes of an answer, up to a limit", async (t) => {
  const server = await startServer(t, (request, response) => {
    if (request.path === "/refused") sendStatus(response, 404, { reason: "NotFound" });
    else response.end("four");
  });
  const transport = server.transport();
  const { body } = await transport.readBytes(GET, 4, (bytes) => bytes.toString());
  t.equal(body, "four");
  const tooLarge = await errorOf(transport.readBytes(GET, 3, () => t.fail("it is not read")));
  t.ok(tooLarge instanceof TransportError);
  t.match((tooLarge as Error).message, /the body has 4 bytes, beyond 3 bytes/);
  const unread = await errorOf(transport.readBytes(GET, 4, () => JSON.parse("{")));
  t.ok(unread instanceof TransportError, "what cannot be read is no answer");
  const refused = await errorOf(transport.readBytes({ ...GET, path: "/refused" }, 4, () => t.fail("it is not read")));
  t.match(refused, { name: "ApiError", status: 404, reason: "NotFound" }, "an error may be larger");
});

await tap.test("Transport throws the caller's reason as it is, also where that tells of another answer", async (t) => {
  const server = await startServer(t, (_, response) =>
    response.writeHead(200, { "content-length": String(80 * MIB) }).flushHeaders(),
  );
  const transport = server.transport();
  const tooLarge = new TransportError("GET /other", "https://other", new BodyTooLarge(64 * MIB, 80 * MIB));
  for (const reason of [tooLarge, (await errorOf(transport.request(GET))) as Error]) {
    const abort = new AbortController();
    const asked = transport.request({ ...GET, signal: abort.signal });
    abort.abort(reason);
    t.equal(await errorOf(asked), reason);
  }
});

for (const status of [204, 304]) {
  await tap.test(`Transport reads no body of a ${status}, whatever its content-length says`, async (t) => {
    // What a proxy may send; no API server does.
    const server = await startServer(t, (_, response) => {
      response.socket?.end(`HTTP/1.1 ${status} Said\r\ncontent-length: ${80 * MIB}\r\n\r\n`);
    });
    const asked = server.transport().request({ method: "DELETE", path: "/x", signal: AbortSignal.timeout(5_000) });
    t.match(await errorOf(asked), status === 204 ? { name: "DoubtfulAnswer" } : { name: "ApiError", status: 304 });
  });
}

await tap.test("Transport sends a path that is no plain one as URLs are sent", async (t) => {
  const server = await startServer(t, (_, response) => sendJson(response, 200, {}));
  const transport = server.transport();
  const seen = async (path: string): Promise<string | undefined> => {
    await transport.request({ method: "GET", path });
    return server.seen.at(-1)?.path;
  };
  t.equal(await seen("/apis/a.b/v1/namespaces/ns/widgets/a%2Fb:c"), "/apis/a.b/v1/namespaces/ns/widgets/a%2Fb:c");
  t.equal(await seen("/a b/日本"), "/a%20b/%E6%97%A5%E6%9C%AC");
  t.equal(await seen("/api/../metrics"), "/metrics");
  t.equal(await seen("/api/%2E%2e/metrics"), "/metrics");
  t.equal(await seen("/api/.well"), "/api/.well");
});

await tap.test("Transport tells its observer of each request once, with the status that came or with 0", async (t) => {
  const server = await startServer(t, (request, response) => {
    if (request.path === "/broken") response.destroy();
    else if (request.path === "/cut")
      response.writeHead(200, { "content-length": "9" }).write("x", () => response.destroy());
    else sendJson(response, request.path === "/x" ? 200 : 500, {});
  });
  const told: string[] = [];
  const transport = new Transport(configFor(kubeconfigFor(server.url)), {
    observer: (method, status) => told.push(`${method} ${status}`),
  });
  t.teardown(() => transport.close());
  await transport.request(GET);
  await transport.read(GET, async (body) => body.dump());
  await errorOf(transport.request({ method: "PUT", path: "/no", body: {} }));
  await errorOf(transport.request({ ...GET, path: "/broken" }));
  t.same(told, ["GET 200", "GET 200", "PUT 500", "GET 0"]);
  await errorOf(transport.request({ ...GET, path: "/cut" }));
  t.equal(told.at(-1), "GET 200", "a body that breaks off has a status");
  t.equal(told.length, 5);
});

/** A transport whose credentials are `token-1`, then `token-2`, … each time they are asked for. */
function countingTransport(t: Tap, url: string, options: { clock: FakeClock; failures?: number }): Transport {
  let asked = 0;
  const credentials = {
    get: async () => {
      asked++;
      if (asked <= (options.failures ?? 0)) throw new CredentialsError(new Error("no agent"), false);
      return { headers: { authorization: `Bearer token-${asked}` } };
    },
    wereAccepted: false,
    accept: () => undefined,
    refuse: () => undefined,
    hold: () => undefined,
    release: () => undefined,
  };
  const transport = new Transport(configFor(kubeconfigFor(url)), { ...options, credentials });
  t.teardown(() => transport.close());
  return transport;
}

type Tap = Parameters<typeof startServer>[0];

await tap.test("Transport asks for credentials once for many requests, and again after a minute", async (t) => {
  const server = await startServer(t, (_, response) => sendJson(response, 200, {}));
  const clock = new FakeClock();
  const transport = countingTransport(t, server.url, { clock });
  await Promise.all([transport.request(GET), transport.request(GET), transport.request(GET)]);
  clock.advance(59_999);
  await transport.request(GET);
  clock.advance(1);
  await Promise.all([transport.request(GET), transport.request(GET)]);
  const used = server.seen.map(({ headers }) => headers.authorization?.at(-1));
  t.same(used, ["1", "1", "1", "1", "2", "2"]);
});

await tap.test("Transport.another() leads elsewhere with the same credentials and clock", async (t) => {
  const [first, second] = [
    await startServer(t, (_, response) => sendJson(response, 200, {})),
    await startServer(t, (_, response) => sendJson(response, 200, {})),
  ];
  const clock = new FakeClock();
  const transport = countingTransport(t, first.url, { clock });
  const [same, other] = [transport.another({}), transport.another({ server: second.url })];
  t.teardown(() => Promise.all([same.close(), other.close()]));
  await same.request(GET);
  await other.request(GET);
  clock.advance(60_000);
  await other.request(GET);
  const usedAt = ({ seen }: typeof first): unknown => seen.map(({ headers }) => headers.authorization);
  t.same([usedAt(first), usedAt(second)], [["Bearer token-1"], ["Bearer token-2", "Bearer token-3"]]);
});

await tap.test("Transport shows no credentials where something prints it", async (t) => {
  const config = configFor(kubeconfigFor("https://127.0.0.1:1", { token: "very-secret" }));
  const transport = new Transport(config);
  const printed = [inspect(new ApiClient(transport), { depth: 20 }), JSON.stringify({ transport })];
  t.notMatch(printed.join("\n"), /very-secret/);
});

await tap.test("Transport keeps a stream open when it asks for credentials again", async (t) => {
  // A real API server cannot be told when to write into a watch.
  const server = await startServer(t, ({ path }, response) => {
    if (path !== "/stream") return sendJson(response, 200, {});
    response.write("a");
    return setTimeout(() => response.end("b"), 100);
  });
  const clock = new FakeClock();
  const transport = countingTransport(t, server.url, { clock });
  const stream = await transport.stream({ method: "GET", path: "/stream" });
  for (let session = 0; session < 3; session++) {
    clock.advance(60_000);
    await transport.request(GET);
  }
  let read = "";
  for await (const chunk of stream) read += String(chunk);
  t.equal(read, "ab");
});

await tap.test("Transport throws Unauthorized when there are no credentials, and tries again next time", async (t) => {
  const server = await startServer(t, (_, response) => sendJson(response, 200, {}));
  const transport = countingTransport(t, server.url, { clock: new FakeClock(), failures: 1 });
  t.match(await errorOf(transport.request(GET)), {
    code: "Unauthorized",
    message: `Cannot authenticate: no credentials for ${server.url}: no agent`,
  });
  await transport.request(GET);
  t.equal(server.seen.length, 1);
});
