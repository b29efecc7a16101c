import tap, { type Test } from "tap";
import { KsvmError } from "../../src/errors.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { Cleanup } from "../../src/retry/cleanup.ts";
import { CHECKPOINT_ANNOTATION, deferRelease, RunLease } from "../../src/lease/run-lease.ts";
import { ManualClock } from "../manual-clock.ts";
import { LeaseServer } from "./lease-server.ts";

/** The states in which an API server takes no write. */
const OUTAGES = ["refusing", "hanging", 503] as const;
const never = new AbortController().signal;

async function start(t: Test, { assertLeading = (): void => undefined, maxIdleMs = 900_000 } = {}) {
  const interrupted = new AbortController();
  const clock = new ManualClock();
  const server = new LeaseServer();
  const retrier = new Retrier({ clock, random: () => 0.5, maxIdleMs });
  const lease = await RunLease.acquire({
    client: server.client,
    clock,
    retrier,
    namespace: "kube-system",
    name: "ksvm-migrate.widgets",
    identity: "me",
    signal: interrupted.signal,
    assertLeading,
  });
  t.teardown(() => {
    server.state = "up";
    return lease
      .release({ keepCheckpoint: false }, AbortSignal.abort(new Error("the test is over")))
      .catch(() => undefined);
  });
  const interrupt = (): void => interrupted.abort(new KsvmError("Interrupted", "Ctrl-C"));
  return { clock, interrupt, lease, retrier, server };
}

/** Tells how far a promise is, without waiting for it. */
function watch(promise: Promise<unknown>): () => unknown {
  let state: unknown = "pending";
  promise.then(
    () => (state = "done"),
    (error: unknown) => (state = error),
  );
  return () => state;
}

for (const outage of OUTAGES) {
  await tap.test(
    `RunLease.confirm() waits for a renewal while the API server is ${outage}, and then resolves`,
    async (t) => {
      const { clock, lease, server } = await start(t);
      server.state = outage;
      await clock.advance(9_000);
      await lease.confirm(never);
      t.pass("nobody can have taken it over yet");
      await clock.advance(6_000);
      const confirmed = watch(lease.confirm(never));
      await clock.advance(300_000);
      t.equal(confirmed(), "pending");
      server.state = "up";
      await clock.advance(30_000);
      t.equal(confirmed(), "done", "a renewal that arrives proves that nobody took over");
      await lease.confirm(never);
    },
  );

  await tap.test(
    `RunLease.confirm() throws where another run took over while the API server was ${outage}`,
    async (t) => {
      const { clock, lease, server } = await start(t);
      server.state = outage;
      await clock.advance(20_000);
      const confirmed = watch(lease.confirm(never));
      server.takeOver("another");
      server.state = "up";
      await clock.advance(30_000);
      t.match(confirmed(), { code: "OwnershipLost", message: /held by "another"/ });
      await t.rejects(lease.saveCheckpoint("late"), { code: "OwnershipLost" });
      const before = server.seen.length;
      await clock.advance(60_000);
      await lease.release({ keepCheckpoint: true }, never);
      t.equal(server.seen.length, before, "it does nothing to the Lease any more");
      t.equal(server.lease?.spec?.holderIdentity, "another");
    },
  );
}

await tap.test(
  "RunLease.confirm() is not deceived by a monotonic clock that stands still while the machine sleeps",
  async (t) => {
    const { clock, lease, server } = await start(t);
    clock.sleepMachine(3_600_000);
    server.takeOver("another");
    await t.rejects(lease.confirm(never), { code: "OwnershipLost" });
  },
);

await tap.test("RunLease.confirm() gives up after too long without progress, with the last error", async (t) => {
  const { clock, lease, server } = await start(t);
  server.state = "refusing";
  await clock.advance(15_000);
  const confirmed = watch(lease.confirm(never));
  await clock.advance(1_000_000);
  t.match(confirmed(), { code: "RetryBudgetExceeded", message: /connection refused/ });
});

