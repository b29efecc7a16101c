import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import tap, { type Test } from "tap";
import { playSeeds } from "./play-seeds.ts";
import type { Played, PlayTask } from "./play-task.ts";
import { readResumeFile, type ResumeState, writeResumeFile } from "./resume-file.ts";
import { SeedList } from "./seed-list.ts";
import { brokenKinds, emptyTotals, totalsText } from "./totals.ts";
import type { Done } from "./worker-pool.ts";

const PLAYED = { violations: [], requests: 10, events: 100, elapsedMs: 1_000, traceDigest: "" };

function played(violation?: string): Done<Played> {
  return { kind: "result", result: { ...PLAYED, violations: violation === undefined ? [] : [violation, "and more"] } };
}

/** Seed 3 breaks something, and the worker that plays seed 5 dies. */
async function play(task: PlayTask): Promise<Done<Played>> {
  const seed = "seed" in task ? task.seed : 0;
  // Out of order, as several workers are.
  await new Promise((resolve) => setTimeout(resolve, seed % 3));
  if (seed === 5) return { kind: "lost", why: "the process ended with SIGSEGV" };
  return played(seed === 3 ? "S1: 2 objects are lost" : undefined);
}

await tap.test("playSeeds() plays each seed once, and counts one whose worker dies as broken", async (t) => {
  const seeds = new SeedList({ from: 1, count: 20 });
  const totals = emptyTotals();
  const told: string[] = [];
  await playSeeds({ play, atOnce: 4, seeds, totals, onBroken: ({ seed }) => told.push(`${seed}`) });
  t.equal(seeds.done, 20);
  t.match(totals, { requests: 190, events: 1_900, elapsedMs: 19_000, brokenCount: 2 });
  t.same(told.toSorted(), ["3", "5"]);
  t.same(brokenKinds(totals), [
    { seed: 3, violation: "S1: 2 objects are lost", count: 1 },
    { seed: 5, violation: "lost: the process ended with SIGSEGV", count: 1 },
  ]);
  t.match(totalsText(20, { ...totals, seconds: 2 }), /^20 seeds in 2 s: 2 broken, 10\.0 schedules\/s, /);
});

await tap.test("playSeeds() begins no other seed once it is to stop, or its workers have ended", async (t) => {
  const seeds = new SeedList({ from: 1, count: 1_000 });
  let count = 0;
  await playSeeds({ play, atOnce: 3, seeds, totals: emptyTotals(), onPlayed: () => ++count >= 10 });
  t.ok(count >= 10 && count <= 12, `${count}`);
  const ended = new SeedList({ from: 1, count: 1_000 });
  await playSeeds({ play: async () => ({ kind: "ended" }), atOnce: 3, seeds: ended, totals: emptyTotals() });
  t.same([ended.done, ended.state().open], [0, [1, 2, 3]]);
});

await tap.test("SeedList goes on with what was handed out and not played", (t) => {
  const first = new SeedList({ from: 100, count: 6 });
  const taken = [first.take(), first.take(), first.take()];
  t.same(taken, [100, 101, 102]);
  first.finish(101);
  const second = new SeedList(first.state());
  t.equal(second.done, 1);
  const rest: number[] = [];
  for (let seed = second.take(); seed !== undefined; seed = second.take()) {
    rest.push(seed);
    second.finish(seed);
  }
  t.same(rest, [100, 102, 103, 104, 105]);
  t.equal(second.done, 6);
  t.end();
});

const WANTED = { tree: { commit: "abc", digest: "d1" }, mutation: null, from: 1, count: 10 };

function fileIn(t: Test): string {
  const dir = mkdtempSync(join(tmpdir(), "ksvm-resume-"));
  t.teardown(() => rmSync(dir, { recursive: true }));
  return join(dir, "state.json");
}

await tap.test("a resume file keeps how far the play came, and nothing else is left beside it", (t) => {
  const file = fileIn(t);
  t.equal(readResumeFile(file, WANTED), undefined);
  const seeds = new SeedList({ from: 1, count: 10 });
  seeds.take();
  const totals = emptyTotals();
  const state: ResumeState = { tree: WANTED.tree, mutation: null, seeds: seeds.state(), totals };
  writeResumeFile(file, state);
  writeResumeFile(file, state);
  t.same(readResumeFile(file, WANTED), state);
  t.same(readdirSync(join(file, "..")), ["state.json"]);
  t.end();
});

await tap.test("a resume file of another tree, mutation or range of seeds is refused with one line", (t) => {
  const file = fileIn(t);
  const seeds = new SeedList(WANTED).state();
  writeResumeFile(file, { tree: WANTED.tree, mutation: null, seeds, totals: emptyTotals() });
  const refusals = [
    [
      { ...WANTED, tree: { commit: "def with changes", digest: "d2" } },
      /another tree \(commit abc, and this is def with changes\)/,
    ],
    [{ ...WANTED, mutation: "do not freeze" }, /played with no mutation/],
    [{ ...WANTED, count: 20 }, /it is of 10 seeds from 1, and not of 20 from 1/],
  ] as const;
  for (const [wanted, message] of refusals) {
    t.throws(() => readResumeFile(file, wanted), { name: "UsageError", message });
    t.throws(() => readResumeFile(file, wanted), { message: /^[^\n]+$/ });
  }
  for (const text of ["", "{", "null", "[]", '{"tree":{}}']) {
    writeFileSync(file, text);
    t.throws(
      () => readResumeFile(file, WANTED),
      { name: "UsageError", message: /it is no file of make simulate/ },
      text,
    );
  }
  t.throws(() => readResumeFile(join(file, "x"), WANTED), { name: "UsageError" });
  t.throws(
    () => writeResumeFile(join(file, "x"), { tree: WANTED.tree, mutation: null, seeds, totals: emptyTotals() }),
    {
      name: "UsageError",
    },
  );
  t.end();
});
