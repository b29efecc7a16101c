import tap from "tap";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import { feelWhile } from "../../src/retry/courtesy.ts";
import { Limiter } from "../../src/retry/limiter.ts";
import { Pacer } from "../../src/retry/pacer.ts";
import { ManualClock } from "../manual-clock.ts";

const UNLIMITED = Number.POSITIVE_INFINITY;

function pacerOf(clock: ManualClock, maxQps = UNLIMITED): { readonly pacer: Pacer; readonly limiter: Limiter } {
  const limiter = new Limiter({ maxInFlight: 32 });
  return { pacer: new Pacer({ clock, maxInFlight: 32, maxQps, limiter }), limiter };
}

/** Moves the clock until the work is done. */
async function playedOut<T>(clock: ManualClock, work: Promise<T>): Promise<T> {
  const done = new AbortController();
  const end = (): void => done.abort();
  work.then(end, end);
  for (let ms = 0; ms < 100_000 && !done.signal.aborted; ms += 500) await clock.advance(500);
  return work;
}

/** Work that goes on for so many milliseconds, and is answered all the time. */
async function workFor(clock: ManualClock, pacer: Pacer, ms: number): Promise<string> {
  for (const until = clock.monotonic() + ms; clock.monotonic() < until; ) {
    await pacer.observe(() => clock.sleep(10));
  }
  return "done";
}

await tap.test("feelWhile() reads ten times a second while the work goes on, and tells the limiter", async (t) => {
  const clock = new ManualClock();
  const { pacer, limiter } = pacerOf(clock);
  let reads = 0;
  const feel = async (): Promise<void> => {
    reads++;
    await clock.sleep(reads < 20 ? 2 : 40);
  };
  t.equal(
    await playedOut(
      clock,
      feelWhile({ pacer, clock, feel }, () => workFor(clock, pacer, 5_000)),
    ),
    "done",
  );
  t.ok(reads >= 35 && reads <= 51, `${reads} reads`);
  t.equal(limiter.limit, 2);
});

await tap.test("feelWhile() reads every two seconds while nothing is answered", async (t) => {
  const clock = new ManualClock();
  const { pacer } = pacerOf(clock);
  let reads = 0;
  await playedOut(
    clock,
    feelWhile({ pacer, clock, feel: async () => void reads++ }, () => clock.sleep(60_000)),
  );
  t.ok(reads <= 33, `${reads} reads`);
});

await tap.test("feelWhile() takes a read that is refused for an answer, and one that fails for none", async (t) => {
  const failures: [error: Error, limit: number][] = [
    [new ApiError("GET /x", 403, { text: 'leases "a" is forbidden: User "b" cannot get resource "leases"' }), 2],
    [new ApiError("GET /x", 503, {}), 4],
    [new TransportError("GET /x", "https://a", new Error("reset")), 4],
  ];
  for (const [error, most] of failures) {
    const clock = new ManualClock();
    const { pacer, limiter } = pacerOf(clock);
    let reads = 0;
    const feel = async (): Promise<void> => {
      await clock.sleep(++reads < 3 ? 2 : 40);
      throw error;
    };
    await playedOut(
      clock,
      feelWhile({ pacer, clock, feel }, () => workFor(clock, pacer, 3_000)),
    );
    t.equal(limiter.limit, most, error.message);
  }
});

await tap.test("feelWhile() gives up a read that is not answered, and counts it as a long wait", async (t) => {
  const clock = new ManualClock();
  const { pacer, limiter } = pacerOf(clock);
  let reads = 0;
  const feel = async (signal: AbortSignal): Promise<void> => {
    reads++;
    await clock.sleep(reads < 3 ? 2 : 600_000, signal);
  };
  await playedOut(
    clock,
    feelWhile({ pacer, clock, feel }, () => workFor(clock, pacer, 20_000)),
  );
  t.ok(reads > 10, `${reads} reads`);
  t.equal(limiter.limit, 2);
});

await tap.test("feelWhile() reads nothing where requests per second are limited anyway", async (t) => {
  const clock = new ManualClock();
  const { pacer } = pacerOf(clock, 5);
  let reads = 0;
  const feel = async (): Promise<void> => void reads++;
  t.equal(
    await playedOut(
      clock,
      feelWhile({ pacer, clock, feel }, () => workFor(clock, pacer, 1_000)),
    ),
    "done",
  );
  t.equal(reads, 0);
});

await tap.test("feelWhile() throws what the work throws, and ends its reads before", async (t) => {
  const clock = new ManualClock();
  const { pacer } = pacerOf(clock);
  let underWay = 0;
  const feel = async (signal: AbortSignal): Promise<void> => {
    underWay++;
    await clock.sleep(600_000, signal).finally(() => underWay--);
  };
  const failure = new Error("the work failed");
  const work = async (): Promise<never> => {
    await clock.sleep(500);
    throw failure;
  };
  await t.rejects(playedOut(clock, feelWhile({ pacer, clock, feel }, work)), failure);
  t.equal(underWay, 0);
});
