import { Readable } from "node:stream";
import tap from "tap";
import { UNSEEN_ARRIVALS } from "../../src/apiservers/arrivals.ts";
import type { ApiServers } from "../../src/apiservers/api-servers.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import { ServerRestarts } from "../../src/apiservers/server-restarts.ts";
import type { Status } from "../../src/api/meta.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { BuiltInEvidence } from "../../src/migrator/built-in-evidence.ts";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { FakeClock } from "../fake-clock.ts";

const CRD = {
  kind: "CustomResourceDefinition",
  metadata: { name: "widgets.example.com", uid: "u", generation: 3, resourceVersion: "30" },
  spec: {
    group: "example.com",
    names: { plural: "widgets", kind: "Widget" },
    scope: "Namespaced",
    versions: [{ name: "v1", served: true, storage: true }],
  },
  status: { storedVersions: ["v1"] },
};

/** What an API server has that has not seen it. */
const BEFORE = { ...CRD, metadata: { ...CRD.metadata, generation: 2, resourceVersion: "20" } };

const TOO_LARGE = {
  kind: "Status",
  reason: "Timeout",
  code: 504,
  message: "Timeout: Too large resource version: 30, current: 20",
  details: { causes: [{ reason: "ResourceVersionTooLarge", message: "Too large resource version" }] },
};

const NOT_FOUND = { kind: "Status", reason: "NotFound", code: 404, details: { name: CRD.metadata.name } };

const bodyOf = (path: string, crd: object): unknown => {
  if (path === "/version") return { gitVersion: "v1.36.3" };
  if (path.endsWith("/widgets.example.com")) return crd;
  if (path.endsWith("/customresourcedefinitions")) {
    return { kind: "PartialObjectMetadataList", metadata: {}, items: [crd] };
  }
  const resources = [{ name: "widgets", storageVersionHash: "h1" }];
  return { kind: "APIResourceList", groupVersion: "example.com/v1", metadata: {}, items: [], resources };
};

const stream = async (): Promise<Readable> => Readable.from([Buffer.from("process_start_time_seconds 1\n")]);

/** An API server whose watch of CRDs is at the frozen CRD after so long, and that shows the hash of the storage version all the time. */
function apiServer(
  server: string,
  clock: FakeClock,
  followsAtMs: number,
  crdNow: () => object | undefined = () => CRD,
): ApiClient {
  const request = async ({ path, query }: ApiRequest): Promise<unknown> => {
    clock.advance(10);
    const isBehind = clock.monotonic() < followsAtMs;
    if (query?.["resourceVersion"] === "0" && isBehind) {
      return { status: 200, body: bodyOf(path, BEFORE), serverTime: clock.now() };
    }
    if (query?.["resourceVersion"] !== undefined && isBehind) {
      throw new ApiError(`GET ${path}`, 504, { answer: TOO_LARGE as unknown as Status });
    }
    const crd = path.endsWith("/widgets.example.com") ? crdNow() : CRD;
    if (crd === undefined) {
      throw new ApiError(`GET ${path}`, 404, { answer: NOT_FOUND as unknown as Status });
    }
    return { status: 200, body: bodyOf(path, crd), serverTime: clock.now() };
  };
  const client = new ApiClient({ server, request, stream } as unknown as Transport);
  // It does not serve the StorageVersion API.
  return Object.assign(client, { findIfServed: async () => undefined });
}

function evidenceFor(clock: FakeClock, clients: readonly ApiClient[], events: MigrationEvent[] = []): BuiltInEvidence {
  const context = {
    arrivals: UNSEEN_ARRIVALS,
    client: clients[0],
    clock,
    emit: (event: MigrationEvent) => events.push(event),
    findApiServers: async (): Promise<ApiServers> => ({ mode: "each", clients }),
    options: { settleMs: 1_000, convergenceTimeoutMs: 20_000 },
    retrier: new Retrier({ clock, random: () => 0.5 }),
    signal: new AbortController().signal,
  } as unknown as RunContext;
  const resource = { group: "example.com", version: "v1", resource: "widgets", kind: "Widget" };
  return new BuiltInEvidence(context, { resource, crdName: "widgets.example.com", restarts: new ServerRestarts() });
}

await tap.test(
  "BuiltInEvidence waits until each API server has seen the CRD whose objects are rewritten",
  async (t) => {
    const clock = new FakeClock();
    const clients = [apiServer("https://a", clock, 0), apiServer("https://b", clock, 8_000)];
    const events: MigrationEvent[] = [];
    const evidence = evidenceFor(clock, clients, events);
    await evidence.prove();
    t.ok(clock.monotonic() >= 9_000, `${clock.monotonic()} ms`);
    t.match(
      events.find(({ type }) => type === "lagging"),
      { server: "https://b", reason: /its watch of CRDs is at resourceVersion .*, and the CRD is at 30/ },
    );
    await evidence.repeat();
  },
);

// The API server that is behind has seen the CRD of the beginning by then, and may be anywhere on the way to the newest one.
await tap.test(
  "BuiltInEvidence begins again where the storage version goes there and back while an API server is waited for",
  async (t) => {
    const clock = new FakeClock();
    const flipped = { ...CRD, metadata: { ...CRD.metadata, generation: 5, resourceVersion: "50" } };
    const crdAt = (): object => (clock.monotonic() < 5_000 ? CRD : flipped);
    const clients = [apiServer("https://a", clock, 0, crdAt), apiServer("https://b", clock, 8_000, crdAt)];
    const evidence = evidenceFor(clock, clients);
    await t.rejects(evidence.prove(), { name: "StartAgain", message: /the CRD changed during the run/ });
  },
);

await tap.test(
  "BuiltInEvidence begins again where the CRD is there only after the run has looked for it",
  async (t) => {
    const clock = new FakeClock();
    let reads = 0;
    const crdAt = (): object | undefined => (reads++ === 0 ? undefined : CRD);
    const evidence = evidenceFor(clock, [apiServer("https://a", clock, 0, crdAt)]);
    await t.rejects(evidence.prove(), { name: "StartAgain", message: /the CRD changed during the run/ });
  },
);
