import tap from "tap";
import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { takeLease } from "../../src/migrator/take-lease.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { LeaseServer } from "../lease/lease-server.ts";
import { ManualClock } from "../manual-clock.ts";

/** A run that takes its Lease from a holder, and what its process has seen of API servers. */
async function takenFrom(holderIdentity: string | undefined): Promise<SeenServers> {
  const [server, clock] = [new LeaseServer(), new ManualClock()];
  const seen = new SeenServers(clock);
  const ended = new AbortController();
  if (holderIdentity !== undefined) {
    const spec = { holderIdentity, leaseDurationSeconds: 15 };
    server.lease = { metadata: { name: "held", uid: "uid-0", resourceVersion: "1" }, spec };
  }
  const context = {
    client: server.client,
    clock,
    emit: () => undefined,
    identity: "me",
    options: { leaseNamespace: "kube-system" },
    retrier: new Retrier({ clock, random: () => 0.5, maxIdleMs: 900_000 }),
    seen,
    signal: ended.signal,
  };
  const taking = takeLease(context as unknown as RunContext, "widgets.example.com");
  await clock.advance(16_000);
  const lease = await taking;
  ended.abort(new Error("the test is over"));
  await lease.release({ keepCheckpoint: false }, ended.signal).catch(() => undefined);
  return seen;
}

await tap.test(
  "a run that takes over from a dead one takes what that one saw of API servers for a silence, and for one that leaves",
  async (t) => {
    const dead = await takenFrom("dead");
    t.notOk(dead.isSilenceOver);
    t.ok(dead.departures.mayHaveMissedWithin(1_000, 16_000));
    t.notOk((await takenFrom("")).departures.mayHaveMissedWithin(1_000, 16_000));
    t.ok((await takenFrom(undefined)).isSilenceOver, "there was none");
    t.ok((await takenFrom("")).isSilenceOver, "it ended, and said for how long to wait");
  },
);
