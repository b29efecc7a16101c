import type { Socket } from "node:net";
import tap, { type Test } from "tap";
import { systemClock } from "../../src/clock.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { PendingRequests } from "../../src/kube/pending-requests.ts";
import { CRDS } from "../../src/kube/resources.ts";
import { Transport } from "../../src/kube/transport.ts";
import { PinnedTransport, ServerLink } from "../../src/apiservers/pinned-transport.ts";
import { configFor, kubeconfigFor, startServer } from "../kube/local-server.ts";

const { signal } = new AbortController();

/** Stand-ins for two API servers behind one address: the connections meet them in turn. */
async function pinnedToFirst(t: Test) {
  let turn = 0;
  let isForbidden = false;
  const instances = new Map<Socket, string>();
  const server = await startServer(t, ({ path }, response) => {
    const { socket } = response;
    if (socket === null) throw new Error("an answer has a connection");
    const instance = instances.get(socket) ?? String((turn++ % 2) + 1);
    instances.set(socket, instance);
    if (path === "/metrics" && isForbidden) {
      // Once: an API server that just started learns its roles within moments.
      isForbidden = false;
      const message = 'forbidden: User "u" cannot get path "/metrics"';
      response.writeHead(403).end(JSON.stringify({ kind: "Status", reason: "Forbidden", message }));
      return;
    }
    response.end(path === "/metrics" ? `process_start_time_seconds ${instance}\n` : JSON.stringify({ instance }));
  });
  const config = configFor(kubeconfigFor(server.url));
  const address = new Transport(config);
  const open = () =>
    new ServerLink({ transport: address, clock: systemClock, timeoutMs: 5_000, instanceTimeoutMs: 5_000 });
  const link = open();
  await link.askInstance(signal);
  const find = async (): Promise<ServerLink> => {
    for (;;) {
      const found = open();
      if ((await found.instance(signal)) === "1") {
        return found;
      }
      await found.transport.close();
    }
  };
  const transport = new PinnedTransport(link, { instance: "1", find });
  t.teardown(() => transport.close());
  const loseConnections = async (): Promise<void> => {
    for (const socket of instances.keys()) {
      socket.destroy();
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  };
  const forbidOnce = (): void => {
    isForbidden = true;
  };
  return { forbidOnce, loseConnections, server, transport };
}

await tap.test("PinnedTransport asks one API server, also once its connection was lost", async (t) => {
  const { loseConnections, transport } = await pinnedToFirst(t);
  const ask = async () => (await transport.request({ method: "GET", path: "/version", signal })).body;
  t.same(await ask(), { instance: "1" });
  await loseConnections();
  t.same(await ask(), { instance: "1" });
  t.same(await ask(), { instance: "1" });
});

await tap.test(
  "PinnedTransport looks for its API server where another one forbids /metrics for a moment",
  async (t) => {
    const { forbidOnce, loseConnections, transport } = await pinnedToFirst(t);
    await loseConnections();
    forbidOnce();
    t.same((await transport.request({ method: "GET", path: "/version", signal })).body, { instance: "1" });
  },
);

await tap.test("PinnedTransport refuses everything that it cannot pin, and sends nothing", async (t) => {
  const { server, transport } = await pinnedToFirst(t);
  const sent = server.seen.length;
  const refused = { code: "Internal", message: /one of several API servers behind one address/ };
  const request = { method: "GET", path: "/version", signal } as const;
  const client = new ApiClient(transport);
  // As its users see it.
  const asked: Transport = transport;
  await t.rejects(asked.stream(request), refused);
  await t.rejects(
    asked.read(request, async () => undefined),
    refused,
  );
  await t.rejects(
    asked.readBytes(request, 1_000, () => undefined),
    refused,
  );
  await t.rejects(client.listPage(CRDS, { limit: 1, signal }), refused, "a list, too");
  await t.rejects(transport.request({ ...request, method: "PUT", body: {} }), refused, "a write may be sent twice");
  t.throws(() => client.fencedBy(() => Promise.resolve()), refused);
  t.throws(() => client.pendingIn(new PendingRequests(systemClock)), refused);
  t.throws(() => asked.another({}), refused);
  t.equal(server.seen.length, sent);
});

await tap.test("PinnedTransport has a word on every way that a Transport has to send something", (t) => {
  // What is added to Transport and not here would be sent to any of the API servers. Credentials belong to all of them.
  const unpinned = Object.getOwnPropertyNames(Transport.prototype).filter(
    (name) => !Object.hasOwn(PinnedTransport.prototype, name),
  );
  t.same(unpinned, ["config", "authenticate"]);
  t.end();
});
