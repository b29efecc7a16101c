import { Readable } from "node:stream";
import tap from "tap";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import { type Arrivals, UNSEEN_ARRIVALS } from "../../src/apiservers/arrivals.ts";
import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import { ServerRestarts } from "../../src/apiservers/server-restarts.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { BuiltInEvidence } from "../../src/migrator/built-in-evidence.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { storageChangeOf } from "../../src/apiservers/settle.ts";
import { apiServersAt } from "../../src/apiservers/settled-changes.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { FakeClock } from "../fake-clock.ts";

// A stand-in: no real API server follows CRDs in the very seconds in which it is asked whether it has.

const SETTLE_MS = 65_000;
const VERSIONS = ["v1alpha1", "v1"];

function crdOf(plural: string, state: { generation: number; resourceVersion: string; storage: string; time: string }) {
  const { generation, resourceVersion, storage, time } = state;
  const managedFields = [{ manager: "u", operation: "Update", time, fieldsV1: { "f:spec": { "f:versions": {} } } }];
  const name = `${plural}.example.com`;
  return {
    kind: "CustomResourceDefinition",
    metadata: { name, uid: plural, generation, resourceVersion, creationTimestamp: time, managedFields },
    spec: {
      group: "example.com",
      names: { plural, kind: plural },
      versions: VERSIONS.map((version) => ({ name: version, served: true, storage: version === storage })),
    },
    status: { storedVersions: VERSIONS },
  };
}

const stream = async (): Promise<Readable> => Readable.from([Buffer.from("process_start_time_seconds 1\n")]);

/**
 * A process whose runs come one after the other, and two API servers. `b` knows `gadgets` as it was before the storage version changed, an hour ago, until
 * it follows.
 */
function processOf({ mayList = true } = {}) {
  const clock = new FakeClock();
  const time = new Date(clock.now() - 3_600_000).toISOString();
  const widgets = crdOf("widgets", { generation: 1, resourceVersion: "10", storage: "v1", time });
  const before = crdOf("gadgets", { generation: 1, resourceVersion: "20", storage: "v1alpha1", time });
  const state = {
    gadgets: crdOf("gadgets", { generation: 2, resourceVersion: "30", storage: "v1", time }),
    known: before,
    followsIn: undefined as number | undefined,
    followedAt: undefined as number | undefined,
  };
  const follow = (): void => {
    state.known = state.gadgets;
    state.followedAt = clock.monotonic();
  };
  const knownTo = (server: string) => (server === "b" ? state.known : state.gadgets);
  const versionOf = (name: string, server: string): string =>
    name === "gadgets" && knownTo(server) === before ? "v1alpha1" : "v1";
  const clientOf = (server: string): ApiClient => {
    const request = async ({ path, query = {} }: ApiRequest): Promise<unknown> => {
      clock.advance(10);
      const answer = (body: unknown) => ({ status: 200, body, serverTime: clock.now() });
      const asked = query["resourceVersion"];
      if (path === "/version") return answer({ gitVersion: "v1.36.3" });
      const name = query["fieldSelector"]?.toString();
      if (name !== undefined) {
        // It holds the question until its watch is there, as a watch cache does for up to three seconds.
        if (Number(asked) > Number(knownTo(server).metadata.resourceVersion)) {
          clock.advance(2_000);
          follow();
        }
        const items = [name.includes("widgets") ? widgets : knownTo(server)];
        return answer({ kind: "PartialObjectMetadataList", metadata: {}, items });
      }
      if (path.endsWith("/customresourcedefinitions")) {
        if (!mayList) {
          const message =
            'customresourcedefinitions.apiextensions.k8s.io is forbidden: User "u" cannot list resource "customresourcedefinitions" in API group "apiextensions.k8s.io" at the cluster scope';
          const answer = { kind: "Status", reason: "Forbidden", details: {}, message };
          throw new ApiError(`GET ${path}`, 403, { answer } as never);
        }
        const items = [widgets, state.gadgets].map(({ metadata }) => ({ metadata }));
        return answer({ kind: "PartialObjectMetadataList", metadata: { resourceVersion: "50" }, items });
      }
      if (path.includes("/customresourcedefinitions/")) {
        return answer(path.includes("widgets") ? widgets : state.gadgets);
      }
      const list = { kind: "APIResourceList", groupVersion: "example.com/v1", metadata: {}, items: [] };
      const resources = ["widgets", "gadgets"].map((name) => ({
        name,
        storageVersionHash: storageVersionHashOf("example.com", versionOf(name, server), name),
      }));
      return answer({ ...list, resources });
    };
    const transport = { server: `https://${server}`, request, stream } as unknown as Transport;
    return Object.assign(new ApiClient(transport), { findIfServed: async () => undefined });
  };
  const clients = [clientOf("a"), clientOf("b")];
  const seen = new SeenServers(clock);
  let isSettled = false;
  const arrivals: Arrivals = {
    ...UNSEEN_ARRIVALS,
    get changedAt() {
      return isSettled ? Number.NEGATIVE_INFINITY : clock.monotonic();
    },
    settled: () => {
      isSettled = true;
    },
  };
  const context = {
    arrivals,
    seen,
    settled: seen.settled,
    client: clients[0],
    clock,
    emit: () => undefined,
    findApiServers: async () => ({ mode: "each", clients }),
    options: { settleMs: SETTLE_MS, convergenceTimeoutMs: 600_000 },
    retrier: new Retrier({ clock, random: () => 0.5 }),
    signal: new AbortController().signal,
  } as unknown as RunContext;
  /** @returns when its wait was over, and how long it took */
  const run = async (resource: string) => {
    const begun = clock.monotonic();
    const of = { group: "example.com", version: "v1", resource, kind: resource };
    const crdName = `${resource}.example.com`;
    await new BuiltInEvidence(context, { resource: of, crdName, restarts: new ServerRestarts() }).prove();
    return { endedAt: clock.monotonic(), tookMs: clock.monotonic() - begun };
  };
  return { clock, follow, run, seen, servers: apiServersAt({ mode: "each", clients }, 0), state };
}

