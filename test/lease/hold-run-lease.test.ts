import tap from "tap";
import { Cleanup } from "../../src/retry/cleanup.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { holdRunLease } from "../../src/lease/hold-run-lease.ts";
import { deferRelease, RunLease } from "../../src/lease/run-lease.ts";
import { ManualClock } from "../manual-clock.ts";
import { LeaseServer } from "./lease-server.ts";

function setting(holderIdentity?: string) {
  const [clock, server] = [new ManualClock(), new LeaseServer()];
  if (holderIdentity !== undefined) {
    const spec = { holderIdentity, leaseDurationSeconds: 15 };
    server.lease = { metadata: { name: "l", uid: "u", resourceVersion: "1" }, spec };
  }
  const retrier = new Retrier({ clock, random: () => 0.5 });
  const options = { client: server.client, clock, retrier, namespace: "ns", name: "l", identity: "sweep" };
  return { clock, server, options: { ...options, signal: new AbortController().signal } };
}

/** Holds the Lease once. @returns whose it was, of those that did not give it up */
async function held({ clock, options }: ReturnType<typeof setting>, meanwhile = (): void => undefined) {
  const tookOver: string[] = [];
  const holding = holdRunLease({ ...options, onTakeOver: (holder) => tookOver.push(holder) }, async () => undefined);
  await clock.advance(600);
  meanwhile();
  await clock.advance(60_000);
  await holding;
  return tookOver;
}

await tap.test("holdRunLease() gives up a Lease that nobody held", async (t) => {
  const parts = setting();
  t.same(await held(parts), []);
  t.equal(parts.server.lease, undefined);
});

await tap.test("holdRunLease() leaves the Lease of a dead run as that of one, however often it holds it", async (t) => {
  const parts = setting("dead");
  t.same(await held(parts), ["dead"]);
  for (let times = 0; times < 3; times++) {
    const holder = parts.server.lease?.spec?.holderIdentity ?? "";
    t.match(holder, /^sweep\//);
    t.same(await held(parts), [holder], "the one that an earlier hold left is that of a dead run still");
  }
});

await tap.test("holdRunLease() takes a run that gives its Lease up meanwhile for no dead one", async (t) => {
  const parts = setting("run");
  const tookOver = await held(parts, () => (parts.server.lease = undefined));
  t.same(tookOver, []);
  t.equal(parts.server.lease, undefined, "nothing is left");
});

await tap.test("a run loses its Lease where etcd is restored after its release was refused", async (t) => {
  const { clock, server, options } = setting();
  const restore = server.backup();
  const taking = RunLease.acquire(options);
  await clock.advance(0);
  const cleanup = new Cleanup({ clock, emit: () => undefined });
  const lease = await taking;
  deferRelease(cleanup, lease, () => ({ keepCheckpoint: false }));
  const done = cleanup.after(async () => {
    server.state = 403;
    return "migrated";
  });
  const lost = t.rejects(done, { code: "OwnershipLost" });
  await clock.advance(50);
  restore();
  server.state = "up";
  await clock.advance(60_000);
  await lost;
});
