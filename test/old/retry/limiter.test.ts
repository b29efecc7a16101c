import * as fc from "fast-check";
import tap from "tap";
import { Limiter } from "../../../src/old/retry/limiter.ts";
import { Pacer } from "../../../src/old/retry/pacer.ts";
import { FakeClock } from "../../fake-clock.ts";
import { SimulatedServer } from "./simulated-server.ts";
import { TEST_SEED } from "../../seed.ts";

const SECOND = 1_000;

/** The mean limit over the last `ms` milliseconds of a run. */
function meanOf(limits: readonly { readonly at: number; readonly limit: number }[], from: number, to: number): number {
  let sum = 0;
  for (const [index, { at, limit }] of limits.entries()) {
    const until = Math.min(to, limits[index + 1]?.at ?? to);
    sum += limit * Math.max(0, until - Math.max(from, at));
  }
  return sum / (to - from);
}

await tap.test("Limiter grows to the most that is allowed where twice as many finish twice as much", (t) => {
  const server = new SimulatedServer({ latencyMs: 50, capacity: 1_000 });
  const { limits, finished } = server.drive(new Limiter({ maxInFlight: 64 }), 10 * SECOND);
  t.same([...new Set(limits.map(({ limit }) => limit))].slice(0, 5), [4, 8, 16, 32, 64]);
  t.ok(finished > 0.9 * (64 / 0.05) * 10, `${finished} finished`);
  t.end();
});

await tap.test("Limiter stays where more at a time finish no more, and finishes almost all that can be", (t) => {
  for (const capacity of [1, 4, 12]) {
    const server = new SimulatedServer({ latencyMs: 10, capacity });
    const { limits, finished } = server.drive(new Limiter({ maxInFlight: 256 }), 60 * SECOND);
    const mean = meanOf(limits, 20 * SECOND, 60 * SECOND);
    t.ok(mean <= 2.5 * capacity + 1, `${capacity} at a time: ${mean} on the average`);
    t.ok(finished > 0.93 * capacity * 100 * 60, `${capacity} at a time: ${finished} finished`);
  }
  t.end();
});

await tap.test("Limiter shrinks where the API server becomes busy, and grows again after that", (t) => {
  const server = new SimulatedServer({ latencyMs: 10, capacity: 16 });
  const limiter = new Limiter({ maxInFlight: 64 });
  server.drive(limiter, 20 * SECOND);
  server.capacity = 2;
  const busy = server.drive(limiter, 10 * SECOND);
  t.ok(meanOf(busy.limits, 25 * SECOND, 30 * SECOND) < 8, "it shrinks within five seconds");
  server.capacity = 16;
  const idle = server.drive(limiter, 90 * SECOND);
  t.ok(meanOf(idle.limits, 90 * SECOND, 120 * SECOND) > 10, "it is back after a minute");
  t.end();
});

await tap.test("Limiter allows one at a time while most fail, and recovers", (t) => {
  const server = new SimulatedServer({ latencyMs: 10, capacity: 1_000 });
  const limiter = new Limiter({ maxInFlight: 32 });
  server.drive(limiter, 5 * SECOND);
  server.failingShare = () => 1;
  t.equal(server.drive(limiter, 2 * SECOND).limits.at(-1)?.limit, 1);
  server.failingShare = () => 0;
  t.equal(server.drive(limiter, 5 * SECOND).limits.at(-1)?.limit, 32);
  t.end();
});

await tap.test("Limiter takes less, at once, where others wait, and tries more after eight seconds", (t) => {
  const server = new SimulatedServer({ latencyMs: 10, capacity: 1_000 });
  const limiter = new Limiter({ maxInFlight: 32 });
  const { now } = server.drive(limiter, 10 * SECOND);
  limiter.felt(now, now + 3);
  t.equal(limiter.limit, 32, "3 ms are usual");
  limiter.felt(now, now + 16);
  t.equal(limiter.limit, 24);
  limiter.felt(now - 1, now + 100);
  t.equal(limiter.limit, 24, "a wait that began before tells of the limit before");
  limiter.felt(now + 101, now + 140);
  t.equal(limiter.limit, 18);
  const before = server.drive(limiter, 7 * SECOND);
  t.ok(before.limits.every(({ limit }) => limit <= 18));
  const after = server.drive(limiter, 20 * SECOND);
  t.ok(after.limits.some(({ limit }) => limit > 18));
  t.end();
});

await tap.test("Limiter leaves two at a time, whatever others wait", (t) => {
  const limiter = new Limiter({ maxInFlight: 32 });
  for (let now = 0; now < 10_000; now += 200) limiter.felt(now, now + 50 + now / 20);
  t.equal(limiter.limit, 2);
  const alone = new Limiter({ maxInFlight: 1 });
  for (let now = 0; now < 10_000; now += 200) alone.felt(now, now + 50 + now / 20);
  t.equal(alone.limit, 1);
  t.end();
});

await tap.test("Limiter grows no faster than others are felt", (t) => {
  const server = new SimulatedServer({ latencyMs: 10, capacity: 1_000 });
  const limiter = new Limiter({ maxInFlight: 32 });
  limiter.feels = true;
  const { now } = server.drive(limiter, 5 * SECOND);
  t.equal(limiter.limit, 4);
  limiter.felt(now, now + 2);
  server.drive(limiter, 5 * SECOND);
  t.equal(limiter.limit, 8);
  limiter.feels = false;
  server.drive(limiter, 5 * SECOND);
  t.equal(limiter.limit, 32);
  t.end();
});

await tap.test("Limiter allows at least one request and at most as many as it may, whatever comes", (t) => {
  const event = fc.record({
    what: fc.constantFrom("failed", "answered", "felt"),
    ageMs: fc.nat(100_000),
    afterMs: fc.nat(20_000),
  });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 256 }), fc.array(event, { maxLength: 200 }), (maxInFlight, events) => {
      const limiter = new Limiter({ maxInFlight });
      let now = 0;
      return events.every(({ what, ageMs, afterMs }) => {
        now += afterMs;
        limiter[what](now - ageMs, now);
        return Number.isInteger(limiter.limit) && limiter.limit >= 1 && limiter.limit <= maxInFlight;
      });
    }),
    { seed: TEST_SEED },
  );
  t.end();
});

const NEVER = new AbortController().signal;
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

await tap.test("Pacer.forEach() spreads the starts evenly when maxQps is given, over several calls", async (t) => {
  const clock = new FakeClock();
  const pacer = new Pacer({ clock, maxInFlight: 1, maxQps: 4 });
  const starts: number[] = [];
  const work = async (): Promise<void> => void starts.push(clock.monotonic());
  await pacer.forEach([1, 2, 3], work, NEVER);
  await pacer.forEach([4], work, NEVER);
  t.same(starts, [0, 250, 500, 750]);
});

await tap.test("Pacer.forEach() begins nothing after an error and throws it once the rest is done", async (t) => {
  const pacer = new Pacer({ clock: new FakeClock(), maxInFlight: 2, maxQps: Number.POSITIVE_INFINITY });
  const failure = new Error("first");
  const log: string[] = [];
  const work = async (item: string): Promise<void> => {
    log.push(`begin ${item}`);
    await turn();
    if (item === "a") throw failure;
    await turn();
    log.push(`end ${item}`);
  };
  await t.rejects(pacer.forEach(["a", "b", "c", "d"], work, NEVER), failure);
  t.same(log, ["begin a", "begin b", "end b"]);
});
