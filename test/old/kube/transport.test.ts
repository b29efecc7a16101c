import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { createSecureServer } from "node:http2";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, createServer, type Server } from "node:net";
import { join } from "node:path";
import { inspect } from "node:util";
import { KubeConfig } from "@kubernetes/client-node";
import tap, { type Test } from "tap";
import { issueCa, issueServing } from "../../../src/certs/issue.ts";
import { issueSelfSigned } from "../../../src/certs/self-signed.ts";
import { KsvmError } from "../../../src/errors.ts";
import { ApiClient } from "../../../src/old/kube/client.ts";
import { ApiError, TransportError } from "../../../src/old/kube/errors.ts";
import { failureKindOf } from "../../../src/old/kube/failure.ts";
import { Transport } from "../../../src/old/kube/transport.ts";
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
    const server = await startServer(t, (_, response) => {
      response.writeHead(status, { "content-type": "application/json", "content-length": "100" });
      response.write('{"kind":"Status"', () => response.destroy());
    });
    const error = await errorOf(server.transport().request(GET));
    t.ok(error instanceof TransportError);
    t.match((error as Error).message, `Cannot GET /x: no answer from ${server.url}: `);
  });
}

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
        await new Promise((written) => {
          response.write(" ".repeat(MIB), written);
        });
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
      setImmediate(() => abort.abort(reason));
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

await tap.test("Transport shows no credentials where something prints it", async (t) => {
  const config = configFor(kubeconfigFor("https://127.0.0.1:1", { token: "very-secret" }));
  const transport = new Transport(config);
  const printed = [inspect(new ApiClient(transport), { depth: 20 }), JSON.stringify({ transport })];
  t.notMatch(printed.join("\n"), /very-secret/);
});

type Tap = Parameters<typeof startServer>[0] & { testdir(content?: Record<string, string>): string };

/** A server whose connections are taken and never answered, as by a process that was stopped. */
async function silentServer(t: Tap): Promise<{ readonly port: number; readonly connections: () => Promise<number> }> {
  const server = createServer((socket) => socket.on("error", () => undefined).resume());
  return listen(t, server);
}

/** A proxy that never answers CONNECT. */
async function silentProxy(t: Tap): Promise<{ readonly port: number; readonly connections: () => Promise<number> }> {
  const server = createHttpServer();
  server.on("connect", (_request, socket) => socket.on("error", () => undefined).resume());
  return listen(t, server);
}

async function listen(t: Tap, server: Server): Promise<{ port: number; connections: () => Promise<number> }> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  const connections = (): Promise<number> =>
    new Promise((resolve, reject) => {
      server.getConnections((error, count) => (error === null ? resolve(count) : reject(error)));
    });
  return { port: (server.address() as AddressInfo).port, connections };
}

const PLUGIN = `
import { writeFileSync } from "node:fs";
writeFileSync(process.argv[2], String(process.pid));
setInterval(() => undefined, 1_000);
`;

function hangingPlugin(folder: string): Readonly<Record<string, unknown>> {
  return {
    exec: {
      apiVersion: "client.authentication.k8s.io/v1",
      command: process.execPath,
      args: [join(folder, "plugin.mjs"), join(folder, "pid")],
      interactiveMode: "Never",
    },
  };
}

interface Stage {
  readonly name: string;
  readonly setUp: (t: Tap) => Promise<KubeConfig>;
}

// A real API server would have to be stopped; what hangs here stands before it.
const stages: readonly Stage[] = [
  {
    name: "an exec plugin that hangs",
    setUp: async (t) => {
      const server = await startServer(t, (_, response) => sendJson(response, 200, {}));
      return configFor(kubeconfigFor(server.url, hangingPlugin(t.testdir({ "plugin.mjs": PLUGIN }))));
    },
  },
  {
    name: "a proxy that does not answer CONNECT",
    setUp: async (t) => {
      const { port } = await silentProxy(t);
      const kubeconfig = kubeconfigFor("https://192.0.2.1:6443");
      return configFor(kubeconfig.replace("server:", `proxy-url: http://127.0.0.1:${port}\n      server:`));
    },
  },
  {
    name: "a TLS handshake that is not answered",
    setUp: async (t) => configFor(kubeconfigFor(`https://127.0.0.1:${(await silentServer(t)).port}`)),
  },
  {
    name: "headers that do not come",
    setUp: async (t) => configFor(kubeconfigFor((await startServer(t, () => undefined)).url)),
  },
  {
    name: "a body that trickles",
    setUp: async (t) => {
      const server = await startServer(t, (_, response) => {
        response.writeHead(200);
        const timer = setInterval(() => response.write(" "), 20);
        response.on("close", () => clearInterval(timer));
      });
      return configFor(kubeconfigFor(server.url));
    },
  },
];

