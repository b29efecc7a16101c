import tap from "tap";

import { KsvmError } from "../../src/errors.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { RunBudget } from "../../src/retry/run-budget.ts";
import { WaitingForOthers } from "../../src/retry/start-again.ts";
import { FakeClock } from "../fake-clock.ts";

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

const WEBHOOK_DOWN = new ApiError("PATCH /x", 500, {
  answer: {
    kind: "Status",
    message: 'Internal error occurred: failed calling webhook "own.example.com": Post "https://x"',
  },
});

await tap.test("Retrier.run() is more patient with another owner's webhook", async (t) => {
  const clock = new FakeClock();
  const retrier = new Retrier({ clock, random, maxIdleMs: 60_000, webhookWaitMs: 600_000 });
  const startedAt = clock.monotonic();
  const failure = retrier.run(() => Promise.reject(WEBHOOK_DOWN), undefined);
  await t.rejects(failure, { code: "RetryBudgetExceeded", message: /own\.example\.com/ });
  t.ok(clock.monotonic() - startedAt >= 600_000);
});

await tap.test(
  "Retrier.run() breaks an attempt off that must not hold its freeze, and says what may still be waited",
  async (t) => {
    const clock = new FakeClock();
    const retrier = new Retrier({ clock, random, webhookWaitMs: 600_000 }).with({ maxFreezeIdleMs: 60_000 });
    const error: unknown = await retrier
      .run(() => Promise.reject(WEBHOOK_DOWN), undefined)
      .catch((thrown: unknown) => thrown);
    t.ok(error instanceof WaitingForOthers);
    t.match(error, { webhook: "own.example.com" });
    t.ok(error instanceof WaitingForOthers && error.budgetMs <= 540_000 && error.budgetMs > 480_000);
  },
);

const BUSY = new ApiError("GET /x", 429, { retryAfter: "120" });

await tap.test(
  "Retrier.run() breaks an attempt off when the time of its freeze is over, however long Retry-After is",
  async (t) => {
    const clock = new FakeClock();
    const retrier = new Retrier({ clock, random: () => 0, maxFreezeIdleMs: 300_000, budget: new RunBudget() });
    await t.rejects(
      retrier.run(() => Promise.reject(BUSY), undefined),
      WaitingForOthers,
    );
    t.equal(clock.monotonic(), 300_000);
  },
);

await tap.test(
  "Retrier.run() counts what requests waited for that were answered in the end, while a freeze is held",
  async (t) => {
    const clock = new FakeClock();
    const retrier = new Retrier({ clock, random: () => 0, maxFreezeIdleMs: 300_000, budget: new RunBudget() });
    t.equal(await retrier.run(failing(BUSY), undefined), "done");
    clock.advance(1_000);
    t.equal(await retrier.run(failing(BUSY), undefined), "done");
    await t.rejects(retrier.run(failing(BUSY), undefined), WaitingForOthers);
    t.equal(clock.monotonic(), 301_000, "each of them failed once");
  },
);

await tap.test(
  "Retrier.run() waits for as long as Retry-After asks where the run gets further in the meantime",
  async (t) => {
    const clock = new FakeClock();
    const budget = new RunBudget();
    const retrier = new Retrier({ clock, random: () => 0, maxFreezeIdleMs: 60_000, budget });
    const sleep = clock.sleep.bind(clock);
    clock.sleep = async (ms) => {
      await sleep(ms);
      retrier.progressed();
      budget.advanced({ done: clock.monotonic(), watermark: "1" }, clock.monotonic());
    };
    t.equal(await retrier.run(failing(BUSY), undefined), "done");
    t.equal(clock.monotonic(), 120_000);
  },
);

await tap.test("Retrier.run() bears one lost connection right after its freeze was held for too long", async (t) => {
  const clock = new FakeClock();
  const budget = new RunBudget();
  budget.heldFreeze(0, 300_000);
  clock.advance(300_000);
  const retrier = new Retrier({ clock, random, maxFreezeIdleMs: 300_000, budget });
  t.equal(await retrier.run(failing(TRANSIENT), undefined), "done");
});

await tap.test("Retrier.with() shares the progress", async (t) => {
  const clock = new FakeClock();
  const retrier = new Retrier({ clock, random });
  clock.advance(5_000);
  retrier.with({ maxFreezeIdleMs: 1 }).progressed();
  t.equal(retrier.lastProgress, clock.monotonic());
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
