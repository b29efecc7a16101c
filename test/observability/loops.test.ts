import tap from "tap";
import { runChecks } from "../../src/observability/health.ts";
import { type Loop, Loops } from "../../src/observability/loops.ts";
import { ManualClock } from "../manual-clock.ts";

const LIMIT_MS = 60_000;

function setUp() {
  const clock = new ManualClock();
  const loops = new Loops(clock, { trigger: LIMIT_MS, sweep: LIMIT_MS });
  const abort = new AbortController();
  return { clock, loops, abort, report: () => runChecks("livez", loops.checks()).report.split("\n") };
}

await tap.test("Loops has no fault to find with loops that do not run here, rest, or have just begun", async (t) => {
  const { clock, loops, report } = setUp();
  t.same(report(), ["[+]trigger ok", "[+]sweep ok", "livez check passed"]);
  const resting = loops.add("trigger");
  await clock.advance(10 * LIMIT_MS);
  t.equal(report().at(-1), "livez check passed", "it has not begun");
  resting.beat();
  resting.rest();
  await clock.advance(10 * LIMIT_MS);
  t.equal(report().at(-1), "livez check passed");
});

await tap.test("Loops names a loop that hangs, until it goes on", async (t) => {
  const { clock, loops, report } = setUp();
  const loop = loops.add("sweep");
  loops.add("trigger").beat();
  loop.beat();
  await clock.advance(LIMIT_MS);
  t.equal(report().at(-1), "livez check passed");
  loops.add("trigger").beat();
  await clock.advance(15_000);
  t.ok(report().includes("[-]sweep failed: stuck: no sign of life for 75 s, and 60 s are allowed"));
  loop.beat();
  t.ok(report().includes("[+]sweep ok"));
});

await tap.test("Loops sees one that hangs beside others of the same name that do not", async (t) => {
  const { clock, loops, report } = setUp();
  const [busy, hanging] = [loops.add("trigger"), loops.add("trigger")];
  hanging.beat();
  await clock.advance(2 * LIMIT_MS);
  busy.beat();
  t.match(report()[0], /^\[-\]trigger failed: stuck/);
  hanging.end();
  t.equal(report()[0], "[+]trigger ok", "it is not needed any more");
});

await tap.test("Loop.keep() has a loop fail that ended without being told to, and names it", async (t) => {
  const { abort, loops, report } = setUp();
  await loops.add("trigger").keep(async () => undefined, abort.signal);
  t.equal(report()[0], "[-]trigger failed: stopped: it has ended");
  await t.rejects(
    loops.add("sweep").keep(() => Promise.reject(new Error("a fault")), abort.signal),
    { message: "a fault" },
  );
  t.equal(report()[1], "[-]sweep failed: stopped: a fault");
});

await tap.test(
  "Loop.keep() finds nothing wrong with a loop that was told to end, as after a change of leader",
  async (t) => {
    const { abort, clock, loops, report } = setUp();
    const wait = (loop: Loop): Promise<void> => loop.clock.sleep(10 * LIMIT_MS, abort.signal);
    const kept = loops.add("trigger").keep(wait, abort.signal);
    const ended = kept.catch((error: unknown) => error);
    abort.abort(new Error("the Lease is lost"));
    t.match(await ended, { message: "the Lease is lost" });
    await clock.advance(10 * LIMIT_MS);
    t.equal(report().at(-1), "livez check passed");
  },
);

await tap.test("Loop.clock has a loop that waits on purpose live, and one that hangs after it not", async (t) => {
  const { abort, clock, loops, report } = setUp();
  const kept = loops.add("trigger").keep(async (loop) => {
    await loop.clock.sleep(100 * LIMIT_MS, abort.signal);
    // A promise that nobody settles.
    await new Promise((_, reject) => abort.signal.addEventListener("abort", () => reject(new Error("over"))));
  }, abort.signal);
  for (let halves = 0; halves < 2; halves++) {
    await clock.advance(50 * LIMIT_MS);
    t.equal(report()[0], "[+]trigger ok");
  }
  await clock.advance(LIMIT_MS + 1_000);
  t.match(report()[0], /^\[-\]trigger failed: stuck/);
  const ended = kept.catch(() => "over");
  abort.abort();
  t.equal(await ended, "over");
});