for (const { name, setUp } of stages) {
  await tap.test(`Transport.request() ends by its timeout, and so does close(), in spite of ${name}`, async (t) => {
    const transport = new Transport(await setUp(t), { timeoutMs: 100 });
    const error = await transport.request(GET).catch((thrown: unknown) => thrown);
    t.ok(error instanceof TransportError, String(error));
    t.match((error as Error).message, /the time for an answer \(0\.1 s\) is up/);
    await transport.close();
  });
}

await tap.test("a server that speaks HTTP/2 is spoken to in HTTP/1.1", async (t) => {
  // Local, to see the version. Over HTTP/2 one in two hundred transports that were closed with a watch just ended raised
  // an error that nothing could catch.
  const { certPem, keyPem } = await issueSelfSigned({
    dnsNames: [],
    ipAddresses: ["127.0.0.1"],
    now: new Date(),
    lifetimeMs: 60_000,
  });
  const server = createSecureServer({ cert: certPem, key: keyPem, allowHTTP1: true }, (request, response) => {
    response.end(JSON.stringify({ version: request.httpVersion }));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const transport = new Transport(configFor(kubeconfigFor(`https://127.0.0.1:${port}`)));
  t.teardown(async () => {
    await transport.close();
    server.close();
  });
  t.same((await transport.request({ method: "GET", path: "/" })).body, { version: "1.1" });
});

const HOUR_MS = 3_600_000;
const now = new Date();
const [ca, other] = await Promise.all([issueCa({ now, lifetimeMs: HOUR_MS }), issueCa({ now, lifetimeMs: HOUR_MS })]);

async function serve(
  t: Test,
  names: { readonly at?: Date; readonly ipAddresses?: readonly string[] },
): Promise<{ readonly url: string; readonly caPem: string }> {
  const { at = now, ipAddresses = ["127.0.0.1"] } = names;
  const signer = at === now ? ca : await issueCa({ now: at, lifetimeMs: HOUR_MS });
  const pair = await issueServing({ ca: signer, now: at, lifetimeMs: HOUR_MS, dnsNames: ["a.example"], ipAddresses });
  const server = createHttpsServer({ cert: pair.certPem, key: pair.keyPem }, (_, response) => response.end("{}"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  return { url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`, caPem: signer.certPem };
}

function transport(t: Test, server: string, caPem: string): Transport {
  const config = new KubeConfig();
  const caData = Buffer.from(caPem).toString("base64");
  config.loadFromOptions({
    clusters: [{ name: "a", server, caData }],
    users: [{ name: "a", token: "a" }],
    contexts: [{ name: "a", cluster: "a", user: "a" }],
    currentContext: "a",
  });
  const opened = new Transport(config);
  t.teardown(() => opened.close());
  return opened;
}

const REQUEST = { method: "GET", path: "/version" } as const;

await tap.test(
  "a server whose CA the kubeconfig does not name is untrusted, and the message says what to set",
  async (t) => {
    const { url } = await serve(t, {});
    await t.rejects(transport(t, url, other.certPem).request(REQUEST), {
      code: "ServerUntrusted",
      message:
        /^Cannot GET \/version: no trusted connection to https:[^\n]*; set certificate-authority or [^\n]*kubeconfig/,
    });
    await t.resolves(transport(t, url, ca.certPem).request(REQUEST), "negative control");
  },
);

await tap.test(
  "a server whose certificate is for another address is untrusted, and the message says what to set",
  async (t) => {
    const { url } = await serve(t, { ipAddresses: [] });
    await t.rejects(transport(t, url, ca.certPem).request(REQUEST), {
      code: "ServerUntrusted",
      message: /tls-server-name/,
    });
  },
);

await tap.test(
  "a server whose certificate expired, or is not valid yet, is untrusted, and the message names the clock",
  async (t) => {
    for (const ms of [-48 * HOUR_MS, 48 * HOUR_MS]) {
      const { url, caPem } = await serve(t, { at: new Date(now.getTime() + ms) });
      await t.rejects(transport(t, url, caPem).request(REQUEST), {
        code: "ServerUntrusted",
        message: /clock of this machine/,
      });
    }
  },
);
