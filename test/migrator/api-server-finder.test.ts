import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import tap, { type Test } from "tap";
import { issueSelfSigned } from "../../src/certs/self-signed.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { Transport } from "../../src/kube/transport.ts";
import { ApiServerFinder, serversOf } from "../../src/migrator/api-servers.ts";
import { Retrier } from "../../src/migrator/retrier.ts";
import { FakeClock } from "../fake-clock.ts";
import { configFor, kubeconfigFor } from "../kube/local-server.ts";

const pair = await issueSelfSigned({
  dnsNames: ["kubernetes.default.svc", "localhost"],
  ipAddresses: ["127.0.0.1"],
  now: new Date(),
  lifetimeMs: 3_600_000,
});

/**
 * Stand-ins for several API servers, because the EndpointSlice of a real one on this machine cannot hold loopback
 * addresses: one server, reached by two names.
 */
async function startApiServers(t: Test, seen: { addresses: string[]; leases: string[] }): Promise<string> {
  const server = createServer({ cert: pair.certPem, key: pair.keyPem }, (request, response) => {
    const { port } = server.address() as AddressInfo;
    const endpoints = [{ addresses: seen.addresses }];
    const spec = { renewTime: "2999-01-01T00:00:00Z", leaseDurationSeconds: 3_600 };
    const items = request.url?.includes("endpointslices")
      ? [{ endpoints, ports: [{ name: "https", port }] }]
      : seen.leases.map((name) => ({ metadata: { name, creationTimestamp: "2026-01-01T00:00:00Z" }, spec }));
    response.setHeader("content-type", "application/json").end(JSON.stringify({ gitVersion: "v1.36.3", items }));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => server.close());
  return `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function finderFor(t: Test, seen: { addresses: string[]; leases: string[] }, strict = false) {
  const url = await startApiServers(t, seen);
  const config = configFor(kubeconfigFor(url, { token: "secret" }));
  const lags: string[] = [];
  const finder = new ApiServerFinder({
    config,
    client: new ApiClient(new Transport(config)),
    clock: new FakeClock(),
    retrier: new Retrier({ clock: new FakeClock(), random: () => 0.5, maxIdleMs: 100 }),
    strict,
    timeoutMs: 5_000,
    onLag: (_, reason) => lags.push(reason),
  });
  t.teardown(() => finder.close());
  return { finder, lags, port: new URL(url).port };
}
const { signal } = new AbortController();

await tap.test("ApiServerFinder finds every API server by the EndpointSlice", async (t) => {
  const { finder, port } = await finderFor(t, { addresses: ["127.0.0.1", "localhost"], leases: ["a", "b"] });
  const found = await finder.find(signal);
  t.same(serversOf(found), [`https://127.0.0.1:${port}`, `https://localhost:${port}`]);
  t.equal(found.newestJoin, Date.parse("2026-01-01T00:00:00Z"));
});

await tap.test("Identity Leases: one without a live endpoint is waited for and named", async (t) => {
  const seen = { addresses: ["127.0.0.1", "localhost"], leases: ["a", "b", "crashed"] };
  const { finder, lags } = await finderFor(t, seen);
  await t.rejects(finder.find(signal), { code: "NotConverged", message: /crashed.*--apiserver-endpoints/ });
  t.match(lags[0], /3 identity Leases live \(a, b, crashed\) and 2 addresses are known/);

  const later = await finderFor(t, seen);
  const finding = later.finder.find(signal);
  seen.leases.pop();
  t.equal((await finding).mode, "each", "it goes on when the Lease has expired");
});

await tap.test("ApiServerFinder samples where an address does not answer, unless it may not", async (t) => {
  const seen = { addresses: ["127.0.0.1", "127.0.0.9"], leases: ["a", "b"] };
  const { finder } = await finderFor(t, seen);
  t.equal((await finder.find(signal)).mode, "sampled");
  const strict = await finderFor(t, seen, true);
  await t.rejects(strict.finder.find(signal), { code: "NotConverged", message: /--convergence=strict/ });
});

await tap.test("ApiServerFinder asks nobody where the API servers are named", async (t) => {
  const config = configFor(kubeconfigFor("https://127.0.0.1:1", { token: "secret" }));
  const finder = new ApiServerFinder({
    config,
    client: new ApiClient(new Transport(config)),
    clock: new FakeClock(),
    retrier: new Retrier({ clock: new FakeClock(), random: () => 0.5, maxIdleMs: 100 }),
    endpoints: ["https://127.0.0.1:2", "https://127.0.0.1:3"],
    strict: true,
    timeoutMs: 5_000,
    onLag: () => undefined,
  });
  t.same(serversOf(await finder.find(signal)), ["https://127.0.0.1:2", "https://127.0.0.1:3"]);
});
