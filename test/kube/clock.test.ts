import { setTimeout as delay } from "node:timers/promises";
import tap from "tap";
import { systemClock } from "../../src/clock.ts";

// A timer of more than 24.8 days, 2³¹ - 1 ms, is over after 1 ms; two of them and 1 ms would be over after 3 ms.
await tap.test("systemClock.sleep() waits for durations that are too long for a timer", async (t) => {
  const abort = new AbortController();
  let isOver = false;
  const sleep = systemClock.sleep(2 * (2 ** 31 - 1) + 1, abort.signal).finally(() => {
    isOver = true;
  });
  await delay(500);
  t.equal(isOver, false, "it waits");
  abort.abort(new Error("enough"));
  await t.rejects(sleep, { message: "enough" });
  await systemClock.sleep(0);
  await systemClock.sleep(1);
});
