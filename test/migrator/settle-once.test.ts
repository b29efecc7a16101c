import { PassThrough, Readable } from "node:stream";
import tap from "tap";
import type { ApiServers } from "../../src/apiservers/api-servers.ts";
import { EncryptionEvidence } from "../../src/apiservers/encryption-evidence.ts";
import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import { UNSEEN_ARRIVALS } from "../../src/apiservers/arrivals.ts";
import { ServerRestarts } from "../../src/apiservers/server-restarts.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { BuiltInEvidence } from "../../src/migrator/built-in-evidence.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { FakeClock } from "../fake-clock.ts";

const SETTLE_MS = 65_000;
const DELAY_MS = 70_000;
const HASH = `sha256:${"a".repeat(64)}`;
const METRICS = `process_start_time_seconds 1.7e+09
apiserver_encryption_config_controller_last_config_info{apiserver_id_hash="${HASH}",hash="${HASH}"} 1
`;
const RESOURCES = ["secrets", "configmaps"].map((name) => ({ name, storageVersionHash: name }));

/** What a run is to wait for: a change of the encryption, or API servers that came or left. */
type Kind = "encryption" | "arrivals" | "neither";

/** One API server, which stands still when it is told to: a real one cannot be stopped at a given moment of a wait. */
function setting(kind: Kind, shutdownDelayMs = 0) {
  const clock = new FakeClock();
  const seen = new SeenServers(clock);
  const by =
    kind === "encryption"
      ? { encryption: new EncryptionEvidence({ isAssumed: false }), arrivals: UNSEEN_ARRIVALS }
      : { arrivals: kind === "arrivals" ? seen.arrivals : UNSEEN_ARRIVALS };
  let watch = new PassThrough();
  let resourceVersion = "10";
  const stream = async ({ path, signal }: { path: string; signal: AbortSignal }): Promise<Readable> => {
    if (!path.endsWith("/leases")) return Readable.from([Buffer.from(METRICS)]);
    watch = new PassThrough();
    signal.addEventListener("abort", () => watch.destroy(new Error("aborted")));
    return watch;
  };
  /** An API server joins or leaves, by the watch of the identity Leases. */
  const tell = async (type: "ADDED" | "DELETED"): Promise<void> => {
    resourceVersion = "20";
    const object = { metadata: { name: "b", uid: "b", resourceVersion }, spec: { holderIdentity: "b_1" } };
    const { count } = seen.arrivals;
    watch.write(`${JSON.stringify({ type, object })}\n`);
    while (seen.arrivals.count === count) await new Promise((resolve) => setImmediate(resolve));
  };
  const server = { standStillMs: 0, onWoken: (): void => undefined };
  const request = async ({ path }: { path: string }): Promise<unknown> => {
    clock.advance(10);
    if (path === "/version" && server.standStillMs > 0) {
      clock.advance(server.standStillMs);
      server.standStillMs = 0;
      server.onWoken();
    }
    const metadata = { resourceVersion };
    const list = { kind: "APIResourceList", groupVersion: "v1", metadata, items: [], resources: RESOURCES };
    return { status: 200, body: path === "/version" ? { gitVersion: "v1.36.3" } : list, serverTime: clock.now() };
  };
  const transport = { server: "https://a", request, stream };
  const client = { transport, findIfServed: async () => undefined } as unknown as ApiClient;
  const findApiServers = async (): Promise<ApiServers> => {
    seen.noticeSuspension();
    return { mode: "each", clients: [client], identities: [], silent: seen.wereSilentWithin(SETTLE_MS) };
  };
  const prove = async (name: string, signal = new AbortController().signal): Promise<void> => {
    const context = {
      ...by,
      client,
      clock,
      emit: () => undefined,
      findApiServers,
      options: { settleMs: SETTLE_MS, shutdownDelayMs, convergenceTimeoutMs: 600_000 },
      retrier: new Retrier({ clock, random: () => 0.5 }),
      signal,
    } as unknown as RunContext;
    const resource = { group: "", version: "v1", resource: name, kind: name };
    const evidence = new BuiltInEvidence(context, { resource, restarts: new ServerRestarts() });
    await by.arrivals.during(client, () => evidence.prove());
  };
  /** Does the work of one process, which goes on watching between two runs. */
  const throughout = (work: () => Promise<void>): Promise<void> => seen.arrivals.throughout(work);
  return { clock, departures: seen.departures, prove, server, tell, throughout };
}

