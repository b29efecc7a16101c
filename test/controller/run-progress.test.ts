import tap from "tap";
import { Tally } from "../../src/migrator/rewrite/counts.ts";
import { RunProgress } from "../../src/controller/run-progress.ts";
import type { MigrationEvent } from "../../src/migrator/events.ts";

function progressOf(done: number, migrated: number): MigrationEvent {
  return {
    type: "progress",
    counts: { done, migrated, current: 0, newer: 0, gone: 0, failed: 0, changed: 0, total: 9 },
  };
}

await tap.test("RunProgress counts what no attempt reached before", async (t) => {
  const run = new RunProgress();
  run.begins();
  t.equal(run.event(progressOf(1, 0)), false, "nothing was written");
  t.equal(run.event(progressOf(5, 4)), true);
  run.begins();
  t.equal(run.event(progressOf(5, 5)), false, "the attempt before wrote as well");
  t.equal(run.event(progressOf(6, 6)), true);
  t.equal(run.event({ type: "unfrozen" }), false);
});

await tap.test("RunProgress counts every write of an attempt that resumes another one", async (t) => {
  const run = new RunProgress();
  run.event(progressOf(7, 7));
  run.begins();
  run.event({ type: "resumed", watermark: "5", counts: new Tally().counts });
  t.equal(run.event(progressOf(1, 0)), false);
  t.equal(run.event(progressOf(2, 1)), true);
  t.equal(run.event(progressOf(3, 1)), false);
  run.event({ type: "startingAgain", reason: "a gap" });
  t.equal(run.event(progressOf(4, 2)), false, "it begins at the first object");
});
