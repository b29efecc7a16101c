import tap from "tap";

import { ApiError, TransportError } from "../../src/kube/errors.ts";
import { Limiter } from "../../src/retry/limiter.ts";
import { Pacer } from "../../src/retry/pacer.ts";
import { FakeClock } from "../fake-clock.ts";

const NEVER = new AbortController().signal;
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

await tap.test("Pacer.forEach() does each item once, in order, with at most maxInFlight at a time", async (t) => {
  const items = Array.from({ length: 50 }, (_, index) => index);
  for (const maxInFlight of [1, 3, 100]) {
    const pacer = new Pacer({ clock: new FakeClock(), maxInFlight, maxQps: Number.POSITIVE_INFINITY });
    const begun: number[] = [];
    let inFlight = 0;
    let most = 0;
    const work = async (item: number): Promise<void> => {
      begun.push(item);
      most = Math.max(most, ++inFlight);
      await turn();
      inFlight--;
    };
    await pacer.forEach(items, work, NEVER);
    t.same(begun, items);
    t.equal(most, Math.min(maxInFlight, items.length));
  }
});

await tap.test("Pacer.forEach() does nothing when there are no items", async (t) => {
  const pacer = new Pacer({ clock: new FakeClock(), maxInFlight: 3, maxQps: 1 });
  await pacer.forEach([], () => Promise.reject(new Error("called")), NEVER);
  t.pass();
});

await tap.test("Pacer.forEach() spreads the starts evenly when maxQps is given, over several calls", async (t) => {
  const clock = new FakeClock();
  const pacer = new Pacer({ clock, maxInFlight: 1, maxQps: 4 });
  const starts: number[] = [];
  const work = async (): Promise<void> => void starts.push(clock.monotonic());
  await pacer.forEach([1, 2, 3], work, NEVER);
  await pacer.forEach([4], work, NEVER);
  t.same(starts, [0, 250, 500, 750]);
});

