import tap from "tap";
import { WaitClock } from "../../src/certs/wait-clock.ts";
import { FakeClock } from "../fake-clock.ts";

const START = Date.parse("2026-01-01T00:00:00Z");
const HOUR_MS = 3_600_000;

await tap.test("WaitClock counts its own wait by the monotonic clock, whatever an API server says", async (t) => {
  const clock = new FakeClock(START);
  const waits = new WaitClock(clock);
  const noted = waits.begin(START);
  await clock.sleep(30_000);
  for (const wrong of [HOUR_MS, -HOUR_MS]) {
    t.equal(waits.now(noted, clock.now() + wrong, true) - START, 30_000, `${wrong} ms`);
  }
});

await tap.test(
  "WaitClock ends the wait of another process by the API server's clock only where that is sure",
  async (t) => {
    const clock = new FakeClock(START);
    const waits = new WaitClock(clock);
    const noted = START;
    const serverNow = START + HOUR_MS;
    t.equal(waits.now(noted, serverNow, true), serverNow);
    t.ok(waits.now(noted, serverNow, false) <= noted, "the clocks disagree: it begins when it is seen");
    await clock.sleep(30_000);
    t.ok(waits.now(noted, serverNow, false) > noted + 28_000, "and ends");
    t.equal(waits.now(undefined, serverNow, false), serverNow);
  },
);
