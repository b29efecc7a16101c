import tap from "tap";
import type { ApiClient } from "../../src/kube/client.ts";
import { TransportError } from "../../src/kube/errors.ts";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import { type SettleOptions, settle } from "../../src/apiservers/settle-wait.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";

const SETTLE_MS = 65_000;
/** API times are cut to the second. */
const RESOLUTION_MS = 1_000;

const VERSION = { gitVersion: "v1.36.3" };

interface Setting {
  readonly clock: FakeClock;
  readonly events: MigrationEvent[];
  readonly paths: string[];
  readonly seen: SeenServers;
  /** What a proxy answers instead, by path. */
  readonly bodies: Map<string, unknown[]>;
  readonly settle: (options: Omit<SettleOptions, "apiServers">) => Promise<void>;
}

/** One API server, which takes `tookMs` for the answer to the n-th request. */
function setting(
  tookMs: (n: number) => number,
  changedAgoMs = 3_600_000,
  clock = new FakeClock(),
  { convergenceTimeoutMs = 300_000, signal = new AbortController().signal } = {},
): Setting {
  const seen = new SeenServers(clock);
  const time = new Date(clock.now() - changedAgoMs).toISOString();
  const fieldsV1 = { "f:spec": { "f:versions": {} } };
  const managedFields = [{ manager: "kubectl", operation: "Update", time, fieldsV1 } as const];
  const crd = crdWith({ metadata: { creationTimestamp: time, managedFields } });
  const events: MigrationEvent[] = [];
  const paths: string[] = [];
  const bodies = new Map<string, unknown[]>();
  const request = async ({ path }: { path: string }): Promise<unknown> => {
    clock.advance(tookMs(paths.push(path)));
    const queue = bodies.get(path) ?? [];
    const body = queue.length > 0 ? queue.shift() : path === "/version" ? VERSION : crd;
    return { status: 200, body, serverTime: clock.now() };
  };
  const client = { transport: { server: "https://a", request } } as unknown as ApiClient;
  const context = {
    clock,
    emit: (event: MigrationEvent) => events.push(event),
    options: { settleMs: SETTLE_MS, convergenceTimeoutMs },
    retrier: new Retrier({ clock, random: () => 0.5 }),
    seen,
    signal,
  } as unknown as RunContext;
  return {
    bodies,
    clock,
    events,
    paths,
    seen,
    settle: (options) => settle(context, { ...options, apiServers: [client] }),
  };
}

const QUICK = (): number => 10;
const OPTIONS = { crdName: "widgets.example.com", lagged: false };

await tap.test("settle() waits for nothing where the last change is long past", async (t) => {
  const { clock, events, settle: run } = setting(QUICK);
  await run(OPTIONS);
  t.ok(clock.monotonic() < 1_000);
  t.same(events, []);
});

await tap.test("settle() waits for the settle time from the first sight of a change", async (t) => {
  const { clock, events, settle: run } = setting(QUICK, 10_000);
  await run(OPTIONS);
  t.ok(clock.monotonic() >= SETTLE_MS + RESOLUTION_MS);
  t.ok(clock.monotonic() < SETTLE_MS + 2 * RESOLUTION_MS);
  t.equal(events.length, 1, "said once");
});

await tap.test(
  "settle() counts from now where an API server lagged, or is asked about a built-in resource",
  async (t) => {
    const { clock, settle: run } = setting(QUICK);
    await run({ lagged: true });
    t.ok(clock.monotonic() >= SETTLE_MS);
  },
);

await tap.test("settle() counts from the last time an API server did not answer within five seconds", async (t) => {
  let silentUntil = 0;
  const tookMs = (n: number): number => {
    if (n !== 10) return 10;
    silentUntil = clock.monotonic() + 6_000;
    return 6_000;
  };
  const { clock, events, settle: run } = setting(tookMs, 10_000);
  await run(OPTIONS);
  t.ok(silentUntil > 0 && clock.monotonic() >= silentUntil + SETTLE_MS);
  t.match(events, [
    { type: "settling" },
    { type: "lagging", server: "https://a", reason: /6 s/ },
    { type: "settling" },
  ]);
});

await tap.test("settle() counts from an API server's silence also where the last change is long past", async (t) => {
  const { clock, settle: run } = setting((n) => (n === 1 ? 30_000 : 10));
  await run(OPTIONS);
  t.ok(clock.monotonic() >= 30_000 + SETTLE_MS + RESOLUTION_MS);
});

