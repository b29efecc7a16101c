import * as fc from "fast-check";
import tap from "tap";
import { KsvmError } from "../../../src/errors.ts";
import { ApiError, TransportError } from "../../../src/old/kube/errors.ts";
import { MAX_BACKOFF_MS, askedPauseMs, backoffMs } from "../../../src/old/retry/backoff.ts";
import { Retrier } from "../../../src/old/retry/retrier.ts";
import { RunBudget } from "../../../src/old/retry/run-budget.ts";
import { WaitingForOthers } from "../../../src/old/retry/start-again.ts";
import { FakeClock } from "../../fake-clock.ts";
import { TEST_SEED } from "../../seed.ts";

const cases: readonly [attempt: number, random: number, retryAfter: number | undefined, delay: number][] = [
  [0, 0, undefined, 0],
  [0, 0.5, undefined, 50],
  [3, 0.5, undefined, 400],
  [100, 0.5, undefined, MAX_BACKOFF_MS / 2],
  [0, 0, 7, 7_000],
  [0, 0.5, 7, 7_050],
  [0, 0, 3_600, 120_000],
];

for (const [attempt, random, retryAfter, delay] of cases) {
  await tap.test(`backoffMs(${attempt}, ${random}, ${retryAfter}) is ${delay}`, (t) => {
    t.equal(backoffMs(attempt, random, retryAfter), delay);
    t.end();
  });
}

await tap.test("backoffMs() lies between Retry-After and 30 s more, whatever the attempt", (t) => {
  const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
  fc.assert(
    fc.property(fc.nat(), random, fc.nat(120), (attempt, share, retryAfter) => {
      const delay = backoffMs(attempt, share, retryAfter);
      return delay >= retryAfter * 1_000 && delay <= retryAfter * 1_000 + MAX_BACKOFF_MS;
    }),
    { seed: TEST_SEED },
  );
  t.end();
});

function asked(status: number, retryAfter: string, message = "busy"): number {
  return askedPauseMs(new ApiError("PATCH a", status, { retryAfter, answer: { kind: "Status", message } }));
}

await tap.test("askedPauseMs() is what an API server asks for, and not what an admission webhook says", (t) => {
  t.equal(asked(429, "7"), 7_000);
  t.equal(asked(503, "99999"), 120_000);
  t.equal(asked(429, "-7"), 0);
  t.equal(asked(429, "7", 'admission webhook "a.example.com" denied the request: busy'), 0);
  t.equal(asked(403, "7"), 0);
  t.equal(askedPauseMs(new TransportError("GET a", "https://server", new Error("reset"))), 0);
  t.end();
});

const TRANSIENT = new TransportError("GET /x", "https://server", new Error("reset"));
const random = (): number => 0.5;

/** Fails with each of `errors` in turn, then returns `done`. */
function failing(...errors: readonly Error[]): () => Promise<string> {
  const queue = [...errors];
  return async () => {
    const error = queue.shift();
    if (error !== undefined) throw error;
    return "done";
  };
}

await tap.test("Retrier.run() tries again with growing delays when the failure is transient", async (t) => {
  const clock = new FakeClock();
  const told: unknown[] = [];
  const retrier = new Retrier({ clock, random, onRetry: (error, delayMs) => told.push([error, delayMs]) });
  t.equal(await retrier.run(failing(TRANSIENT, TRANSIENT, TRANSIENT), undefined), "done");
  t.same(clock.sleeps, [50, 100, 200]);
  t.strictSame(told, [
    [TRANSIENT, 50],
    [TRANSIENT, 100],
    [TRANSIENT, 200],
  ]);
});

await tap.test("Retrier.run() waits as long as Retry-After asks", async (t) => {
  const clock = new FakeClock();
  const busy = new ApiError("GET /x", 429, { retryAfter: "3" });
  await new Retrier({ clock, random }).run(failing(busy), undefined);
  t.same(clock.sleeps, [3_050]);
});

const permanent: readonly Error[] = [
  new ApiError("GET /x", 403, {}),
  new ApiError("GET /x", 404, {}),
  new ApiError("GET /x", 409, {}),
  new ApiError("GET /x", 410, {}),
  new ApiError("GET /x", 422, {}),
  new TypeError("a fault of this program"),
];

for (const error of permanent) {
  await tap.test(`Retrier.run() does not retry: ${error.message}`, async (t) => {
    const clock = new FakeClock();
    await t.rejects(new Retrier({ clock, random }).run(failing(error), undefined), error);
    t.same(clock.sleeps, []);
  });
}

