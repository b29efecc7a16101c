import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { KubeConfig } from "@kubernetes/client-node";
import tap from "tap";
import { TransportError } from "../../src/kube/errors.ts";
import { Transport } from "../../src/kube/transport.ts";
import { configFor, kubeconfigFor, sendJson, sendStatus, startServer } from "./local-server.ts";

const GET = { method: "GET", path: "/x" } as const;

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
    const transport = new Transport(await setUp(t), { timeoutMs: 200 });
    const error = await transport.request(GET).catch((thrown: unknown) => thrown);
    t.ok(error instanceof TransportError, String(error));
    t.match((error as Error).message, /the time for an answer \(0\.2 s\) is up/);
    await transport.close();
  });

  await tap.test(`Transport.request() ends by its signal, and so does close(), in spite of ${name}`, async (t) => {
    const transport = new Transport(await setUp(t));
    const abort = new AbortController();
    const reason = new Error("Ctrl-C");
    const request = transport.request({ ...GET, signal: abort.signal }).catch((thrown: unknown) => thrown);
    await delay(100);
    abort.abort(reason);
    t.equal(await request, reason);
    await transport.close();
  });
}

/** A SOCKS5 proxy that answers once `open` resolves. */
async function gate(t: Tap, url: string, open: Promise<void>): Promise<number> {
  const server = createServer((socket) => {
    const answers = [Buffer.from([5, 0]), Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0])];
    const onData = (): void => {
      const [answer] = answers.splice(0, 1);
      void open.then(() => socket.write(answer ?? ""));
      if (answers.length === 0) {
        socket.off("data", onData);
        const onward = connect(Number(new URL(url).port), "127.0.0.1");
        onward.on("error", () => undefined).pipe(socket);
        socket.pipe(onward);
      }
    };
    socket.on("error", () => undefined).on("data", onData);
  });
  return (await listen(t, server)).port;
}

await tap.test("Transport.request() ends before the connection that it waits for, which close() ends", async (t) => {
  const { port, connections } = await silentServer(t);
  const transport = new Transport(configFor(kubeconfigFor(`https://127.0.0.1:${port}`)));
  const abort = new AbortController();
  const startedAt = performance.now();
  const request = transport.request({ ...GET, signal: abort.signal }).catch(() => undefined);
  while ((await connections()) === 0) await delay(20);
  abort.abort();
  await request;
  t.equal(await connections(), 1, "the handshake is still waited for");
  await transport.close();
  while ((await connections()) > 0) await delay(20);
  t.ok(performance.now() - startedAt < 9_000, "it would have been given up after 10 s");
});

await tap.test("Transport.request() that was aborted before its connection stood is never sent", async (t) => {
  // Local, to hold the connection back.
  const server = await startServer(t, (_, response) => sendJson(response, 200, {}));
  const { promise, resolve } = Promise.withResolvers<void>();
  const proxy = `socks5://127.0.0.1:${await gate(t, server.url, promise)}`;
  const kubeconfig = kubeconfigFor(server.url).replace("server:", `proxy-url: ${proxy}\n      server:`);
  const transport = new Transport(configFor(kubeconfig));
  t.teardown(() => transport.close());
  const request = { ...GET, method: "DELETE", path: "/aborted", signal: AbortSignal.timeout(100) } as const;
  await t.rejects(transport.request(request));
  resolve();
  await transport.request(GET);
  t.same(
    server.seen.map(({ path }) => path),
    ["/x"],
  );
});

async function until(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) await delay(20);
}

await tap.test("Transport.close() ends the exec plugin that no request waits for", async (t) => {
  const folder = t.testdir({ "plugin.mjs": PLUGIN });
  const server = await startServer(t, (_, response) => sendJson(response, 200, {}));
  const transport = new Transport(configFor(kubeconfigFor(server.url, hangingPlugin(folder))));
  const abort = new AbortController();
  const request = transport.request({ ...GET, signal: abort.signal }).catch(() => undefined);
  await until(() => existsSync(join(folder, "pid")) && readFileSync(join(folder, "pid"), "utf8") !== "");
  abort.abort();
  await request;
  await transport.close();
  const pid = Number(readFileSync(join(folder, "pid"), "utf8"));
  await until(() => {
    try {
      return !process.kill(pid, 0);
    } catch {
      return true;
    }
  });
});

/** Prints a token of one second ago as long as `broken` does not exist, and fails where it does. */
const EXPIRING = `
import { existsSync } from "node:fs";
if (existsSync(process.argv[2])) { console.error("the login service is down"); process.exit(1); }
console.log(JSON.stringify({
  apiVersion: "client.authentication.k8s.io/v1",
  kind: "ExecCredential",
  status: { token: "secret", expirationTimestamp: new Date(Date.now() - 1_000).toISOString() },
}));
`;

await tap.test(
  "Transport: a plugin that fails after it has worked is no answer, and the next request asks it again",
  async (t) => {
    const folder = t.testdir({ "plugin.mjs": EXPIRING });
    const broken = join(folder, "broken");
    let refused = 0;
    const server = await startServer(t, ({ path }, response) => {
      if (path !== "/refused") return sendJson(response, 200, {});
      refused++;
      return sendStatus(response, refused === 1 ? 401 : 200);
    });
    const user = { exec: { ...(hangingPlugin(folder)["exec"] as object), args: [join(folder, "plugin.mjs"), broken] } };
    const config = configFor(kubeconfigFor(server.url, user));
    const transport = new Transport(config);
    t.teardown(() => transport.close());
    await transport.request(GET);
    writeFileSync(broken, "");
    const error = await transport.request({ ...GET, path: "/refused" }).catch((thrown: unknown) => thrown);
    t.ok(error instanceof TransportError, String(error));
    t.match(
      (error as Error).message,
      /nothing can be sent without credentials: .*failed with exit code 1: the login service is down/,
    );
    const other = new Transport(config);
    t.teardown(() => other.close());
    t.ok(
      (await other.request(GET).catch((thrown: unknown) => thrown)) instanceof TransportError,
      "another connection of this process, too",
    );
    rmSync(broken);
    await transport.request(GET);
    await other.request(GET);
  },
);
