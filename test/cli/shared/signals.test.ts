import tap from "tap";
import { Interruption } from "../../../src/cli/shared/interruption.ts";
import { Signals } from "../../../src/cli/shared/signals.ts";
import { FakeClock } from "../../fake-clock.ts";

await tap.test("Signals takes what comes within a second of the first signal for the first one", async (t) => {
  const clock = new FakeClock();
  const signals = new Signals(clock);
  t.notOk(signals.interruption.aborted);
  t.notOk(signals.receive("SIGTERM"));
  t.match(signals.interruption.reason, new Interruption("SIGTERM"));
  t.notOk(signals.receive("SIGTERM"), "GNU timeout sends two");
  await clock.sleep(900);
  t.notOk(signals.receive("SIGINT"));
  await clock.sleep(200);
  t.ok(signals.receive("SIGTERM"), "counted from the first one, and not from the last one");
  t.match(signals.interruption.reason, { signal: "SIGTERM" });
});

await tap.test("Signals never forces an end by SIGHUP, however late it comes", async (t) => {
  const clock = new FakeClock();
  const signals = new Signals(clock);
  t.notOk(signals.receive("SIGHUP"));
  await clock.sleep(60_000);
  t.notOk(signals.receive("SIGHUP"));
  t.ok(signals.receive("SIGINT"));
});