await tap.test("RunLease.confirm() ends with the reason of its signal", async (t) => {
  const { clock, lease, server } = await start(t);
  server.state = "hanging";
  await clock.advance(15_000);
  const abort = new AbortController();
  const confirmed = watch(lease.confirm(abort.signal));
  await clock.advance(1_000);
  abort.abort(new KsvmError("Interrupted", "Ctrl-C"));
  await clock.advance(0);
  t.match(confirmed(), { code: "Interrupted" });
});

await tap.test("RunLease.confirm() does not pass a refusal off as one of the request that waits for it", async (t) => {
  const { clock, lease, server } = await start(t);
  server.state = 403;
  await clock.advance(15_000);
  const error: unknown = await lease.confirm(never).catch((thrown: unknown) => thrown);
  t.match(error, { name: "KsvmError", code: "OwnershipLost", message: /cannot be renewed/ });
});

await tap.test("a renewal that hangs is ended after ten seconds and tried again after two", async (t) => {
  const { clock, lease, server } = await start(t);
  server.state = "hanging";
  await clock.advance(4_000);
  const before = server.seen.length;
  await clock.advance(12_000);
  t.equal(server.seen.length, before + 1);
  const saved = watch(lease.saveCheckpoint("page 1"));
  server.state = "up";
  await clock.advance(12_000);
  t.equal(saved(), "done", "writes that were queued behind it get their turn");
  t.equal(lease.checkpoint, "page 1");
});

await tap.test("a write whose answer was lost is found to be ours", async (t) => {
  const { clock, lease, server } = await start(t);
  server.state = "deaf";
  await clock.advance(12_000);
  const saved = watch(lease.saveCheckpoint("page 1"));
  server.state = "up";
  await clock.advance(5_000);
  t.equal(saved(), "done");
  await lease.confirm(never);
  t.equal(server.lease?.metadata.annotations?.[CHECKPOINT_ANNOTATION], "page 1");
});

await tap.test(
  "RunLease.confirm() throws where its replica does not lead, although nobody took the Lease",
  async (t) => {
    let isLeading = true;
    const assertLeading = (): void => {
      if (!isLeading) throw new KsvmError("OwnershipLost", "another replica leads");
    };
    const { clock, lease, server } = await start(t, { assertLeading });
    await lease.confirm(never);
    isLeading = false;
    await t.rejects(lease.confirm(never), { code: "OwnershipLost", message: "another replica leads" });
    isLeading = true;
    server.state = 503;
    await clock.advance(15_000);
    const confirmed = watch(lease.confirm(never));
    isLeading = false;
    server.state = "up";
    await clock.advance(5_000);
    t.match(confirmed(), { message: "another replica leads" }, "it waited for a renewal");
  },
);

await tap.test("RunLease.confirm() throws where the Lease was deleted", async (t) => {
  const { clock, lease, server } = await start(t);
  server.lease = undefined;
  await clock.advance(5_000);
  await t.rejects(lease.confirm(never), { code: "OwnershipLost", message: /another client deleted or released it/ });
});

await tap.test("RunLease.confirm() and saveCheckpoint() keep to the limits of the attempt that waits", async (t) => {
  const { clock, lease, retrier, server } = await start(t);
  server.failing = "writes";
  server.state = 503;
  await clock.advance(15_000);
  const attempt = retrier.with({ maxFreezeIdleMs: 20_000 });
  const waits = [
    watch(lease.confirm(never, attempt)),
    watch(lease.saveCheckpoint("page 1", { retrier: attempt, signal: never })),
  ];
  await clock.advance(15_000);
  t.same(
    waits.map((state) => state()),
    ["pending", "pending"],
  );
  await clock.advance(30_000);
  for (const state of waits) {
    t.match(state(), {
      name: "WaitingForOthers",
      stuckOn: { kind: "lease" },
      message: /Cannot continue: Lease "kube-system\/ksvm-migrate.widgets" cannot be renewed: .* 503/,
    });
  }
  t.match(await lease.probe(never), { status: 503 }, "the probe repeats what failed");
  server.state = "up";
  t.equal(await lease.probe(never), undefined);
  server.takeOver("another");
  await t.rejects(lease.probe(never), { code: "OwnershipLost" }, "nothing is left to wait for");
});

