import tap from "tap";
import { LoopPace } from "../../src/retry/loop-pace.ts";
import { FakeClock } from "../fake-clock.ts";

await tap.test(
  "LoopPace lets the first turn begin at once and each later one after the minimum interval",
  async (t) => {
    const clock = new FakeClock();
    const pace = new LoopPace({ clock, minMs: 500 });
    for (let turn = 0; turn < 4; turn++) await pace.turn(undefined);
    t.same(clock.sleeps, [500, 500, 500]);
  },
);

await tap.test("LoopPace counts the time that the turn itself took", async (t) => {
  const clock = new FakeClock();
  const pace = new LoopPace({ clock, minMs: 500 });
  await pace.turn(undefined);
  clock.advance(200);
  await pace.turn(undefined);
  clock.advance(5_000);
  await pace.turn(undefined);
  t.same(clock.sleeps, [300]);
});

await tap.test("LoopPace doubles the interval up to its maximum until the loop gets further", async (t) => {
  const clock = new FakeClock();
  const pace = new LoopPace({ clock, minMs: 100, maxMs: 350 });
  for (let turn = 0; turn < 5; turn++) await pace.turn(undefined);
  t.same(clock.sleeps, [100, 200, 350, 350]);
  pace.reset();
  await pace.turn(undefined);
  await pace.turn(undefined);
  t.same(clock.sleeps.slice(4), [350, 100], "the wait that was due stays, the next one is the shortest");
});

await tap.test("LoopPace ends with the signal's reason", async (t) => {
  const pace = new LoopPace({ clock: new FakeClock(), minMs: 100 });
  await t.rejects(pace.turn(AbortSignal.abort(new Error("over"))), { message: "over" });
});

await tap.test("LoopPace begins to double after its free turns, which a reset gives again", async (t) => {
  const clock = new FakeClock();
  const pace = new LoopPace({ clock, minMs: 100, maxMs: 400, freeTurns: 2 });
  for (let turn = 0; turn < 6; turn++) await pace.turn(undefined);
  t.same(clock.sleeps, [100, 100, 100, 200, 400]);
  t.ok(pace.isSlowing);
  pace.reset();
  t.notOk(pace.isSlowing);
  for (let turn = 0; turn < 5; turn++) await pace.turn(undefined);
  t.same(clock.sleeps.slice(5), [400, 100, 100, 100, 200]);
});