await tap.test("Retrier.run() gives up after too long without progress, and names the last error", async (t) => {
  const clock = new FakeClock();
  const retrier = new Retrier({ clock, random, maxIdleMs: 60_000 });
  const error: unknown = await retrier
    .run(() => Promise.reject(TRANSIENT), undefined)
    .catch((thrown: unknown) => thrown);
  t.ok(error instanceof KsvmError);
  t.match(error, {
    code: "RetryBudgetExceeded",
    message: `Cannot continue: no progress for 60 s, last error: ${TRANSIENT.message}`,
    cause: TRANSIENT,
  });
  t.ok(clock.monotonic() >= 60_000);
  t.ok(clock.monotonic() < 60_000 + 30_000);
});

await tap.test("Retrier.run() never gives up while something else progresses", async (t) => {
  const clock = new FakeClock();
  const retrier = new Retrier({ clock, random, maxIdleMs: 60_000 });
  let tries = 0;
  await retrier.run(async () => {
    retrier.progressed();
    if (++tries < 100) throw TRANSIENT;
  }, undefined);
  t.equal(tries, 100);
  t.ok(clock.monotonic() > 10 * 60_000);
  t.equal(retrier.lastProgress, clock.monotonic());
});

await tap.test("Retrier.run() throws the signal's reason when it is aborted while waiting", async (t) => {
  const abort = new AbortController();
  const reason = new KsvmError("Interrupted", "Interrupted");
  const retrier = new Retrier({ clock: new FakeClock(), random, onRetry: () => abort.abort(reason) });
  await t.rejects(retrier.run(failing(TRANSIENT), abort.signal), reason);
});

await tap.test(
  "Retrier.run() counts its budget from the first failure, not from the last progress long before",
  async (t) => {
    const clock = new FakeClock();
    const retrier = new Retrier({ clock, random, maxIdleMs: 60_000 });
    clock.advance(3_600_000);
    t.equal(await retrier.run(failing(TRANSIENT), undefined), "done");
  },
);

const UNAVAILABLE = new ApiError("GET /x", 503, {});

await tap.test("RunBudget sums up what failures cost, and counts time once that two operations waited", (t) => {
  const budget = new RunBudget();
  budget.idled("other", 0, 10);
  budget.idled("other", 5, 12);
  budget.idled("other", 20, 25);
  budget.idled("webhook", 0, 7);
  t.equal(budget.idleMs("other"), 17);
  t.equal(budget.idleMs("webhook"), 7);
  budget.heldFreeze(0, 4);
  t.equal(budget.frozenMs, 4);
  t.end();
});

/** What ends `operation` of a retrier. */
async function endOf(retrier: Retrier, operation: () => Promise<unknown>): Promise<unknown> {
  return retrier.run(operation, undefined).catch((error: unknown) => error);
}

await tap.test("Retrier.run() gives up when all attempts of a run together used its budget up", async (t) => {
  const clock = new FakeClock();
  const run = new Retrier({ clock, random, maxIdleMs: 900_000 }).with({ budget: new RunBudget() });
  let attempts = 0;
  for (;;) {
    attempts++;
    // Each attempt gets through its first objects again, and is stuck behind them.
    run.progressed();
    const end = await endOf(run.with({ maxFreezeIdleMs: 300_000 }), () => Promise.reject(UNAVAILABLE));
    if (!(end instanceof WaitingForOthers)) {
      t.match(end, { code: "RetryBudgetExceeded" });
      break;
    }
    t.ok(attempts < 1_000);
  }
  t.ok(clock.monotonic() < 1_000_000, `${clock.monotonic()} ms`);
  t.ok(attempts > 1);
});

await tap.test("Retrier.run() keeps the budget of a webhook apart from that of the run", async (t) => {
  const clock = new FakeClock();
  const budget = new RunBudget();
  const run = new Retrier({ clock, random, maxIdleMs: 60_000, webhookWaitMs: 600_000 }).with({ budget });
  budget.idled("other", 0, 60_000);
  clock.advance(60_000);
  const down = new ApiError("PATCH /x", 500, {
    answer: {
      kind: "Status",
      message: 'Internal error occurred: failed calling webhook "own.example.com": Post "https://x"',
    },
  });
  const error = await endOf(run, () => Promise.reject(down));
  t.ok(error instanceof KsvmError && error.code === "RetryBudgetExceeded");
  t.ok(clock.monotonic() >= 660_000);
});
