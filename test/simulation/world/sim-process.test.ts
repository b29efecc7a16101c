import tap from "tap";
import { randomFrom } from "../../chaos/random.ts";
import { Schedule } from "./schedule.ts";
import { SimProcess } from "./sim-process.ts";

const NEVER = (): boolean => false;

function world(seed = 1) {
  const schedule = new Schedule(randomFrom(seed));
  return { schedule, process: new SimProcess(schedule, "p") };
}

/** In which order the events of one moment are taken. */
async function orderOf(seed: number): Promise<string> {
  const { schedule } = world(seed);
  const seen: string[] = [];
  for (const name of "abcdef") schedule.in(5, () => seen.push(name));
  schedule.in(1, () => seen.push("first"));
  await schedule.run(NEVER, 10);
  return seen.join("");
}

await tap.test(
  "Schedule takes events by their time, and those of one moment in an order that the seed decides",
  async (t) => {
    t.equal(await orderOf(1), await orderOf(1));
    t.match(await orderOf(1), /^first/);
    t.not(await orderOf(1), await orderOf(2));
  },
);

await tap.test("what is due later than a world was let go on for comes when it is let go on again", async (t) => {
  const { schedule } = world();
  const seen: number[] = [];
  schedule.in(10, () => seen.push(schedule.now));
  t.notOk(await schedule.run(NEVER, 6));
  t.equal(schedule.now, 6);
  await schedule.run(NEVER, 6);
  t.same(seen, [10]);
});

await tap.test("a day of sleeping takes no time", async (t) => {
  const { schedule, process } = world();
  let slept = 0;
  const work = async (): Promise<void> => {
    for (; slept < 1_440; slept++) await process.clock.sleep(60_000);
  };
  void work();
  t.notOk(await schedule.run(NEVER, 86_400_000));
  t.equal(slept, 1_440);
  t.equal(process.clock.monotonic(), 86_400_000);
});

/** When a process wakes that sleeps for ten milliseconds again and again. */
function wakings(schedule: Schedule, process: SimProcess): readonly number[] {
  const woken: number[] = [];
  const work = async (): Promise<void> => {
    for (;;) {
      await process.clock.sleep(10);
      woken.push(schedule.now);
    }
  };
  void work();
  return woken;
}

await tap.test(
  "a process that stands still goes on later; one whose machine is suspended notices no time",
  async (t) => {
    const { schedule, process } = world();
    const woken = wakings(schedule, process);
    schedule.in(25, () => process.pause());
    schedule.in(100, () => process.wake());
    schedule.in(125, () => process.suspend());
    schedule.in(1_000, () => process.wake());
    await schedule.run(NEVER, 1_030);
    t.same(woken, [10, 20, 100, 110, 120, 1_005, 1_015, 1_025]);
    t.equal(
      process.clock.now() - process.clock.monotonic() - Date.UTC(2026, 0, 1),
      875,
      "the clock of the day went on",
    );
  },
);

await tap.test("a process that several things have stand still goes on after the last of them", async (t) => {
  const { schedule, process } = world();
  const woken = wakings(schedule, process);
  const stands = (at: number, ms: number, how: "pause" | "suspend") =>
    schedule.in(at, () => {
      schedule.in(ms, process.stand(how));
    });
  stands(25, 100, "pause");
  stands(35, 40, "suspend");
  stands(45, 200, "pause");
  await schedule.run(NEVER, 260);
  t.same(woken, [10, 20, 245, 255]);
  t.equal(process.clock.monotonic(), 260 - 40, "its machine went on after 40 ms");
  stands(5, 1_000, "suspend");
  schedule.in(15, () => process.wake());
  await schedule.run(NEVER, 2_000);
  t.same(woken.slice(4, 6), [275, 285], "and all of them end at once where the world is calm");
});

await tap.test("a process that has crashed does nothing any more", async (t) => {
  const { schedule, process } = world();
  let woken = 0;
  const work = async (): Promise<void> => {
    for (;;) {
      await process.clock.sleep(10);
      woken++;
    }
  };
  void work();
  let ended = 0;
  process.onCrash(() => ended++);
  schedule.in(25, () => process.crash());
  await schedule.run(NEVER, 1_000);
  t.equal(woken, 2);
  t.equal(ended, 1);
});

await tap.test("sleeps and time limits end with their signals, as those of a real clock", async (t) => {
  const { schedule, process } = world();
  const stop = new AbortController();
  const ends: unknown[] = [];
  void process.clock.sleep(1_000, stop.signal).catch((error: unknown) => ends.push(error));
  const limit = process.clock.timeout(50);
  limit.addEventListener("abort", () => ends.push((limit.reason as Error).name));
  const cancel = process.clock.timer(40, () => ends.push("cancelled"));
  schedule.in(30, () => cancel());
  schedule.in(60, () => stop.abort("stopped"));
  await schedule.run(NEVER, 2_000);
  t.same(ends, ["TimeoutError", "stopped"]);
});

await tap.test(
  "a timer takes a millisecond at the least, so that what waits for a fraction of one goes on",
  async (t) => {
    const { schedule, process } = world();
    let isOver = false;
    const wait = async (): Promise<void> => {
      for (let turn = 0; turn < 10; turn++) await process.clock.sleep(turn % 2 === 0 ? 1e-10 : 0);
      isOver = true;
    };
    void wait();
    t.ok(await schedule.run(() => isOver, 1_000));
    t.equal(schedule.now, 10);
  },
);

await tap.test("a world in which no time passes any more ends with an error", async (t) => {
  const { schedule } = world();
  const again = (): void => void schedule.in(0, again);
  again();
  await t.rejects(schedule.run(NEVER, 1_000), { message: /^livelock: 100000 events/ });
});
