import { setImmediate as turn } from "node:timers/promises";
import tap from "tap";
import { KsvmError } from "../../src/errors.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import { LeaderElector, type LeaderElectorOptions } from "../../src/lease/leader-election.ts";
import { ManualClock } from "../manual-clock.ts";

interface StoredLease {
  metadata: { uid: string; resourceVersion: string };
  spec: Record<string, unknown>;
}

interface LeasePatch {
  body: { metadata: { uid: string; resourceVersion: string }; spec: object };
}

/** One Lease with the API server's preconditions; requests can be made to fail or to hang for one of its clients. */
class LeaseStore {
  lease: StoredLease | undefined;
  readonly writers: string[] = [];
  #version = 0;

  client(fault: () => "ok" | "down" | "hangs" | "answerLost" = () => "ok"): ApiClient {
    const through = async <T>(signal: AbortSignal | undefined, work: () => T): Promise<T> => {
      await turn();
      const kind = fault();
      if (kind === "hangs") {
        await new Promise((_, reject) => {
          signal?.addEventListener("abort", () => reject(signal.reason as Error));
        });
      }
      if (kind === "down") throw new TransportError("PATCH lease", "https://server", new Error("refused"));
      const result = work();
      if (kind === "answerLost") throw new TransportError("PATCH lease", "https://server", new Error("reset"));
      return result;
    };
    return {
      find: (_: unknown, __: unknown, { signal }: { signal?: AbortSignal }) =>
        through(signal, () => structuredClone(this.lease)),
      create: (_: unknown, { spec }: { spec: Record<string, unknown> }, { signal }: { signal?: AbortSignal }) =>
        through(signal, () => {
          if (this.lease !== undefined) throw new ApiError("POST lease", 409, { text: "exists" });
          return this.#store(spec);
        }),
      patch: (_: unknown, __: unknown, { body }: LeasePatch, { signal }: { signal?: AbortSignal }) =>
        through(signal, () => {
          if (body.metadata.resourceVersion !== this.lease?.metadata.resourceVersion) {
            throw new ApiError("PATCH lease", 409, { text: "modified" });
          }
          return this.#store({ ...this.lease.spec, ...body.spec });
        }),
    } as unknown as ApiClient;
  }