for (const kind of ["encryption", "arrivals"] as const) {
  await tap.test(`BuiltInEvidence waits again after a wait which was ended: ${kind}`, async (t) => {
    const { clock, prove, server, throughout } = setting(kind);
    const stop = new AbortController();
    let wokenAt = 0;
    server.onWoken = () => {
      wokenAt = clock.monotonic();
      stop.abort(new Error("the run ends here"));
    };
    server.standStillMs = 40_000;
    await throughout(async () => {
      await t.rejects(prove("secrets", stop.signal), /the run ends here/);
      t.ok(wokenAt > 0, "it stood still in the wait, with a write under way");
      await prove("configmaps");
    });
    const waitedMs = clock.monotonic() - wokenAt;
    t.ok(waitedMs >= SETTLE_MS, `${waitedMs} ms after it woke`);
  });

  await tap.test(`BuiltInEvidence waits once for all resources where the wait came to its end: ${kind}`, async (t) => {
    const { clock, prove, throughout } = setting(kind);
    await throughout(async () => {
      await prove("secrets");
      const settledAt = clock.monotonic();
      t.ok(settledAt >= SETTLE_MS, "also where no stamp shows that one joined: one may have left right before");
      await prove("configmaps");
      t.ok(clock.monotonic() - settledAt < SETTLE_MS);
    });
  });
}

await tap.test("BuiltInEvidence waits again where an API server joined since", async (t) => {
  const { clock, prove, tell, throughout } = setting("arrivals");
  await throughout(async () => {
    await prove("secrets");
    await tell("ADDED");
    const joinedAt = clock.monotonic();
    await prove("configmaps");
    t.ok(clock.monotonic() - joinedAt >= SETTLE_MS);
  });
});

await tap.test("BuiltInEvidence waits again where nothing watched between two runs", async (t) => {
  const { clock, prove } = setting("arrivals");
  await prove("secrets");
  const settledAt = clock.monotonic();
  await prove("configmaps");
  t.ok(clock.monotonic() - settledAt >= SETTLE_MS);
});

await tap.test(
  "BuiltInEvidence waits in every run where it may not watch API servers, and looks at no key",
  async (t) => {
    const { clock, prove } = setting("neither");
    for (const name of ["secrets", "configmaps"]) {
      const startedAt = clock.monotonic();
      await prove(name);
      t.ok(clock.monotonic() - startedAt >= SETTLE_MS, `one may have left right before the run of ${name}`);
    }
  },
);

for (const kind of ["encryption", "arrivals", "neither"] as const) {
  await tap.test(`BuiltInEvidence waits for one that may have left right before the first run: ${kind}`, async (t) => {
    const { clock, prove } = setting(kind, DELAY_MS);
    await prove("secrets");
    t.ok(clock.monotonic() >= DELAY_MS + SETTLE_MS, "it took requests for that long");
  });
}

await tap.test("BuiltInEvidence waits again for as long after an API server that left", async (t) => {
  const { clock, departures, prove, tell, throughout } = setting("arrivals", DELAY_MS);
  await throughout(async () => {
    await prove("secrets");
    const settledAt = clock.monotonic();
    await prove("configmaps");
    t.ok(clock.monotonic() - settledAt < SETTLE_MS, "none left since");
    t.equal(departures.last, undefined);
    await tell("DELETED");
    const leftAt = clock.monotonic();
    t.same(departures.last, { name: "b", at: leftAt });
    await prove("events");
    t.ok(clock.monotonic() - leftAt >= DELAY_MS + SETTLE_MS);
  });
});
