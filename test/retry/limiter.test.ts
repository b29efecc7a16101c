import * as fc from "fast-check";
import tap from "tap";
import { Limiter } from "../../src/retry/limiter.ts";

/** An API server in fake time: how long an answer takes with so many requests under way, in milliseconds. */
type Latency = (inFlight: number, now: number) => number;

/** Lets the limiter work for so many milliseconds, with as many requests at a time as it allows. */
function drive(
  limiter: Limiter,
  latency: Latency,
  ms: number,
  from = 0,
): { readonly now: number; readonly limits: number[] } {
  const limits: number[] = [];
  let now = from;
  while (now < from + ms) {
    const inFlight = limiter.limit;
    const begunAt = now;
    now += latency(inFlight, now);
    for (let request = 0; request < inFlight; request++) limiter.answered(begunAt, now);
    limits.push(limiter.limit);
  }
  return { now, limits };
}

/** Answers four requests at a time in 10 ms; what is more waits in a queue. */
const QUEUES: Latency = (inFlight) => 10 * Math.max(1, inFlight / 4);
const NEVER_QUEUES: Latency = () => 10;

await tap.test("Limiter begins with two requests at a time", (t) => {
  t.equal(new Limiter({ maxInFlight: 16 }).limit, 2);
  t.equal(new Limiter({ maxInFlight: 1 }).limit, 1);
  t.end();
});

await tap.test("Limiter grows to the most that is allowed while the latency stays near its baseline", (t) => {
  const limiter = new Limiter({ maxInFlight: 16 });
  const { limits } = drive(limiter, NEVER_QUEUES, 1_000);
  t.equal(limits.at(-1), 16);
  t.same([...new Set(limits)], [2, 4, 8, 16]);
  t.end();
});

await tap.test("Limiter stays where the latency begins to rise", (t) => {
  const limiter = new Limiter({ maxInFlight: 256 });
  const { now } = drive(limiter, QUEUES, 3_000);
  const { limits } = drive(limiter, QUEUES, 10_000, now);
  const [least, most] = [Math.min(...limits), Math.max(...limits)];
  t.ok(least >= 4 && most <= 12, `between ${least} and ${most}`);
  t.end();
});

await tap.test("Limiter shrinks with the first round whose latency rose, and recovers", (t) => {
  const limiter = new Limiter({ maxInFlight: 16 });
  const { now } = drive(limiter, NEVER_QUEUES, 1_000);
  const busy = drive(limiter, () => 40, 400, now);
  t.ok((busy.limits.at(-1) ?? 16) < 6, busy.limits.join(" "));
  t.ok(busy.limits.findIndex((limit) => limit < 16) <= 2);
  t.equal(drive(limiter, NEVER_QUEUES, 2_000, busy.now).limits.at(-1), 16);
  t.end();
});

await tap.test("Limiter shrinks at once with a failure, once for all that began before it", (t) => {
  const limiter = new Limiter({ maxInFlight: 16 });
  const { now } = drive(limiter, NEVER_QUEUES, 1_000);
  for (let request = 0; request < 16; request++) limiter.failed(now, now + 5);
  t.equal(limiter.limit, 8);
  limiter.failed(now + 6, now + 7);
  t.equal(limiter.limit, 4);
  for (let later = 8; later < 20; later++) limiter.failed(now + later, now + later);
  t.equal(limiter.limit, 1, "one is always allowed");
  t.end();
});

/** Has each `nth` request of so many fail. */
function driveFailing(limiter: Limiter, nth: (inFlight: number) => number, requests: number): number[] {
  const limits: number[] = [];
  let now = 1_000;
  for (let sent = 0; sent < requests; ) {
    const begunAt = now;
    now += 10;
    const inFlight = limiter.limit;
    for (let one = 0; one < inFlight; one++) {
      sent++;
      limiter[sent % nth(inFlight) === 0 ? "failed" : "answered"](begunAt, now);
    }
    limits.push(limiter.limit);
  }
  return limits;
}

await tap.test("Limiter does not mind failures that come whatever is sent", (t) => {
  for (const nth of [4, 5, 20]) {
    const limits = driveFailing(new Limiter({ maxInFlight: 16 }), () => nth, 5_000).slice(-100);
    const mean = limits.reduce((sum, limit) => sum + limit, 0) / limits.length;
    t.ok(mean > 12, `every ${nth}th fails: ${mean}`);
  }
  t.end();
});

await tap.test("Limiter stays where no more fail than with fewer requests at a time", (t) => {
  // Every fifth fails with two at a time, and every second with more than six.
  const limits = driveFailing(new Limiter({ maxInFlight: 16 }), (inFlight) => (inFlight > 6 ? 2 : 5), 10_000).slice(
    -300,
  );
  const over = limits.filter((limit) => limit > 6).length;
  t.ok(over / limits.length < 0.3, `${over} of ${limits.length}: ${limits.slice(-50).join(" ")}`);
  t.end();
});

await tap.test("Limiter allows one at a time while most fail, and recovers", (t) => {
  const limiter = new Limiter({ maxInFlight: 16 });
  t.equal(driveFailing(limiter, () => 1, 200).at(-1), 1);
  const { limits } = drive(limiter, NEVER_QUEUES, 5_000, 10_000);
  t.equal(limits.at(-1), 16);
  t.end();
});

await tap.test(
  "Limiter measures its baseline again, so that an API server that became slower for good is no reason",
  (t) => {
    const limiter = new Limiter({ maxInFlight: 16 });
    const { now } = drive(limiter, NEVER_QUEUES, 1_000);
    const slower = drive(limiter, () => 50, 60_000, now);
    t.equal(slower.limits.at(-1), 16);
    t.equal(Math.min(...slower.limits), 1, "it took it for overload first");
    t.end();
  },
);

await tap.test("Limiter goes back to where it was after it measured its baseline", (t) => {
  const limiter = new Limiter({ maxInFlight: 16 });
  const { now } = drive(limiter, NEVER_QUEUES, 1_000);
  const { limits } = drive(limiter, NEVER_QUEUES, 60_000, now);
  t.same(
    [...new Set(limits)].toSorted((a, b) => a - b),
    [2, 16],
  );
  const low = limits.filter((limit) => limit === 2).length;
  t.ok(low / limits.length < 0.05, `${low} of ${limits.length} rounds`);
  t.end();
});

await tap.test("Limiter allows at least one request and at most as many as it may, whatever comes", (t) => {
  const event = fc.record({ failed: fc.boolean(), ageMs: fc.nat(100_000), afterMs: fc.nat(20_000) });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 256 }), fc.array(event, { maxLength: 200 }), (maxInFlight, events) => {
      const limiter = new Limiter({ maxInFlight });
      let now = 0;
      return events.every(({ failed, ageMs, afterMs }) => {
        now += afterMs;
        limiter[failed ? "failed" : "answered"](now - ageMs, now);
        return Number.isInteger(limiter.limit) && limiter.limit >= 1 && limiter.limit <= maxInFlight;
      });
    }),
  );
  t.end();
});

await tap.test("Limiter grows also where every request takes longer than a baseline lasts", (t) => {
  for (const ms of [3_000, 10_000, 30_000]) {
    const limiter = new Limiter({ maxInFlight: 16 });
    const { limits } = drive(limiter, () => ms, 400 * ms);
    t.ok(limits.includes(16), `${ms} ms: ${[...new Set(limits)].join(" ")}`);
  }
  t.end();
});
