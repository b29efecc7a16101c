import tap from "tap";
import { systemClock } from "../../src/clock.ts";
import { WorkQueue } from "../../src/trigger/work-queue.ts";
import { FakeClock } from "../fake-clock.ts";

function sleepForever(): Promise<void> {
  return new Promise(() => undefined);
}

await tap.test("WorkQueue hands out each name once, when it is due, the longest due first", async (t) => {
  const clock = new FakeClock();
  const queue = new WorkQueue(clock);
  queue.add("later", 100);
  queue.add("now");
  clock.advance(1);
  queue.add("next");
  queue.add("now", 50);
  t.same([queue.take(), queue.take(), queue.take()], ["now", "next", undefined]);
  clock.advance(100);
  queue.add("later");
  t.same([queue.take(), queue.take()], ["later", undefined]);
});

await tap.test("WorkQueue hands out a name that changes all the time only now and then", async (t) => {
  const clock = new FakeClock();
  const queue = new WorkQueue(clock);
  let taken = 0;
  for (let ms = 0; ms < 2_000; ms += 20) {
    queue.add("busy");
    taken += queue.take() === undefined ? 0 : 1;
    clock.advance(20);
  }
  t.equal(taken, 10);
  clock.advance(200);
  queue.add("later", 1_000);
  t.same([queue.isDue("busy"), queue.isDue("later"), queue.isDue("never")], [true, false, false]);
});

await tap.test("WorkQueue.takeOverdue() takes a name ahead of the others once it has been due for long", async (t) => {
  const clock = new FakeClock();
  const queue = new WorkQueue(clock);
  queue.add("other");
  queue.add("real", 1_000);
  t.equal(queue.takeOverdue("real"), false);
  clock.advance(1_000 + 4_999);
  t.equal(queue.takeOverdue("real"), false, "it has been due for a moment only");
  clock.advance(1);
  t.equal(queue.takeOverdue("real"), true);
  t.equal(queue.takeOverdue("real"), false, "it was taken");
  t.equal(queue.takeOverdue("never"), false);
  t.same([queue.take(), queue.take()], ["other", undefined]);
});

await tap.test("WorkQueue.wait() ends when a name is due, is added, or the time is up", async (t) => {
  const clock = new FakeClock();
  const queue = new WorkQueue(clock);
  const { signal } = new AbortController();
  queue.add("a", 100);
  await queue.wait(1_000, signal);
  t.same(clock.sleeps, [100]);
  t.equal(queue.take(), "a");
  await queue.wait(1_000, signal);
  t.same(clock.sleeps, [100, 1_000]);

  const stuck = new WorkQueue({ ...systemClock, monotonic: () => 0, now: () => 0, sleep: sleepForever });
  const waiting = stuck.wait(1_000, signal);
  stuck.add("b");
  await waiting;
  t.equal(stuck.take(), "b");
});
