import tap from "tap";
import { systemClock } from "../../src/clock.ts";
import { Waker } from "../../src/retry/waker.ts";
import { FakeClock } from "../fake-clock.ts";

const { signal } = new AbortController();

await tap.test("Waker waits for as long as it is told", async (t) => {
  const clock = new FakeClock();
  await new Waker().wait(5_000, clock, signal);
  t.equal(clock.monotonic(), 5_000);
});

await tap.test(
  "Waker: what wakes during the look ends the wait after it, what woke before the look does not",
  async (t) => {
    const clock = new FakeClock();
    const waker = new Waker();
    waker.wake();
    waker.begin();
    await waker.wait(5_000, clock, signal);
    t.equal(clock.monotonic(), 5_000);
    waker.begin();
    waker.wake();
    waker.wake();
    let isAsleep = true;
    const sleep = async (_: number, within?: AbortSignal): Promise<void> => {
      await new Promise((resolve) => within?.addEventListener("abort", resolve));
      isAsleep = false;
    };
    await waker.wait(5_000, { sleep }, signal);
    t.notOk(isAsleep, "no timer is left");
  },
);

await tap.test("Waker: a wait ends with its signal, and says so", async (t) => {
  const abort = new AbortController();
  const waiting = new Waker().wait(60_000, systemClock, abort.signal);
  abort.abort(new Error("enough"));
  await t.rejects(waiting, { message: "enough" });
});