await tap.test("settle() gives up on an API server that keeps standing still, with its name", async (t) => {
  const { seen, settle: run } = setting(() => 6_000);
  const message = /https:\/\/a keeps standing still: .*; once it answers, wait 65 s before you run it again$/;
  await t.rejects(run(OPTIONS), { code: "NotConverged", message });
  t.ok(seen.wereSilentWithin(0), "the next run of the process knows of it");
});

await tap.test("settle() remembers a silence in a wait that is broken off", async (t) => {
  const stop = new AbortController();
  const tookMs = (n: number): number => {
    if (n === 3) stop.abort(new Error("the run ends here"));
    return n === 3 ? 30_000 : 10;
  };
  const { clock, seen, settle: run } = setting(tookMs, 10_000, new FakeClock(), { signal: stop.signal });
  await t.rejects(run(OPTIONS), { message: "the run ends here" });
  t.ok(seen.wereSilentWithin(1_000));
  clock.advance(3_600_000);
  seen.found();
  t.ok(seen.wereSilentWithin(1_000), "it may have lasted for longer");
});

await tap.test(
  "settle() waits for a lag that an earlier run saw, once, and not for that of another resource",
  async (t) => {
    const { clock, seen, settle: run } = setting(QUICK);
    seen.noting("gadgets.example.com").onLag();
    await run(OPTIONS);
    t.ok(clock.monotonic() < 1_000);
    seen.noting("widgets.example.com").onLag();
    await run(OPTIONS);
    t.ok(clock.monotonic() >= SETTLE_MS);
    const settledAt = clock.monotonic();
    await run(OPTIONS);
    t.ok(clock.monotonic() - settledAt < 1_000);
    t.ok(seen.lagOf("gadgets.example.com"));
  },
);

await tap.test("settle() gives up where an API server does not answer at all", async (t) => {
  const clock = new FakeClock();
  const reason = new TransportError("GET", "https://a", new Error("stop"));
  const client = { transport: { server: "https://a", request: () => Promise.reject(reason) } } as unknown as ApiClient;
  const context = {
    clock,
    emit: () => undefined,
    options: { settleMs: SETTLE_MS, convergenceTimeoutMs: 300_000 },
    retrier: new Retrier({ clock, random: () => 0.5, maxIdleMs: 1_000 }),
    signal: new AbortController().signal,
  } as unknown as RunContext;
  await t.rejects(settle(context, { lagged: false, apiServers: [client] }), { code: "RetryBudgetExceeded" });
});

