import { setTimeout as delay } from "node:timers/promises";
import tap from "tap";
import { systemClock } from "../../src/clock.ts";

await tap.test("systemClock.sleep() waits for durations that are too long for a timer", async (t) => {
  const abort = new AbortController();
  let isOver = false;
  const sleep = systemClock.sleep(720 * 3_600_000, abort.signal).finally(() => {
    isOver = true;
  });
  await delay(50);
  t.equal(isOver, false, "Node.js ends a timer of more than 24.8 days after 1 ms");
  abort.abort(new Error("enough"));
  await t.rejects(sleep, { message: "enough" });
  await systemClock.sleep(0);
  await systemClock.sleep(1);
});
