import { setTimeout as delay } from "node:timers/promises";
import tap from "tap";
import { systemClock } from "../src/clock.ts";
import { cutText } from "../src/cut-text.ts";

await tap.test("cutText() leaves what fits, and says how much there was of the rest", async (t) => {
  t.equal(cutText("a".repeat(100), 100), "a".repeat(100));
  const cut = cutText("a".repeat(101), 100);
  t.equal(cut.length, 100);
  t.match(cut, /^a+… \(cut: 101 characters\)$/);
});

await tap.test("cutText() cuts no character in two, wherever the cut falls", async (t) => {
  for (let before = 0; before < 3; before++) {
    const cut = cutText("a".repeat(before) + "😀".repeat(200), 120);
    t.ok(cut.length <= 120);
    t.match(cut, /^a*(😀)+… \(cut: \d+ characters\)$/u);
    t.ok(cut.isWellFormed());
  }
  t.equal(cutText("\ud800", 100), "\ufffd", "an API server stores no half of a pair");
});

// A timer of more than 24.8 days, 2³¹ - 1 ms, is over after 1 ms; two of them and 1 ms would be over after 3 ms.
await tap.test("systemClock.sleep() waits for durations that are too long for a timer", async (t) => {
  const abort = new AbortController();
  let isOver = false;
  const sleep = systemClock.sleep(2 * (2 ** 31 - 1) + 1, abort.signal).finally(() => {
    isOver = true;
  });
  await delay(20);
  t.equal(isOver, false, "it waits");
  abort.abort(new Error("enough"));
  await t.rejects(sleep, { message: "enough" });
  await systemClock.sleep(0);
  await systemClock.sleep(1);
});
