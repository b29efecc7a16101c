import tap from "tap";
import { type ApiServers, fingerprintOf } from "../../src/apiservers/api-servers.ts";
import { type ApiServerFacts, type ApiServerMode, apiServerModeOf } from "../../src/apiservers/api-server-mode.ts";
import { urlsOf } from "../../src/apiservers/control-plane-objects.ts";

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
