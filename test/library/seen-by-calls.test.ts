import { KubeConfig } from "@kubernetes/client-node";
import { mock } from "node:test";
import tap from "tap";
import { systemClock } from "../../src/clock.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import { ClusterConfig } from "../../src/kube/connect/cluster-config.ts";
import { PendingRequests } from "../../src/kube/pending-requests.ts";
import { Transport } from "../../src/kube/transport.ts";
import { migrateCrd } from "../../src/library/migrate-crd.ts";
import { environmentOf } from "../../src/library/run-environment.ts";
import { assembleRun, type RunSettings } from "../../src/migrator/assemble-run.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { configFor, kubeconfigFor, type LocalServer, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

const NAME = "widgets.example.com";

const SETTINGS: RunSettings = {
  options: {
    settleMs: 1,
    pageSize: 1,
    guard: "webhook",
    convergenceTimeoutMs: 1,
    proofTimeoutMs: 1,
    maxFreezeIdleMs: 1,
    leaseNamespace: "default",
    crdMode: "manage",
  },
  maxInFlight: 1,
  maxQps: Number.POSITIVE_INFINITY,
  maxIdleMs: 1,
  webhookWaitMs: 1,
};

await tap.test(
  "migrateCrd() of a library knows what earlier calls of the process saw of the API servers of a cluster",
  async (t) => {
    const told: SeenServers[] = [];
    const pending = Object.getOwnPropertyDescriptor(SeenServers.prototype, "pending") ?? {};
    SeenServers.prototype.pending = function (this: SeenServers) {
      told.push(this);
      return new PendingRequests(systemClock, () => undefined);
    };
    t.teardown(() => Object.defineProperty(SeenServers.prototype, "pending", pending));
    // No cluster has the CRD: what each call is told of is seen before that.
    const start = (): Promise<LocalServer> =>
      startServer(t, ({ path }, response) =>
        path === "/version"
          ? sendJson(response, 200, { major: "1", minor: "36", gitVersion: "v1.36.0" })
          : sendJson(response, 404, {
              kind: "Status",
              reason: "NotFound",
              message: "not found",
              details: { name: NAME },
            }),
      );
    const called = async ({ url }: LocalServer): Promise<SeenServers | undefined> => {
      const kubeConfig = new KubeConfig();
      kubeConfig.loadFromString(kubeconfigFor(url));
      await t.rejects(migrateCrd(NAME, { kubeConfig }), { code: "ResourceNotFound" });
      return told.at(-1);
    };
    const [one, other] = [await start(), await start()];
    const first = await called(one);
    t.equal(await called(one), first, "one that was behind or silent in the first call counts for the second");
    t.not(await called(other), first, "and not for another cluster");
  },
);

await tap.test(
  "migrateCrd() takes an API server for silent that does not answer the first request of a call for a while",
  async (t) => {
    // The API server takes six seconds for /version, and no time for anything else.
    const monotonic = performance.now.bind(performance);
    let stoodStillMs = 0;
    mock.method(performance, "now", () => monotonic() + stoodStillMs);
    const silent = mock.method(SeenServers.prototype, "silent");
    t.teardown(() => mock.restoreAll());
    const lease = { metadata: { name: "apiserver-1", uid: "1" }, spec: { renewTime: new Date().toISOString() } };
    const { url } = await startServer(t, ({ path }, response) => {
      stoodStillMs += path === "/version" ? 6_000 : 0;
      if (path === "/version") {
        return sendJson(response, 200, { major: "1", minor: "36", gitVersion: "v1.36.0" });
      }
      return path.endsWith("/namespaces/kube-system/leases")
        ? sendJson(response, 200, { metadata: { resourceVersion: "10" }, items: [lease] })
        : sendStatus(response, 404, { reason: "NotFound", message: "not found", details: { name: NAME } });
    });
    await t.rejects(migrateCrd(NAME, { kubeConfig: configFor(kubeconfigFor(url)) }), { code: "ResourceNotFound" });
    t.equal(silent.mock.callCount(), 1);
  },
);