  #store(spec: Record<string, unknown>): StoredLease {
    this.lease = { metadata: { uid: "u", resourceVersion: String(++this.#version) }, spec };
    this.writers.push(String(spec["holderIdentity"]));
    return structuredClone(this.lease);
  }
}

/** A replica that leads until it is told to stop. */
function replica(
  store: LeaseStore,
  clock: ManualClock,
  identity: string,
  options: Partial<LeaderElectorOptions> & { readonly workAfterEnd?: () => Promise<void> } = {},
) {
  const { workAfterEnd, ...rest } = options;
  const stop = new AbortController();
  const state = { isLeading: false, changes: [] as boolean[], reason: undefined as unknown };
  const common = { clock, namespace: "ns", name: "lease", identity, random: () => 0 };
  const elector = new LeaderElector({ client: store.client(), ...common, ...rest });
  const ended = elector.run(
    stop.signal,
    async (signal) => {
      state.isLeading = true;
      await new Promise<void>((resolve) => {
        signal.addEventListener("abort", () => resolve(), { once: true });
      });
      state.isLeading = false;
      state.reason = signal.reason;
      await workAfterEnd?.();
    },
    (isLeading) => state.changes.push(isLeading),
  );
  return { elector, ended, state, stop: () => stop.abort(new KsvmError("Interrupted", "stop")) };
}

await tap.test(
  "LeaderElector leads at once where no replica holds the Lease, and renews every retry period",
  async (t) => {
    const [store, clock] = [new LeaseStore(), new ManualClock()];
    const a = replica(store, clock, "a");
    await clock.advance(0);
    t.ok(a.state.isLeading);
    t.match(store.lease?.spec, { holderIdentity: "a", leaseDurationSeconds: 15, leaseTransitions: 0 });
    const acquired = store.lease?.spec["acquireTime"];
    await clock.advance(20_000);
    t.equal(store.writers.length, 11);
    t.match(store.lease?.spec, {
      acquireTime: acquired,
      renewTime: "2026-01-01T00:00:20.000000Z",
      leaseTransitions: 0,
    });
    t.equal(a.elector.key, "ns/lease");
    a.stop();
    await a.ended;
  },
);

await tap.test("LeaderElector waits while another renews, whatever the times in the Lease say", async (t) => {
  const [store, clock] = [new LeaseStore(), new ManualClock()];
  const a = replica(store, clock, "a");
  await clock.advance(0);
  const b = replica(store, clock, "b");
  for (let minute = 0; minute < 10; minute++) {
    await clock.advance(6_000);
    // A leader whose clock is hours behind is alive as long as its Lease changes.
    if (store.lease !== undefined) store.lease.spec["renewTime"] = `2020-01-01T00:00:0${minute}.000000Z`;
  }
  t.ok(a.state.isLeading);
  t.same(b.state.changes, []);
  a.stop();
  b.stop();
  await Promise.all([a.ended, b.ended]);
});

await tap.test("LeaderElector takes over from a leader that died, after the whole lease duration", async (t) => {
  const [store, clock] = [new LeaseStore(), new ManualClock()];
  let isDead = false;
  const a = replica(store, clock, "a", { client: store.client(() => (isDead ? "hangs" : "ok")) });
  await clock.advance(0);
  const b = replica(store, clock, "b");
  await clock.advance(5_000);
  isDead = true;
  await clock.advance(13_000);
  t.notOk(b.state.isLeading, "13 s after the last renewal");
  await clock.advance(7_000);
  t.ok(b.state.isLeading, "20 s after");
  t.match(store.lease?.spec, { holderIdentity: "b", leaseTransitions: 1 });
  t.equal(b.elector.replaced, "a");
  t.notOk(a.state.isLeading);
  a.stop();
  b.stop();
  await Promise.all([a.ended, b.ended]);
});

// The runs of who is replaced count as dead: another leader takes their Leases without a look.
await tap.test("LeaderElector does not take for dead whom it replaced earlier, and who led since", async (t) => {
  const [store, clock] = [new LeaseStore(), new ManualClock()];
  let cut = "";
  const clientOf = (name: string): ApiClient => store.client(() => (cut === name ? "down" : "ok"));
  const a = replica(store, clock, "a", { client: clientOf("a") });
  await clock.advance(0);
  const b = replica(store, clock, "b", { client: clientOf("b") });
  cut = "a";
  await clock.advance(25_000);
  t.equal(b.elector.replaced, "a");
  cut = "b";
  await clock.advance(35_000);
  t.ok(a.state.isLeading);
  // A user deletes the Lease, and B is the first to see that.
  cut = "a";
  store.lease = undefined;
  await clock.advance(5_000);
  t.ok(b.state.isLeading);
  t.ok(a.state.isLeading, "it has not noticed yet");
  t.equal(b.elector.replaced, undefined);
  a.stop();
  b.stop();
  await clock.advance(10_000);
  await Promise.all([a.ended, b.ended]);
});

for (const fault of ["down", "hangs"] as const) {
  await tap.test(`LeaderElector stops leading before anybody else can, where the API server ${fault}`, async (t) => {
    const [store, clock] = [new LeaseStore(), new ManualClock()];
    let isCut = false;
    const errors: unknown[] = [];
    const a = replica(store, clock, "a", {
      client: store.client(() => (isCut ? fault : "ok")),
      onError: (error) => errors.push(error),
    });
    await clock.advance(0);
    const b = replica(store, clock, "b");
    await clock.advance(4_000);
    isCut = true;
    let both = 0;
    for (let ms = 0; ms < 20_000; ms += 100) {
      await clock.advance(100);
      both += a.state.isLeading && b.state.isLeading ? 1 : 0;
      t.equal(a.elector.isLeading, a.state.isLeading);
    }
    t.equal(both, 0, "there were never two");
    t.ok(b.state.isLeading);
    t.match(a.state.reason, { code: "OwnershipLost" });
    t.throws(() => a.elector.assertLeading(), { code: "OwnershipLost" });
    t.same(a.state.changes, [true, false]);
    t.ok(errors.length > 0);
    isCut = false;
    await clock.advance(30_000);
    t.notOk(a.state.isLeading, "it waits like everybody else");
    a.stop();
    b.stop();
    await Promise.all([a.ended, b.ended]);
  });
}

await tap.test("LeaderElector goes on where a renewal fails once, or its answer is lost", async (t) => {
  const [store, clock] = [new LeaseStore(), new ManualClock()];
  const faults: ("down" | "answerLost" | "ok")[] = ["ok", "ok", "down", "answerLost", "ok"];
  const a = replica(store, clock, "a", { client: store.client(() => faults.shift() ?? "ok") });
  await clock.advance(60_000);
  t.ok(a.state.isLeading);
  t.same(a.state.changes, [true]);
  a.stop();
  await a.ended;
});

await tap.test("LeaderElector stops at once when it sees another holder", async (t) => {
  const [store, clock] = [new LeaseStore(), new ManualClock()];
  const a = replica(store, clock, "a");
  await clock.advance(1_000);
  const lease = store.lease;
  t.ok(lease);
  store.lease = { metadata: { uid: "u", resourceVersion: "900" }, spec: { ...lease?.spec, holderIdentity: "b" } };
  await clock.advance(2_000);
  t.notOk(a.state.isLeading);
  t.equal(store.lease.spec["holderIdentity"], "b", "it does not fight for it");
  a.stop();
  await a.ended;
  t.equal(store.lease.spec["holderIdentity"], "b", "nor does it give away what is not its own");
});

await tap.test(
  "LeaderElector stops leading where its Lease went back in time or is gone, and then leads again",
  async (t) => {
    type Before = LeaseStore["lease"];
    const after: Readonly<Record<string, (backup: Before, now: Before) => Before>> = {
      "a backup was restored": (backup) => backup,
      "an older backup was restored, or another client deleted it": () => undefined,
      "another client created it again": (_, now) => now && { ...now, metadata: { uid: "v", resourceVersion: "900" } },
    };
    for (const [what, found] of Object.entries(after)) {
      const [store, clock] = [new LeaseStore(), new ManualClock()];
      const told: string[] = [];
      const a = replica(store, clock, "a", { onError: (error) => told.push(String(error)) });
      await clock.advance(4_000);
      const backup = structuredClone(store.lease);
      await clock.advance(8_000);
      store.lease = found(backup, store.lease);
      await clock.advance(2_000);
      t.match(a.state.reason, { code: "OwnershipLost" }, what);
      t.match(told, [/another client deleted it, or etcd was restored from a backup/], what);
      await clock.advance(20_000);
      t.same(a.state.changes, [true, false, true], "what it knew of the cluster may be of a past that is undone");
      a.stop();
      await a.ended;
    }
  },
);

await tap.test("LeaderElector gives the Lease up when it is told to stop, once its work has ended", async (t) => {
  const [store, clock] = [new LeaseStore(), new ManualClock()];
  const a = replica(store, clock, "a", { workAfterEnd: () => clock.sleep(20_000) });
  await clock.advance(1_000);
  const b = replica(store, clock, "b");
  await clock.advance(1_000);
  a.stop();
  await clock.advance(19_000);
  t.equal(store.lease?.spec["holderIdentity"], "a", "it renews while its work still cleans up");
  t.same(b.state.changes, []);
  await clock.advance(4_000);
  await a.ended;
  t.ok(b.state.isLeading, "the next one need not wait for the Lease to expire");
  t.equal(b.elector.replaced, undefined, "nobody was replaced");
  b.stop();
  await b.ended;
  t.match(store.lease?.spec, { holderIdentity: "", leaseDurationSeconds: 1 });
});

await tap.test("LeaderElector tells at once that it leads no more, however long its work takes to end", async (t) => {
  const [store, clock] = [new LeaseStore(), new ManualClock()];
  let isCut = false;
  const client = store.client(() => (isCut ? "down" : "ok"));
  const a = replica(store, clock, "a", { client, workAfterEnd: () => clock.sleep(60_000) });
  await clock.advance(1_000);
  isCut = true;
  await clock.advance(12_000);
  t.same(a.state.changes, [true, false]);
  isCut = false;
  await clock.advance(50_000);
  t.same(a.state.changes, [true, false], "it does not compete before its work has ended");
  await clock.advance(15_000);
  t.same(a.state.changes, [true, false, true]);
  a.stop();
  await clock.advance(60_000);
  await a.ended;
  t.same(a.state.changes, [true, false, true, false]);
});

await tap.test("LeaderElector throws what its work throws, and gives the Lease up first", async (t) => {
  const [store, clock] = [new LeaseStore(), new ManualClock()];
  const common = { clock, namespace: "ns", name: "lease", identity: "a" };
  const elector = new LeaderElector({ client: store.client(), ...common });
  const run = elector.run(new AbortController().signal, () => Promise.reject(new Error("a fault")));
  await t.rejects(run, { message: "a fault" });
  t.equal(store.lease?.spec["holderIdentity"], "");
});
