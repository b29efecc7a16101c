import tap from "tap";
import { type ApiServerFacts, type ApiServerMode, apiServerModeOf } from "../../../src/old/apiservers/api-server-mode.ts";
import { type ApiServers, fingerprintOf } from "../../../src/old/apiservers/api-servers.ts";
import { urlsOf } from "../../../src/old/apiservers/control-plane-objects.ts";
import { describeMissing } from "../../../src/old/apiservers/missing-api-server.ts";
import { readServerInstance } from "../../../src/old/apiservers/server-instance.ts";
import { startServer } from "../kube/local-server.ts";

const modes: readonly [title: string, facts: ApiServerFacts, mode: ApiServerMode][] = [
  ["one Lease and no address", { addresses: 0, allReachable: false, liveLeases: 1 }, "sole"],
  ["one Lease and one address", { addresses: 1, allReachable: false, liveLeases: 1 }, "sole"],
  ["three of both, reachable", { addresses: 3, allReachable: true, liveLeases: 3 }, "each"],
  [
    "three addresses and Leases that cannot be read",
    { addresses: 3, allReachable: true, liveLeases: undefined },
    "each",
  ],
  ["more addresses than Leases", { addresses: 3, allReachable: true, liveLeases: 2 }, "each"],
  ["a Lease without an address", { addresses: 2, allReachable: true, liveLeases: 3 }, "missing"],
  ["addresses that cannot be reached", { addresses: 3, allReachable: false, liveLeases: 3 }, "sampled"],
  ["three Leases behind one address", { addresses: 1, allReachable: true, liveLeases: 3 }, "sampled"],
  ["two Leases and no address", { addresses: 0, allReachable: false, liveLeases: 2 }, "sampled"],
  ["nothing known at all", { addresses: 0, allReachable: false, liveLeases: undefined }, "sampled"],
  ["no Lease and one address", { addresses: 1, allReachable: true, liveLeases: 0 }, "sampled"],
];

for (const [title, facts, mode] of modes) {
  await tap.test(`apiServerModeOf() is ${mode} with ${title}`, async (t) => {
    t.equal(apiServerModeOf(facts), mode);
  });
}

await tap.test("urlsOf() makes URLs of the ready endpoints of a slice", async (t) => {
  const slice = {
    endpoints: [
      { addresses: ["10.0.0.1", "10.0.0.2"], conditions: { ready: true } },
      { addresses: ["fd00::1"] },
      { addresses: ["10.0.0.9"], conditions: { ready: false } },
    ],
    ports: [
      { name: "metrics", port: 9 },
      { name: "https", port: 6443 },
    ],
  };
  t.same(urlsOf(slice), ["https://10.0.0.1:6443", "https://10.0.0.2:6443", "https://[fd00::1]:6443"]);
  t.same(urlsOf({}), []);
  t.same(urlsOf({ endpoints: [{ addresses: ["10.0.0.1"] }] }), ["https://10.0.0.1:443"]);
});

await tap.test("fingerprintOf() tells a set apart that leaves out what only a user takes for gone", async (t) => {
  const all: ApiServers = { mode: "each", clients: [], identities: ["apiserver-a"], newestJoin: 1 };
  const without = fingerprintOf({ ...all, ignored: ["apiserver-c", "apiserver-b"] });
  t.not(without, fingerprintOf(all), "the user of another run does not say so");
  t.not(without, fingerprintOf({ ...all, ignored: ["apiserver-b"] }));
  t.equal(without, fingerprintOf({ ...all, ignored: ["apiserver-b", "apiserver-c"] }));
  t.equal(fingerprintOf({ ...all, ignored: [] }), fingerprintOf(all));
});

const { signal } = new AbortController();

await tap.test("describeMissing() names the Leases that live, and those that are overdue", async (t) => {
  const leases = [
    { name: "a", host: "one", uid: "u", createdAt: 0, renewedMsAgo: 3_000 },
    { name: "b", uid: "u", createdAt: 0, renewedMsAgo: 65_000 },
  ];
  t.equal(
    describeMissing(leases, "1 answers"),
    "2 identity Leases live (a of host one, b), by their time stamps not renewed of late: b for 65 s; 1 answers",
  );
});

await tap.test(
  "describeMissing() calls no Lease overdue that was seen to be renewed, whatever its stamp says",
  async (t) => {
    const behind = { name: "behind", uid: "u", createdAt: 0, renewedMsAgo: 65_000 };
    const of = (seenRenewedMsAgo: number): string => describeMissing([{ ...behind, seenRenewedMsAgo }], "1 answers");
    t.equal(of(10_000), "1 identity Leases live (behind); 1 answers");
    t.match(of(31_000), "by their time stamps not renewed of late: behind for 65 s");
  },
);

const METRICS = 'go_info{version="go1.26"} 1\nprocess_start_time_seconds 1.79529975674e+09\nrest_client_total 2\n';

await tap.test("readServerInstance() reads when the process of an API server started", async (t) => {
  // In pieces that break the line.
  const server = await startServer(t, (_, response) => {
    response.write(METRICS.slice(0, 45), () => response.end(METRICS.slice(45)));
  });
  t.equal(await readServerInstance(server.transport(), signal), "1.79529975674e+09");
  t.equal(server.seen[0]?.path, "/metrics");
});

/** As the authorizer says it. */
const FORBIDDEN = JSON.stringify({
  kind: "Status",
  reason: "Forbidden",
  message: 'forbidden: User "jane" cannot get path "/metrics"',
});

const refusals: readonly [title: string, status: number, body: string, message: RegExp][] = [
  ["/metrics is forbidden", 403, FORBIDDEN, /may not get the nonResourceURL "\/metrics".*--apiserver-endpoints/],
  ["metrics do not say it", 200, "go_info 1\n", /does not show process_start_time_seconds/],
];

for (const [title, status, body, message] of refusals) {
  await tap.test(`readServerInstance() refuses where ${title}`, async (t) => {
    const server = await startServer(t, (_, response) => response.writeHead(status).end(body));
    await t.rejects(readServerInstance(server.transport(), signal), { code: "ApiServerMissing", message });
  });
}

// What a proxy may send; the next answer may be the API server's.
for (const [title, status, body] of [
  ["a page", 200, "<html>\nplease log in\n</html>\n"],
  ["a JSON object", 200, "{}"],
  ["nothing", 200, ""],
  ["a 403 without the authorizer's words", 403, "<html>blocked</html>"],
] as const) {
  await tap.test(`readServerInstance() concludes nothing from a proxy that answers with ${title}`, async (t) => {
    const server = await startServer(t, (_, response) => response.writeHead(status).end(body));
    await t.rejects(readServerInstance(server.transport(), signal), { name: "DoubtfulAnswer" });
  });
}

await tap.test("readServerInstance() takes metrics that break off for no answer", async (t) => {
  const server = await startServer(t, (_, response) => {
    response.write(METRICS);
    setTimeout(() => response.destroy(), 20);
  });
  await t.rejects(readServerInstance(server.transport(), signal), { name: "TransportError" });
});
