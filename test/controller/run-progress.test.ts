import tap from "tap";
import { RunProgress } from "../../src/controller/run-progress.ts";

/** Which of these objects, by the resourceVersions that they were listed with, count as progress in this order. */
function countedBy(run: RunProgress, watermark: string, listed: readonly (string | undefined)[]): boolean[] {
  return listed.map((written, at) => run.advanced({ done: at + 1, written, watermark }));
}

await tap.test("RunProgress counts each object once, by the first watermark of the migration", async (t) => {
  const run = new RunProgress();
  t.same(countedBy(run, "100", ["7", undefined, "100"]), [true, false, true], "what was not written does not count");
  // It begins at the first object. The fourth was not reached before.
  t.same(countedBy(run, "110", ["101", "8", "102", "9"]), [false, true, false, true]);
});

await tap.test("RunProgress counts no object that was created since the migration began", async (t) => {
  const run = new RunProgress();
  t.same(countedBy(run, "100", ["7", "8"]), [true, true]);
  t.same(countedBy(run, "110", ["101", "102", "105"]), [false, false, false], "one object more with each attempt");
  t.same(countedBy(run, "120", ["111", "112", "113", "115"]), [false, false, false, false]);
});

await tap.test("RunProgress counts objects where resourceVersions cannot be compared", async (t) => {
  const run = new RunProgress();
  t.same(countedBy(run, "opaque", ["a", "b"]), [true, true]);
  t.same(countedBy(run, "later", ["c", "d", "e"]), [false, false, true]);
});

await tap.test("RunProgress counts each object once more where resourceVersions went back, and no more", async (t) => {
  const run = new RunProgress();
  t.same(countedBy(run, "1000", ["7", "8"]), [true, true]);
  // etcd was restored from a backup: all that is written from here on is below the first watermark.
  t.same(countedBy(run, "500", ["7", "8"]), [true, true]);
  t.same(countedBy(run, "510", ["501", "502"]), [false, false]);
  t.same(countedBy(run, "520", ["511", "512"]), [false, false]);
  // With --bump-revision they go forward, and objects have the ones that they had.
  t.same(countedBy(run, "1000000500", ["9", "512"]), [true, false]);
  t.same(countedBy(run, "1000000600", ["1000000501", "1000000502"]), [false, false]);
});

await tap.test(
  "RunProgress counts no write of an API server whose resourceVersions go back all the time",
  async (t) => {
    const run = new RunProgress();
    const attempts = Array.from({ length: 20 }, (_, at) => countedBy(run, `${1_000 - at}`, [`${900 - at}`]));
    t.same(attempts.flat().filter(Boolean).length, 4, "the first attempt and three restores");
  },
);
