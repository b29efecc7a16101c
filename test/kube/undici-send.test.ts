import { writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import t, { type Test } from "tap";
import { systemClock } from "../../src/clock.ts";
import { Client } from "../../src/kube/client.ts";
import type { ApiError } from "../../src/kube/errors.ts";
import { Connection } from "../../src/kube/http.ts";
import { type ClusterAccess, loadKubeconfig } from "../../src/kube/kubeconfig.ts";
import { senderFor } from "../../src/kube/undici-send.ts";
import { watch } from "../../src/kube/watch.ts";

const { signal } = new AbortController();
const failureOf = (work: Promise<unknown>): Promise<unknown> => work.catch((error: unknown) => error);
type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** A client of a server of this machine, with credentials that count how often they were asked for. */
async function clientOf(t: Test, handle: Handler): Promise<{ client: Client; issued: () => number; server: Server }> {
  const server = createServer(handle).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  let issued = 1;
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const access: ClusterAccess = {
    server: address,
    isInsecure: true,
    serverName: undefined,
    proxyUrl: undefined,
    variables: {},
    credentials: async () => ({
      headers: { authorization: `Bearer secret-${issued}` },
      ca: undefined,
      cert: undefined,
      key: undefined,
    }),
    refuse: () => {
      issued++;
    },
  };
  const { close, send } = senderFor(access, systemClock);
  t.teardown(async () => {
    server.closeAllConnections();
    server.close();
    await close();
  });
  return {
    client: new Client({ address, send, clock: systemClock, random: Math.random }),
    issued: () => issued,
    server,
  };
}

const json = (response: ServerResponse, body: unknown, status = 200): void => {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
};

await t.test("a 401 has the credentials renewed once, for all requests that met it", async (t) => {
  const { client, issued } = await clientOf(t, ({ headers }, response) => {
    const isNew = headers.authorization === "Bearer secret-2";
    json(response, isNew ? { kind: "A" } : { kind: "Status", message: "Unauthorized" }, isNew ? 200 : 401);
  });
  await Promise.all(Array.from({ length: 8 }, () => client.get("/x", { signal })));
  t.equal(issued(), 2);
});

await t.test("credentials that are refused for good are an error, which does not show them", async (t) => {
  const { client, issued } = await clientOf(t, (_, response) => json(response, { kind: "Status", message: "no" }, 401));
  const error = await client.get("/x", { signal }).catch((thrown: unknown) => thrown as ApiError);
  t.match(error, { status: 401, code: "Unauthorized" });
  t.notMatch(String((error as Error).stack), /secret/);
  t.equal(issued(), 2);
});

await t.test("a webhook's 401 is none of the credentials", async (t) => {
  const message = 'admission webhook "a" denied the request: who are you';
  const { client, issued } = await clientOf(t, (_, response) => json(response, { kind: "Status", message }, 401));
  t.match(await failureOf(client.get("/x", { signal })), { status: 401 });
  t.equal(issued(), 1);
});

await t.test("an answer that takes too long, is too large, or breaks off is an error without an answer", async (t) => {
  const { client } = await clientOf(t, ({ url }, response) => {
    if (url === "/slow") return;
    if (url === "/broken")
      return void response.writeHead(200, { "content-length": "100" }).write("{", () => response.destroy());
    response.writeHead(200);
    const write = (): void => void (response.destroyed || response.write("x".repeat(1_000_000), write));
    write();
  });
  t.match(await failureOf(client.get("/slow", { signal, timeoutMs: 100 })), {
    status: 0,
    said: /no answer within 0.1 s/,
  });
  t.match(await failureOf(client.get("/broken", { signal })), { status: 0 });
  t.match(await failureOf(client.get("/endless", { signal })), { status: 0, said: /beyond \d+ bytes/ });
  const abort = new AbortController();
  setTimeout(() => abort.abort(new Error("stop")), 50);
  await t.rejects(client.get("/slow", { signal: abort.signal }), { message: "stop" });
});

await t.test("a connection of its own carries one request after the other", async (t) => {
  const ports = new Map<string, Set<number | undefined>>();
  const { client } = await clientOf(t, ({ socket, url = "" }, response) => {
    ports.set(url, (ports.get(url) ?? new Set()).add(socket.remotePort));
    setTimeout(() => json(response, { kind: "A" }), 20);
  });
  const connection = new Connection();
  const own = client.over(connection);
  await Promise.all(Array.from({ length: 3 }, () => own.get("/own", { signal })));
  await Promise.all(Array.from({ length: 3 }, () => client.get("/pool", { signal })));
  t.equal(ports.get("/own")?.size, 1);
  t.equal(ports.get("/pool")?.size, 3);
  connection.end();
});

await t.test("a watch is opened again where it was, and tells of a gap", async (t) => {
  const asked: (string | null)[] = [];
  const event = (type: string, resourceVersion: string): string =>
    `${JSON.stringify({ type, object: { metadata: { name: "a", resourceVersion } } })}\n`;
  const { client } = await clientOf(t, ({ url = "" }, response) => {
    const version = new URL(url, "http://a").searchParams.get("resourceVersion");
    asked.push(version);
    response.writeHead(200, { "content-type": "application/json" });
    if (version === "1") {
      const text = event("ADDED", "2");
      response.write(text.slice(0, 10));
      return void setTimeout(() => response.end(text.slice(10) + event("BOOKMARK", "7")), 20);
    }
    response.end(`${JSON.stringify({ type: "ERROR", object: { kind: "Status", code: 410, reason: "Expired" } })}\n`);
  });
  const seen: string[] = [];
  for await (const { type } of watch(client, "/x", { resourceVersion: "1", signal })) seen.push(type);
  t.same(seen, ["ADDED", "BOOKMARK", "GAP"]);
  t.same(asked, ["1", "7"]);
});

await t.test(
  "credentials that hang hold up no request for longer than its signal, and end after a minute",
  async (t) => {
    let isUp = false;
    const expired = new AbortController();
    const access: ClusterAccess = {
      server: "http://127.0.0.1:1",
      isInsecure: true,
      serverName: undefined,
      proxyUrl: undefined,
      variables: {},
      credentials: () => (isUp ? Promise.reject(new Error("up")) : new Promise(() => undefined)),
      refuse: () => undefined,
    };
    const limits: number[] = [];
    const timeout = (ms: number): AbortSignal => {
      limits.push(ms);
      return expired.signal;
    };
    const clock = { ...systemClock, timeout };
    const { close, send } = senderFor(access, clock);
    t.teardown(close);
    const client = new Client({ address: access.server, send, clock, random: Math.random });
    const abort = new AbortController();
    const aborted = failureOf(client.get("/x", { signal: abort.signal }));
    const waiting = failureOf(client.get("/x", { signal }));
    abort.abort(new Error("interrupted"));
    t.match(await aborted, { message: "interrupted" });
    expired.abort(new Error("the time is up"));
    t.match(await waiting, { code: "Unauthorized", message: /the time is up/ });
    t.strictSame(limits, [60_000]);
    isUp = true;
    t.match(await failureOf(client.get("/x", { signal })), { code: "Unauthorized" }, "they are asked for anew");
  },
);

await t.test("a password in the address of a server or of a proxy gets into no message", async (t) => {
  const path = `${t.testdir({})}/kubeconfig`;
  const kubeconfig = {
    clusters: [
      { name: "a", cluster: { server: "https://jane:secret@127.0.0.1:1", "proxy-url": "ftp://jane:secret@b" } },
    ],
    contexts: [{ name: "a", context: { cluster: "a" } }],
    "current-context": "a",
  };
  writeFileSync(path, JSON.stringify(kubeconfig));
  const access = loadKubeconfig({ kubeconfig: path, variables: {} });
  t.equal(access.server, "https://127.0.0.1:1");
  const named = loadKubeconfig({ kubeconfig: path, server: "jane:secret@127.0.0.1:1", variables: {} });
  t.equal(named.server, "http://127.0.0.1:1");
  const { close, send } = senderFor(access, systemClock);
  t.teardown(close);
  const client = new Client({ address: access.server, send, clock: systemClock, random: Math.random });
  const error = (await failureOf(client.get("/x", { signal }))) as Error;
  t.match(error, { code: "KubeconfigInvalid", message: /proxy/ });
  t.notMatch(error.message, /secret/);
});