await tap.test(
  "a run without a freeze waits for late writes after all API servers have followed its CRD, and the wait of another run counts where they had by then",
  async (t) => {
    const { run, state } = processOf();
    const first = await run("widgets");
    t.ok(first.endedAt - (state.followedAt ?? 0) >= SETTLE_MS, "it has all CRDs followed");
    const second = await run("gadgets");
    const sinceFirst = second.endedAt - first.endedAt;
    t.ok(
      sinceFirst >= SETTLE_MS && sinceFirst < SETTLE_MS + 5_000,
      "its discovery may have followed later than its watch",
    );
    t.ok((await run("widgets")).tookMs < 1_000);
    t.ok((await run("gadgets")).tookMs < 1_000);
  },
);

await tap.test("a run without a freeze does without the wait where the one for another CRD was long ago", async (t) => {
  const { clock, run } = processOf();
  await run("widgets");
  clock.advance(2 * SETTLE_MS);
  t.ok((await run("gadgets")).tookMs < 1_000);
});

await tap.test(
  "a run with a freeze believes nothing that a run without one has noted, and the other way round",
  async (t) => {
    const { run, seen, servers, state } = processOf();
    const { key } = storageChangeOf(state.gadgets);
    seen.settled.note(key, servers);
    await run("widgets");
    t.ok((await run("gadgets")).tookMs > 50_000, "a stamp may have had that run wait for nothing");
    const another = processOf();
    await another.run("widgets");
    t.ok(another.seen.settled.has(`followed ${key}`, servers), "negative control: it has noted something");
    t.notOk(another.seen.settled.has(key, servers));
  },
);

await tap.test("a run without a freeze waits for late writes of a CRD that changed since the last wait", async (t) => {
  const { clock, follow, run, state } = processOf();
  await run("widgets");
  const { metadata } = state.gadgets;
  // The clock of the API server that stamps it is an hour behind.
  state.gadgets = { ...state.gadgets, metadata: { ...metadata, generation: 3, resourceVersion: "60" } };
  clock.advance(10_000);
  follow();
  const second = await run("gadgets");
  t.ok(second.endedAt - (state.followedAt ?? 0) >= SETTLE_MS, `${second.tookMs} ms`);
});

await tap.test("a user who may not list CRDs has each of them waited for once", async (t) => {
  const { run, state } = processOf({ mayList: false });
  t.ok((await run("widgets")).tookMs >= SETTLE_MS);
  t.equal(state.followedAt, undefined, "negative control: an API server is behind with another CRD");
  const second = await run("gadgets");
  t.ok(second.endedAt - (state.followedAt ?? second.endedAt) >= SETTLE_MS, `${second.tookMs} ms`);
  t.ok((await run("gadgets")).tookMs < 1_000);
});
