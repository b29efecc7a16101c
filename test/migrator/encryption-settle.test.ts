import { Readable } from "node:stream";
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
const HASH = `sha256:${"a".repeat(64)}`;
const METRICS = `process_start_time_seconds 1.7e+09
apiserver_encryption_config_controller_last_config_info{apiserver_id_hash="${HASH}",hash="${HASH}"} 1
`;
const RESOURCES = ["secrets", "configmaps"].map((name) => ({ name, storageVersionHash: name }));

const stream = async (): Promise<Readable> => Readable.from([Buffer.from(METRICS)]);

/** One API server, which stands still when it is told to: a real one cannot be stopped at a given moment of a wait. */
function setting() {
  const clock = new FakeClock();
  const seen = new SeenServers(clock);
  const encryption = new EncryptionEvidence({ isAssumed: false });
  const server = { standStillMs: 0, onWoken: (): void => undefined };
  const request = async ({ path }: { path: string }): Promise<unknown> => {
    clock.advance(10);
    if (path === "/version" && server.standStillMs > 0) {
      clock.advance(server.standStillMs);
      server.standStillMs = 0;
      server.onWoken();
    }
    const list = { kind: "APIResourceList", groupVersion: "v1", items: [], resources: RESOURCES };
    return { status: 200, body: path === "/version" ? { gitVersion: "v1.36.3" } : list, serverTime: clock.now() };
  };
  const transport = { server: "https://a", request, stream };
  const client = { transport, findIfServed: async () => undefined } as unknown as ApiClient;
  const findApiServers = async (): Promise<ApiServers> => {
    seen.noticeSuspension();
    return { mode: "each", clients: [client], identities: [], silent: seen.wereSilentWithin(SETTLE_MS) };
  };
  const evidenceOf = (name: string, signal = new AbortController().signal): BuiltInEvidence => {
    const context = {
      arrivals: UNSEEN_ARRIVALS,
      client,
      clock,
      emit: () => undefined,
      encryption,
      findApiServers,
      options: { settleMs: SETTLE_MS, convergenceTimeoutMs: 600_000 },
      retrier: new Retrier({ clock, random: () => 0.5 }),
      signal,
    } as unknown as RunContext;
    const resource = { group: "", version: "v1", resource: name, kind: name };
    return new BuiltInEvidence(context, { resource, restarts: new ServerRestarts() });
  };
  return { clock, evidenceOf, server };
}

await tap.test(
  "BuiltInEvidence waits for a write of an API server that stood still in a wait which was ended",
  async (t) => {
    const { clock, evidenceOf, server } = setting();
    const stop = new AbortController();
    let wokenAt = 0;
    server.onWoken = () => {
      wokenAt = clock.monotonic();
      stop.abort(new Error("the run ends here"));
    };
    server.standStillMs = 40_000;
    await t.rejects(evidenceOf("secrets", stop.signal).prove(), /the run ends here/);
    t.ok(wokenAt > 0, "it stood still in the wait");
    await evidenceOf("configmaps").prove();
    const waitedMs = clock.monotonic() - wokenAt;
    t.ok(waitedMs >= SETTLE_MS, `${waitedMs} ms after it woke`);
  },
);

await tap.test("BuiltInEvidence waits once for all resources where the wait came to its end", async (t) => {
  const { clock, evidenceOf } = setting();
  await evidenceOf("secrets").prove();
  const settledAt = clock.monotonic();
  t.ok(settledAt >= SETTLE_MS);
  await evidenceOf("configmaps").prove();
  t.ok(clock.monotonic() - settledAt < SETTLE_MS);
});