await tap.test(
  "calls of migrateCrd() at the same time watch the identity Leases each by its own connection, which ends with the call",
  async (t) => {
    const server = await startServer(t, ({ query }, response) =>
      query.has("watch")
        ? response.writeHead(200, { "content-type": "application/json" }).flushHeaders()
        : sendJson(response, 200, { metadata: { resourceVersion: "10" }, items: [] }),
    );
    const called = (): RunContext => {
      const run = assembleRun(
        { ...SETTINGS, ...environmentOf(new ApiClient(server.transport())) },
        {
          dryRun: false,
          force: true,
          purpose: "test",
          identity: "test",
          emit: () => undefined,
          signal: new AbortController().signal,
        },
      );
      t.teardown(() => run.close());
      return run.context;
    };
    const [one, other] = [called(), called()];
    const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const watches = (): number => server.seen.filter(({ query }) => query.has("watch")).length;
    const during = [
      one.arrivals.during(one.client, () => first.promise),
      other.arrivals.during(other.client, () => second.promise),
    ];
    while (watches() === 0) await systemClock.sleep(5);
    first.resolve();
    await during[0];
    const closed = one.client.transport.close().then(() => "closed");
    t.equal(
      await Promise.race([closed, systemClock.sleep(1_000)]),
      "closed",
      "it waits for no watch of the other call",
    );
    t.not(one.settled, other.settled, "what one has waited for rests on what its own watch saw");
    t.equal(one.seen, other.seen);
    second.resolve();
    await during[1];
  },
);

function seenAt(cluster: Readonly<Record<string, string>>): SeenServers {
  const config = configFor(kubeconfigFor("https://kubernetes.default.svc"));
  const [one] = config.clusters;
  config.clusters = one === undefined ? [] : [{ ...one, ...cluster }];
  return environmentOf(new ApiClient(new Transport(config))).seen;
}

function seenBehind(variables: Readonly<Record<string, string>>): SeenServers {
  const cluster = { name: "local", server: "https://kubernetes.default.svc", skipTLSVerify: true };
  const environment = { variables, isTerminal: false };
  const config = new ClusterConfig(cluster, { name: "jane" }, { context: "local", environment });
  return environmentOf(new ApiClient(new Transport(config))).seen;
}

await tap.test(
  "environmentOf() takes clusters with one address behind different proxies, or names, for several",
  (t) => {
    const first = seenAt({ proxyUrl: "http://a:3128" });
    t.ok(seenAt({ proxyUrl: "http://a:3128" }) === first);
    t.notOk(seenAt({ proxyUrl: "http://b:3128" }) === first, "what leaves one of them did not leave the other");
    t.notOk(seenAt({ tlsServerName: "b" }) === seenAt({ tlsServerName: "a" }));
    const [a, b] = ["a", "b"].map((name) => seenBehind({ HTTPS_PROXY: `http://${name}:3128` }));
    t.notOk(a === b, "a proxy may also be that of the environment of a call");
    t.ok(a === first, "which is the same one");
    t.end();
  },
);

await tap.test("environmentOf() takes one cluster for one whose address is written in another way", (t) => {
  const first = seenAt({ server: "https://api.example.com" });
  for (const server of ["https://api.example.com:443", "https://API.example.com/"]) {
    t.ok(seenAt({ server }) === first, server);
  }
  t.notOk(seenAt({ server: "https://api.example.com/clusters/b" }) === first);
  t.end();
});

function seenBy(...args: readonly string[]): SeenServers {
  const exec = { apiVersion: "client.authentication.k8s.io/v1", command: "login", args, interactiveMode: "Never" };
  return environmentOf(new ApiClient(new Transport(configFor(kubeconfigFor("https://gateway:443", { exec }))))).seen;
}

await tap.test(
  "environmentOf() takes clusters behind one gateway, which tells them apart by credentials, for several",
  (t) => {
    const first = seenBy("--cluster=a");
    t.ok(seenBy("--cluster=a") === first);
    t.notOk(
      seenBy("--cluster=b") === first,
      "each look at one of them would show that all API servers of the other left",
    );
    t.end();
  },
);

function seenVia(port: number): SeenServers {
  return seenAt({ server: `https://127.0.0.1:${port}` });
}

await tap.test("environmentOf() remembers the clusters that calls were for last", (t) => {
  const [used, unused] = [seenVia(1), seenVia(2)];
  for (let port = 1_000; port < 2_000; port++) {
    seenVia(port);
    if (seenVia(1) !== used) t.fail("one that is used again is kept");
  }
  t.notOk(seenVia(2) === unused, "a program may open a tunnel with a port of its own for each call");
  t.end();
});
