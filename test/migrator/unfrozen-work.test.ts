import tap from "tap";
import { UNSEEN_ARRIVALS } from "../../src/apiservers/arrivals.ts";
import type { ApiServers } from "../../src/apiservers/api-servers.ts";
import { withoutFreeze } from "../../src/migrator/migrate-built-in.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { LeaseServer } from "../lease/lease-server.ts";
import { ManualClock } from "../manual-clock.ts";

const SECRETS = { group: "", version: "v1", resource: "secrets", kind: "Secret" };

const request = async (): Promise<unknown> => ({ status: 201, body: { status: { allowed: true } } });

/** A run of one attempt on an API server that has its Lease and nothing else. */
function runOf(server: LeaseServer, clock: ManualClock, attempt: () => Promise<string>): Promise<string> {
  const client = Object.assign(server.client, { transport: { server: "https://a", request } });
  Object.assign(client, { fencedBy: () => client });
  const context = {
    arrivals: UNSEEN_ARRIVALS,
    client,
    clock,
    emit: () => undefined,
    findApiServers: async (): Promise<ApiServers> => ({ mode: "each", clients: [client] }),
    identity: "me",
    options: { leaseNamespace: "kube-system" },
    retrier: new Retrier({ clock, random: () => 0.5 }),
    signal: new AbortController().signal,
  } as unknown as RunContext;
  const work = { attempt, forget: () => undefined };
  return withoutFreeze(context, { resource: SECRETS, crdName: undefined, work });
}

await tap.test(
  "withoutFreeze() ends a run that is done where etcd was restored after its last write from a backup that was made during it",
  async (t) => {
    const [server, clock] = [new LeaseServer(), new ManualClock()];
    const run = runOf(server, clock, async () => {
      const restore = server.backup();
      // The Lease is renewed, the last object written, and then etcd is as it was.
      await clock.advance(6_000);
      restore();
      return "migrated";
    });
    const lost = t.rejects(run, { code: "OwnershipLost", message: /restored from a backup/ });
    await clock.advance(60_000);
    await lost;
  },
);

await tap.test("withoutFreeze() hands on what came of a run whose Lease is as it left it", async (t) => {
  const [server, clock] = [new LeaseServer(), new ManualClock()];
  const run = runOf(server, clock, async () => "migrated");
  await clock.advance(60_000);
  t.equal(await run, "migrated");
  t.equal(server.lease, undefined, "it is given up");
});
