import tap from "tap";
import { KsvmError } from "../../src/errors.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { RunBudget } from "../../src/retry/run-budget.ts";
import { WaitingForOthers } from "../../src/retry/start-again.ts";
import { FakeClock } from "../fake-clock.ts";

const UNAVAILABLE = new ApiError("GET /x", 503, {});
const random = (): number => 0.5;

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

await tap.test("RunBudget counts all the time in which objects failed, whichever is tried again first", (t) => {
  const budget = new RunBudget();
  // One has failed since 0 and is tried again at 30; another one fails from 20 on, and is tried again before.
  budget.heldFreeze(0, 1);
  budget.heldFreeze(20, 25);
  t.equal(budget.frozenMs, 6);
  budget.heldFreeze(0, 30);
  t.equal(budget.frozenMs, 30);
  budget.heldFreeze(40, 50);
  budget.heldFreeze(35, 51);
  budget.heldFreeze(45, 52);
  t.equal(budget.frozenMs, 47);
  // Of very many short ones, the sum is kept.
  for (let at = 100; at < 4_100; at += 2) budget.heldFreeze(at, at + 1);
  t.equal(budget.frozenMs, 2_047);
  budget.heldFreeze(4_090, 4_100);
  t.equal(budget.frozenMs, 2_052);
  t.end();
});

await tap.test(
  "RunBudget starts over with the first write of an object, or beyond the furthest one of all attempts, and not before",
  (t) => {
    const budget = new RunBudget();
    const watermark = "100";
    budget.advanced({ done: 10, watermark }, 1);
    budget.idled("other", 1, 11);
    // The next attempt repeats what this one did.
    for (let done = 1; done <= 10; done++) budget.advanced({ done, watermark }, 12);
    t.equal(budget.idleMs("other"), 10);
    budget.advanced({ done: 11, watermark }, 13);
    t.equal(budget.idleMs("other"), 0);
    budget.idled("other", 5, 20);
    t.equal(budget.idleMs("other"), 7, "what was before the progress does not count again");
    budget.advanced({ done: 1, written: "100", watermark }, 21);
    t.equal(budget.idleMs("other"), 0);
    budget.idled("other", 21, 30);
    // The next attempt has a watermark of its own, and lists what this one wrote below it.
    budget.advanced({ done: 1, written: "101", watermark: "200" }, 30);
    budget.advanced({ done: 2, written: "opaque", watermark: "200" }, 30);
    t.equal(budget.idleMs("other"), 9, "a second write of one object is no progress");
    budget.advanced({ done: 3, written: "99", watermark: "200" }, 31);
    t.equal(budget.idleMs("other"), 0, "an object that no attempt has written before");
    t.end();
  },
);

await tap.test("RunBudget starts over once more for each object where resourceVersions went back, and no more", (t) => {
  const budget = new RunBudget();
  const idleAfter = (now: number, written: string, watermark: string): number => {
    budget.idled("other", now - 1, now);
    budget.advanced({ done: 1, written, watermark }, now);
    return budget.idleMs("other");
  };
  t.equal(idleAfter(1, "7", "1000"), 0);
  t.equal(idleAfter(2, "7", "500"), 0, "etcd was restored from a backup");
  t.equal(idleAfter(3, "501", "510"), 1, "below the first watermark, and written before");
  t.equal(idleAfter(4, "511", "520"), 2);
  t.end();
});

await tap.test("RunBudget.brokenOff() asks for longer waits until there is progress", (t) => {
  const budget = new RunBudget();
  t.same(
    Array.from({ length: 8 }, () => budget.brokenOff()),
    [0, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000],
  );
  budget.advanced({ done: 1, watermark: "100" }, 1);
  t.equal(budget.brokenOff(), 0);
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

await tap.test("Retrier.run() holds no second freeze for as long as the first one, without progress", async (t) => {
  const clock = new FakeClock();
  const run = new Retrier({ clock, random, maxIdleMs: 900_000 }).with({ budget: new RunBudget() });
  const attempt = (): Promise<unknown> =>
    endOf(run.with({ maxFreezeIdleMs: 300_000 }), () => Promise.reject(UNAVAILABLE));
  await attempt();
  const second = clock.monotonic();
  t.ok((await attempt()) instanceof WaitingForOthers);
  t.ok(clock.monotonic() - second < 30_000, `${clock.monotonic() - second} ms`);
});

await tap.test("Retrier.run() survives a lost connection right after a long wait", async (t) => {
  const clock = new FakeClock();
  const budget = new RunBudget();
  const run = new Retrier({ clock, random, maxIdleMs: 900_000 }).with({ budget, maxFreezeIdleMs: 300_000 });
  budget.idled("other", 0, 899_999);
  budget.heldFreeze(0, 299_999);
  clock.advance(900_000);
  let isFirst = true;
  const once = async (): Promise<string> => {
    if (isFirst) {
      isFirst = false;
      throw UNAVAILABLE;
    }
    return "done";
  };
  t.equal(await run.run(once, undefined), "done");
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