await tap.test("RunLease.release() gives up after half a minute: the Lease expires by itself", async (t) => {
  const { clock, lease, server } = await start(t);
  server.state = 503;
  const released = watch(lease.release({ keepCheckpoint: true }, never));
  await clock.advance(20_000);
  t.equal(released(), "pending");
  await clock.advance(15_000);
  t.match(released(), { code: "ServerUnreachable", message: /30 s/ });
});

await tap.test("RunLease.release() never says that it may be tried again until it works", async (t) => {
  const { clock, lease, server } = await start(t, { maxIdleMs: 5_000 });
  server.state = 503;
  const released = watch(lease.release({ keepCheckpoint: true }, never));
  await clock.advance(20_000);
  t.match(released(), { code: "ServerUnreachable", message: /no progress for 5 s/ });
});

await tap.test("RunLease.release() does not give up where a void checkpoint would stay", async (t) => {
  const { clock, interrupt, lease, server } = await start(t);
  await lease.saveCheckpoint("page 1");
  server.state = 503;
  lease.voidCheckpoint().catch(() => undefined);
  await clock.advance(1_000);
  interrupt();
  const released = watch(lease.release({ keepCheckpoint: true }, never));
  await clock.advance(120_000);
  t.equal(released(), "pending");
  server.state = "up";
  await clock.advance(60_000);
  t.equal(released(), "done");
  t.equal(server.lease, undefined);
});

await tap.test(
  "no run resumes at a checkpoint that could not be taken back, and the failure is no warning",
  async (t) => {
    const { clock, lease, retrier, server } = await start(t);
    await lease.saveCheckpoint("page 7");
    server.state = 422;
    await t.rejects(lease.voidCheckpoint());
    const events: string[] = [];
    const cleanup = new Cleanup({
      clock,
      emit: (event) => void events.push("message" in event ? event.message : event.type),
    });
    deferRelease(cleanup, lease, () => ({ keepCheckpoint: true }));
    const cleaned = t.rejects(
      cleanup.after(() => Promise.resolve()),
      { code: "CleanupFailed", message: /its checkpoint is void: delete the Lease/ },
    );
    for (let second = 0; second < 60; second++) await clock.advance(1_000);
    await cleaned;
    t.match(events, [/; trying again until it works$/]);
    t.equal(events.length, 1);
    server.state = "up";
    const { client } = server;
    const ref = { namespace: "kube-system", name: "ksvm-migrate.widgets", identity: "me" };
    const next = await RunLease.acquire({ client, clock, retrier, ...ref, signal: never });
    t.equal(server.lease?.metadata.annotations?.[CHECKPOINT_ANNOTATION], "", "taking the Lease takes it back");
    t.equal(next.checkpoint, undefined);
    await next.saveCheckpoint("page 8");
    t.equal(next.checkpoint, "page 8");
    await next.release({ keepCheckpoint: false }, never);
  },
);

await tap.test("no run resumes at a checkpoint whose write arrived unseen before it became void", async (t) => {
  const { clock, lease, retrier, server } = await start(t);
  await lease.saveCheckpoint("page 7");
  const attempt = new AbortController();
  server.state = "deaf";
  const saved = watch(lease.saveCheckpoint("page 8", { retrier, signal: attempt.signal }));
  await clock.advance(10);
  attempt.abort(new KsvmError("WatchFailed", "the attempt is over"));
  await clock.advance(0);
  t.match(saved(), { code: "WatchFailed" });
  server.state = 422;
  await t.rejects(lease.voidCheckpoint());
  server.state = "up";
  t.equal(server.lease?.metadata.annotations?.[CHECKPOINT_ANNOTATION], "page 8", "it is there");
  const ref = { namespace: "kube-system", name: "ksvm-migrate.widgets", identity: "me" };
  const next = await RunLease.acquire({ client: server.client, clock, retrier, ...ref, signal: never });
  t.equal(next.checkpoint, undefined);
  t.equal(server.lease?.metadata.annotations?.[CHECKPOINT_ANNOTATION], "", "taking the Lease takes it back");
  await next.release({ keepCheckpoint: true }, never);
});