await tap.test("Pacer.forEach() makes no burst of slots that were not used", async (t) => {
  const clock = new FakeClock();
  const pacer = new Pacer({ clock, maxInFlight: 1, maxQps: 4 });
  clock.advance(10_000);
  const starts: number[] = [];
  await pacer.forEach([1, 2, 3], async () => void starts.push(clock.monotonic()), NEVER);
  t.same(starts, [10_000, 10_250, 10_500]);
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

await tap.test("Pacer.forEach() throws the signal's reason and begins nothing more when it is aborted", async (t) => {
  const abort = new AbortController();
  const reason = new Error("stop");
  for (const maxQps of [10, Number.POSITIVE_INFINITY]) {
    const pacer = new Pacer({ clock: new FakeClock(), maxInFlight: 1, maxQps });
    const begun: number[] = [];
    const work = async (item: number): Promise<void> => {
      begun.push(item);
      abort.abort(reason);
    };
    await t.rejects(pacer.forEach([1, 2, 3], work, abort.signal), reason);
    t.same(begun, maxQps === 10 ? [1] : []);
  }
});

await tap.test("Pacer.forEach() follows its limiter, up and down, and never beyond maxInFlight", async (t) => {
  const clock = new FakeClock();
  const limiter = new Limiter({ maxInFlight: 8 });
  const pacer = new Pacer({ clock, maxInFlight: 8, maxQps: Number.POSITIVE_INFINITY, limiter });
  let inFlight = 0;
  const seen: number[] = [];
  const failing = new ApiError("GET /x", 429, {});
  const work = async (item: number): Promise<void> => {
    seen.push(++inFlight);
    const request = async (): Promise<void> => {
      await turn();
      clock.advance(5);
      if (item >= 300) throw failing;
    };
    await pacer.observe(request).catch((error: unknown) => t.equal(error, failing, "what it throws comes through"));
    inFlight--;
  };
  await pacer.forEach(
    Array.from({ length: 360 }, (_, index) => index),
    work,
    NEVER,
  );
  t.equal(Math.max(...seen.slice(0, 10)), 4, "it begins with four");
  t.equal(Math.max(...seen), 8);
  t.ok(limiter.limit < 8, "and shrinks where most are answered 429");
});

await tap.test("Pacer.forEach() takes items as they come, and throws what ends them", async (t) => {
  const pacer = new Pacer({ clock: new FakeClock(), maxInFlight: 2, maxQps: Number.POSITIVE_INFINITY });
  const done: number[] = [];
  const failure = new Error("no more");
  async function* items(): AsyncGenerator<number> {
    yield 1;
    await turn();
    yield 2;
    throw failure;
  }
  const work = async (item: number): Promise<void> => {
    await turn();
    done.push(item);
  };
  await t.rejects(pacer.forEach(items(), work, NEVER), failure);
  t.same(done, [1, 2], "those under way were waited for");
});

await tap.test("Pacer.aside() lets others go on, up to 64 of them while most requests fail", async (t) => {
  const pacer = new Pacer({ clock: new FakeClock(), maxInFlight: 1, maxQps: Number.POSITIVE_INFINITY });
  const waited = Promise.withResolvers<void>();
  const begun: number[] = [];
  const inWork = { now: 0, most: 0 };
  const work = async (item: number): Promise<void> => {
    begun.push(item);
    await pacer.observe(() => Promise.reject(new ApiError("GET /x", 503, {}))).catch(() => undefined);
    await pacer.aside(() => waited.promise, NEVER);
    inWork.most = Math.max(inWork.most, ++inWork.now);
    await turn();
    inWork.now--;
  };
  const all = pacer.forEach(
    Array.from({ length: 100 }, (_, index) => index),
    work,
    NEVER,
  );
  for (let turns = 0; turns < 200; turns++) await turn();
  t.equal(begun.length, 65, "the last one waits in its place");
  waited.resolve();
  await all;
  t.equal(begun.length, 100);
  t.equal(inWork.most, 1, "who comes back needs a place again");
});

await tap.test("Pacer.aside() lets all others go on where a fifth of the requests fails", async (t) => {
  const pacer = new Pacer({ clock: new FakeClock(), maxInFlight: 1, maxQps: Number.POSITIVE_INFINITY });
  const waited = Promise.withResolvers<void>();
  let done = 0;
  const work = async (item: number): Promise<void> => {
    if (item % 5 === 0) {
      await pacer.observe(() => Promise.reject(new ApiError("GET /x", 503, {}))).catch(() => undefined);
      await pacer.aside(() => waited.promise, NEVER);
    }
    await pacer.observe(() => Promise.resolve());
    done++;
  };
  const items = Array.from({ length: 1_000 }, (_, index) => index);
  const all = pacer.forEach(items, work, NEVER);
  for (let turns = 0; turns < 3_000; turns++) await turn();
  t.equal(done, 800, "two hundred wait");
  waited.resolve();
  await all;
  t.equal(done, 1_000);
});

await tap.test("Pacer.aside() throws what ends the wait at once, and loses no place", async (t) => {
  const pacer = new Pacer({ clock: new FakeClock(), maxInFlight: 1, maxQps: Number.POSITIVE_INFINITY });
  const failure = new Error("given up");
  const held = Promise.withResolvers<void>();
  const work = (item: number): Promise<void> =>
    item === 0 ? pacer.aside(() => turn().then(() => Promise.reject(failure)), NEVER) : held.promise;
  const all = pacer.forEach([0, 1, 2], work, NEVER);
  for (let turns = 0; turns < 10; turns++) await turn();
  held.resolve();
  await t.rejects(all, failure);
  const done: number[] = [];
  await pacer.forEach([1, 2, 3], async (item) => void done.push(item), NEVER);
  t.same(done, [1, 2, 3]);
});

await tap.test("an item that gets its place back after the work has ended sends no further request", async (t) => {
  const pacer = new Pacer({ clock: new FakeClock(), maxInFlight: 1, maxQps: Number.POSITIVE_INFINITY });
  const [abort, reason] = [new AbortController(), new Error("broken off")];
  const held = Promise.withResolvers<void>();
  let sent = 0;
  const work = async (item: number): Promise<void> => {
    if (item === 1) return held.promise;
    await pacer.aside(turn, abort.signal);
    sent++;
  };
  const all = pacer.forEach([0, 1], work, NEVER);
  for (let turns = 0; turns < 10; turns++) await turn();
  abort.abort(reason);
  held.resolve();
  await t.rejects(all, reason);
  t.equal(sent, 0);
});

await tap.test("Pacer.observe() takes a refusal for an answer, and a fault of this program for neither", async (t) => {
  const outcomes: string[] = [];
  const limiter = {
    limit: 1,
    answered: () => outcomes.push("answered"),
    failed: () => outcomes.push("failed"),
  } as unknown as Limiter;
  const pacer = new Pacer({ clock: new FakeClock(), maxInFlight: 1, maxQps: Number.POSITIVE_INFINITY, limiter });
  const errors = [
    new ApiError("GET /x", 409, {}),
    new ApiError("GET /x", 503, {}),
    new TransportError("GET /x", "https://a", new Error("reset")),
    new TypeError("a fault"),
  ];
  for (const error of errors)
    await t.rejects(
      pacer.observe(() => Promise.reject(error)),
      error,
    );
  t.same(outcomes, ["answered", "failed", "failed"]);
});
