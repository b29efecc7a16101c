import tap from "tap";
import { ApiError } from "../../src/kube/errors.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { waitForOthers } from "../../src/migrator/wait-for-others.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { WaitingForOthers } from "../../src/retry/start-again.ts";
import { FakeClock } from "../fake-clock.ts";

const overloaded = (retryAfter: string): ApiError =>
  new ApiError("PATCH /widgets-0", 429, { answer: { kind: "Status", message: "later" }, retryAfter });

/** When a wait looks whether it goes on, in milliseconds, where each look ends so. */
async function looksOf(cause: unknown, outcomes: unknown[], maxIdleMs = 900_000): Promise<readonly number[]> {
  const clock = new FakeClock();
  const looks: number[] = [];
  const context = {
    clock,
    emit: () => undefined,
    retrier: new Retrier({ clock, random: () => 0.5, maxIdleMs }),
    signal: new AbortController().signal,
  } as unknown as RunContext;
  await waitForOthers(context, {
    name: "widgets.example.com",
    waiting: new WaitingForOthers(cause, maxIdleMs),
    atLeastMs: 0,
    probe: async () => {
      looks.push(clock.monotonic());
      return outcomes.shift();
    },
  });
  return looks;
}

await tap.test(
  "a wait looks every two seconds whether it goes on, and no sooner than an overloaded API server asks for",
  async (t) => {
    t.same(await looksOf(new Error("hangs"), [new Error("hangs"), new Error("hangs")]), [0, 2_000, 4_000]);
    t.same(await looksOf(overloaded("5"), [overloaded("7"), new Error("hangs")]), [5_000, 12_000, 14_000]);
  },
);

await tap.test(
  "a wait looks once more where its time is over before an overloaded API server wants to be asked",
  async (t) => {
    t.same(await looksOf(overloaded("120"), [], 50_000), [50_000]);
    t.same(await looksOf(overloaded("20"), [overloaded("120"), undefined], 50_000), [20_000, 50_000]);
    await t.rejects(looksOf(overloaded("120"), [overloaded("120")], 50_000), { code: "RetryBudgetExceeded" });
  },
);

await tap.test(
  "a wait that ends says what still fails, and nothing of a freeze, which not every run has",
  async (t) => {
    const message = 'Cannot continue with "widgets.example.com": what it waited for still fails: hangs';
    const hangs = Array.from({ length: 30 }, () => new Error("hangs"));
    await t.rejects(looksOf(new Error("hangs"), hangs, 10_000), { code: "RetryBudgetExceeded", message });
  },
);