await tap.test("a checkpoint whose write waits does not land once the checkpoint is void", async (t) => {
  const { clock, lease, server } = await start(t);
  server.state = 503;
  const late = watch(lease.saveCheckpoint("page 7"));
  await clock.advance(20_000);
  t.equal(late(), "pending");
  const voided = watch(lease.voidCheckpoint());
  server.state = "up";
  await clock.advance(120_000);
  t.same([late(), voided()], ["done", "done"]);
  t.equal(server.lease?.metadata.annotations?.[CHECKPOINT_ANNOTATION], "");
  await lease.saveCheckpoint("page 1");
  t.equal(lease.checkpoint, "page 1", "one of the rewrite that began after that counts");
});

await tap.test("RunLease.assertNotTakenOver() finds out at once, and takes an outage for no", async (t) => {
  const { lease, server } = await start(t);
  await lease.assertNotTakenOver(never);
  server.state = "refusing";
  await lease.assertNotTakenOver(never);
  server.state = "up";
  server.takeOver("another");
  await t.rejects(lease.assertNotTakenOver(never), { code: "OwnershipLost" });
});

await tap.test("RunLease.release() keeps the checkpoint where there is something to resume", async (t) => {
  const { lease, server } = await start(t);
  await lease.saveCheckpoint("page 1");
  await lease.release({ keepCheckpoint: true }, never);
  t.match(server.lease, {
    spec: { holderIdentity: null },
    metadata: { annotations: { [CHECKPOINT_ANNOTATION]: "page 1" } },
  });
});

await tap.test("RunLease.release() leaves a Lease as that of a dead run where that is asked for", async (t) => {
  for (const isVoid of [false, true]) {
    const { interrupt, lease, server } = await start(t);
    await lease.saveCheckpoint("page 1");
    if (isVoid) {
      interrupt();
      await t.rejects(lease.voidCheckpoint());
    }
    await lease.release({ keepCheckpoint: true, keepHolder: true }, never);
    const annotations = { [CHECKPOINT_ANNOTATION]: isVoid ? "" : "page 1" };
    t.match(server.lease, { spec: { holderIdentity: "me" }, metadata: { annotations } }, "no void checkpoint stays");
    t.notOk(lease.isVoid);
  }
});

await tap.test(
  "RunLease.release() also gives up a Lease that a write of ours moved whose answer was lost",
  async (t) => {
    const { clock, lease, server } = await start(t);
    server.state = "deaf";
    await clock.advance(5_000);
    server.state = "up";
    const released = lease.release({ keepCheckpoint: false }, never);
    await clock.advance(1_000);
    await released;
    t.equal(server.lease, undefined);
  },
);

for (const outage of OUTAGES) {
  await tap.test(
    `Ctrl-C during voidCheckpoint() while the API server is ${outage}: a void checkpoint stays void`,
    async (t) => {
      const { clock, interrupt, lease, server } = await start(t);
      await lease.saveCheckpoint("page 1");
      server.state = outage;
      const voided = watch(lease.voidCheckpoint());
      await clock.advance(3_000);
      t.equal(voided(), "pending");
      interrupt();
      await clock.advance(0);
      t.match(voided(), { code: "Interrupted" });
      server.state = "up";
      const released = lease.release({ keepCheckpoint: true }, never);
      await clock.advance(1_000);
      await released;
      t.equal(server.lease, undefined, "nobody may resume there: the Lease is deleted");
    },
  );
}

await tap.test("voidCheckpoint() outlasts an outage, and a checkpoint after it counts", async (t) => {
  const { clock, lease, server } = await start(t);
  await lease.saveCheckpoint("page 1");
  server.state = "hanging";
  const voided = watch(lease.voidCheckpoint());
  await clock.advance(60_000);
  server.state = "up";
  await clock.advance(60_000);
  t.equal(voided(), "done");
  t.equal(server.lease?.metadata.annotations?.[CHECKPOINT_ANNOTATION], "");
  await lease.saveCheckpoint("page 1 again");
  await lease.release({ keepCheckpoint: true }, never);
  t.equal(server.lease?.metadata.annotations?.[CHECKPOINT_ANNOTATION], "page 1 again");
});

