import tap from "tap";
import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import { runFactory } from "../../src/controller/run-factory.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { sendJson, startServer } from "../kube/local-server.ts";
import { ManualClock } from "../manual-clock.ts";

const SETTLE_MS = 65_000;
const { signal } = new AbortController();
/** It has no identity Leases. */
const server = await startServer(tap, ({ path }, response) =>
  sendJson(response, 200, path === "/version" ? { gitVersion: "v1.36.3" } : { items: [] }),
);

/** What makes the runs of one leadership: the API server is named, so no run looks for others. */
function factory(clock: ManualClock, seen: SeenServers) {
  return runFactory({
    client: new ApiClient(server.transport()),
    clock,
    seen,
    options: {
      settleMs: SETTLE_MS,
      pageSize: 500,
      guard: "webhook",
      convergenceTimeoutMs: 20_000,
      proofTimeoutMs: 20_000,
      maxFreezeIdleMs: 300_000,
      leaseNamespace: "ksvm-system",
      crdMode: "manage",
    },
    apiserverEndpoints: [server.transport().server],
    maxInFlight: 8,
    maxQps: Number.POSITIVE_INFINITY,
    maxIdleMs: 900_000,
    webhookWaitMs: 900_000,
  });
}

function leadership(clock: ManualClock, seen: SeenServers) {
  const openRun = factory(clock, seen);
  /** Whether a late write must be waited for, as a run finds that begins now. */
  return async (): Promise<boolean | undefined> => {
    const run = openRun({
      resource: "widgets.example.com",
      identity: "test",
      purpose: "test",
      force: false,
      emit: () => undefined,
      onPageDone: () => Promise.resolve(),
      signal,
    });
    try {
      return (await run.context.findApiServers(signal)).silent;
    } finally {
      await run.close();
    }
  };
}

await tap.test(
  "a run waits for late writes where machines were suspended before it, after an earlier run",
  async (t) => {
    const clock = new ManualClock();
    const isSilent = leadership(clock, new SeenServers(clock));
    t.equal(await isSilent(), false);
    clock.sleepMachine(1_200_000);
    await clock.advance(30_000);
    t.equal(await isSilent(), true, "the clocks jumped between the two runs");
    await clock.advance(SETTLE_MS);
    t.equal(await isSilent(), true, "it counts from when it was noticed");
    await clock.advance(1);
    t.equal(await isSilent(), false, "what was under way has landed");
  },
);

await tap.test("a run waits for late writes where a suspension of machines ended the leadership before", async (t) => {
  const clock = new ManualClock();
  const seen = new SeenServers(clock);
  t.equal(await leadership(clock, seen)(), false);
  clock.sleepMachine(1_200_000);
  await clock.advance(15_000);
  const later = leadership(clock, seen);
  t.equal(await later(), true);
  t.equal(await later(), true, "so does the next run, at the same time");
  await clock.advance(SETTLE_MS + 1);
  t.equal(await later(), false, "one suspension is waited for once");
});

await tap.test("a run waits for late writes where machines were suspended before the first run", async (t) => {
  const clock = new ManualClock();
  const seen = new SeenServers(clock);
  clock.sleepMachine(1_200_000);
  t.equal(await leadership(clock, seen)(), true, "after the process began");
});

await tap.test(
  "a run waits for no late writes where the clock was set by a few seconds between two runs",
  async (t) => {
    const clock = new ManualClock();
    const isSilent = leadership(clock, new SeenServers(clock));
    for (const ms of [4_000, 4_000, -4_000]) {
      clock.sleepMachine(ms);
      t.equal(await isSilent(), false, `${ms} ms`);
    }
    clock.sleepMachine(-6_000);
    t.equal(await isSilent(), true, "negative control: further than that");
  },
);

await tap.test("a run that re-encrypts freezes nothing, and waits for late writes by itself", async (t) => {
  const clock = new ManualClock();
  const open = factory(clock, new SeenServers(clock));
  const parts = { resource: "widgets.example.com", identity: "test", purpose: "test", force: false, signal };
  const contextOf = async (reencryption?: { readonly expectedConfig?: string }) => {
    const run = open({ ...parts, reencryption, emit: () => undefined, onPageDone: () => Promise.resolve() });
    await run.close();
    return run.context;
  };
  const [plain, any, again] = await Promise.all([undefined, {}, {}].map(contextOf));
  t.match(plain?.options, { crdMode: "manage", force: false });
  t.equal(plain?.encryption, undefined);
  t.match(any?.options, { crdMode: "rewrite", force: true });
  t.ok(any?.encryption?.readsMetrics);
  t.not(any?.encryption, again?.encryption);
});