for (const [title, path, crdName] of [
  ["CRD", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com", "widgets.example.com"],
  ["version", "/version", undefined],
] as const) {
  await tap.test(`settle() asks again for the ${title} where a proxy answers {}`, async (t) => {
    const { bodies, clock, paths, settle: run } = setting(QUICK);
    bodies.set(path, [{}, { metadata: {} }, null]);
    await run({ lagged: false, ...(crdName === undefined ? {} : { crdName }) });
    t.equal(paths.length, 4, "three of a proxy, and the one of the API server");
    t.ok(clock.monotonic() < SETTLE_MS);
  });
}

await tap.test("settle() never ends by the answers of a proxy", async (t) => {
  const { bodies, settle: run } = setting(QUICK);
  bodies.set(
    "/version",
    Array.from({ length: 100_000 }, () => ({})),
  );
  await t.rejects(run({ lagged: false }), { code: "RetryBudgetExceeded", message: /names no version of Kubernetes/ });
});

await tap.test("settle() waits for all of the settle time after a suspension of machines in its midst", async (t) => {
  /** All clocks of the day jump, as those of an API server on the same machine. */
  class SuspendedClock extends FakeClock {
    wokeAt = Number.NaN;

    override now(): number {
      return super.now() + (this.monotonic() >= 20_000 ? 3_600_000 : 0);
    }

    override async sleep(ms: number, within?: AbortSignal): Promise<void> {
      await super.sleep(ms, within);
      if (Number.isNaN(this.wokeAt) && this.monotonic() >= 20_000) {
        this.wokeAt = this.monotonic();
      }
    }
  }
  const clock = new SuspendedClock();
  const { settle: run } = setting(QUICK, 10_000, clock);
  await run(OPTIONS);
  t.ok(clock.monotonic() >= clock.wokeAt + SETTLE_MS, `${clock.monotonic()} ms, woken at ${clock.wokeAt}`);
});

await tap.test(
  "settle() waits after a suspension of machines between the look for API servers and the wait",
  async (t) => {
    /** The clocks of this machine and of the API server, an hour after the storage version changed. */
    const { clock, settle: run } = setting(QUICK, 3_610_000);
    const wallOffset = clock.now() - clock.monotonic() - 3_600_000;
    await run({ ...OPTIONS, wallOffset });
    t.ok(clock.monotonic() >= SETTLE_MS, `${clock.monotonic()} ms`);
  },
);

/** Jumps by 6 s every 10 s, or as often as `everyMs` says, of the first ones. */
class JumpingClock extends FakeClock {
  readonly #jumps: number;
  readonly #everyMs: number;

  constructor(jumps: number, everyMs = 10_000) {
    super();
    this.#jumps = jumps;
    this.#everyMs = everyMs;
  }

  override now(): number {
    return super.now() + Math.min(this.#jumps, Math.floor(this.monotonic() / this.#everyMs)) * 6_000;
  }
}

await tap.test(
  "settle() waits through one jump of the clock of this machine, however late it is noticed",
  async (t) => {
    const clock = new JumpingClock(1);
    // All of the time that there is has passed when the jump is noticed.
    const { settle: run } = setting(QUICK, 10_000, clock, { convergenceTimeoutMs: 0 });
    await run(OPTIONS);
    t.ok(clock.monotonic() >= 2 * SETTLE_MS, `${clock.monotonic()} ms`);
    t.ok(clock.monotonic() < 3 * SETTLE_MS, `${clock.monotonic()} ms`);
  },
);

await tap.test("settle() gives up where the clock of this machine keeps jumping", async (t) => {
  const { settle: run } = setting(QUICK, 10_000, new JumpingClock(Number.POSITIVE_INFINITY));
  const jumped = /machine .* keeps standing still, or its clock keeps jumping, by more than 5 s, [3-9] times while/;
  await t.rejects(run(OPTIONS), { code: "ClockJumps", message: jumped });
});

await tap.test("settle() holds a freeze for no longer than it may where the clock keeps jumping", async (t) => {
  const clock = new JumpingClock(Number.POSITIVE_INFINITY, 60_000);
  const { settle: run } = setting(QUICK, 10_000, clock);
  await t.rejects(run({ ...OPTIONS, freezeMs: 300_000 }), { code: "ClockJumps" });
  t.ok(clock.monotonic() <= 300_000, `${clock.monotonic()} ms`);
});

await tap.test("settle() counts no jump of the clock that was before it waited", async (t) => {
  // A jump before, and two that are noticed in the wait, which has no time left at the second one.
  const clock = new JumpingClock(2, 60_000);
  const { settle: run } = setting(QUICK, 10_000, clock, { convergenceTimeoutMs: 0 });
  await run({ ...OPTIONS, wallOffset: clock.now() - clock.monotonic() - 3_600_000 });
  t.ok(clock.monotonic() >= 3 * SETTLE_MS, `${clock.monotonic()} ms`);
});

await tap.test("settle() waits through one slow answer after a jump of the clock has moved its end", async (t) => {
  const clock = new JumpingClock(1);
  const { events, settle: run } = setting((n) => (n === 40 ? 6_000 : 10), 10_000, clock, { convergenceTimeoutMs: 0 });
  await run(OPTIONS);
  t.ok(clock.monotonic() >= 2 * SETTLE_MS, `${clock.monotonic()} ms`);
  t.match(
    events.map(({ type }) => type),
    ["settling", "settling", "lagging", "settling"],
  );
});

/** Of a machine whose monotonic clock goes on while it is suspended, as on macOS: once, in a pause. */
class SleepyClock extends FakeClock {
  #hasSlept = false;

  override async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    await super.sleep(ms, signal);
    if (!this.#hasSlept && this.monotonic() > 30_000) {
      this.#hasSlept = true;
      this.advance(1_200_000);
    }
  }
}

await tap.test("settle() waits again after a pause of its own that took far too long", async (t) => {
  const clock = new SleepyClock();
  const { settle: run } = setting(QUICK, 10_000, clock);
  await run(OPTIONS);
  t.ok(clock.monotonic() >= 30_000 + 1_200_000 + SETTLE_MS, `${clock.monotonic()} ms`);
});