await tap.test("RunLease ends a run when etcd was restored from a backup that was made during it", async (t) => {
  const { clock, lease, server } = await start(t);
  await lease.saveCheckpoint("page 1");
  const restore = server.backup();
  await clock.advance(9_000);
  await lease.saveCheckpoint("page 2");
  restore();
  await clock.advance(12_000);
  const lost = { code: "OwnershipLost", message: /restored from a backup/ };
  await t.rejects(lease.confirm(never), lost, "what this run rewrote since is in its old version again");
  t.equal(server.lease?.metadata.annotations?.[CHECKPOINT_ANNOTATION], "page 1", "which is as old as the objects");
});

await tap.test(
  "RunLease.renew() finds out at once that etcd was restored, however lately it was confirmed",
  async (t) => {
    const { clock, lease, server } = await start(t);
    await lease.saveCheckpoint("page 1");
    const restore = server.backup();
    await lease.saveCheckpoint("page 2");
    restore();
    await lease.confirm(never);
    t.pass("nobody can have taken it over yet");
    const renewed = watch(lease.renew(never));
    await clock.advance(1_000);
    t.match(renewed(), { code: "OwnershipLost", message: /restored from a backup/ });
  },
);

await tap.test(
  "RunLease finds out that etcd was restored also where another client has written the Lease since",
  async (t) => {
    const { clock, lease, server } = await start(t);
    await lease.saveCheckpoint("page 1");
    const restore = server.backup();
    await clock.advance(5_000);
    await lease.saveCheckpoint("page 2");
    restore();
    const { metadata, spec } = server.lease ?? { metadata: {} as never };
    // As after --bump-revision.
    server.lease = {
      metadata: { ...metadata, labels: { edited: "1" }, resourceVersion: "1000000" },
      ...(spec && { spec }),
    };
    const renewed = watch(lease.renew(never));
    await clock.advance(1_000);
    t.match(renewed(), { code: "OwnershipLost", message: /restored from a backup/ });
  },
);

for (const outage of OUTAGES) {
  await tap.test(`RunLease.renew() waits while the API server is ${outage}, and then resolves`, async (t) => {
    const { clock, lease, server } = await start(t);
    server.state = outage;
    const renewed = watch(lease.renew(never));
    await clock.advance(120_000);
    t.equal(renewed(), "pending");
    server.state = "up";
    await clock.advance(60_000);
    t.equal(renewed(), "done");
  });
}

await tap.test("a run that finds out by giving its Lease up that etcd was restored has no result", async (t) => {
  const { clock, lease, server } = await start(t);
  await lease.saveCheckpoint("page 1");
  const restore = server.backup();
  await lease.saveCheckpoint("page 2");
  const cleanup = new Cleanup({ clock, emit: () => undefined });
  deferRelease(cleanup, lease, () => ({ keepCheckpoint: false }));
  const result = watch(
    cleanup.after(async () => {
      restore();
      return "migrated";
    }),
  );
  await clock.advance(1_000);
  t.match(result(), { code: "OwnershipLost", message: /restored from a backup/ });
});

await tap.test(
  "a run whose Lease is gone when it gives it up has no result, as after a restore from before it",
  async (t) => {
    const { clock, lease, server } = await start(t);
    const cleanup = new Cleanup({ clock, emit: () => undefined });
    deferRelease(cleanup, lease, () => ({ keepCheckpoint: false }));
    const result = watch(
      cleanup.after(async () => {
        server.lease = undefined;
        return "migrated";
      }),
    );
    await clock.advance(1_000);
    t.match(result(), { code: "OwnershipLost", message: /another client deleted or released it/ });
  },
);

for (const state of ["deaf", 503] as const) {
  await tap.test(
    `a run keeps its result where an API server that is ${state} may have deleted its Lease`,
    async (t) => {
      const { clock, lease, server } = await start(t);
      const cleanup = new Cleanup({ clock, emit: () => undefined });
      deferRelease(cleanup, lease, () => ({ keepCheckpoint: false }));
      server.state = state;
      const result = watch(cleanup.after(async () => "migrated"));
      await clock.advance(100);
      server.lease = undefined;
      server.state = "up";
      await clock.advance(60_000);
      t.equal(result(), "done");
    },
  );
}
