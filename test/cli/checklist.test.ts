import { PassThrough } from "node:stream";
import tap from "tap";
import { Checklist, type ChecklistLine, activeLine } from "../../src/cli/render/checklist.ts";
import { createReporter } from "../../src/cli/render/reporter.ts";
import { type MigrationEvent, newTally, type Tally } from "../../src/migrator/types.ts";
import { FakeClock } from "../fake-clock.ts";
import { Screen } from "../terminal/screen.ts";

function tallyOf(given: Partial<Tally>): Tally {
  return { ...newTally(), ...given };
}

const REASON = "requests of before the last change may still be under way";
const GUARD = { kind: "policy", name: "p" } as const;
const CONVERGED: MigrationEvent = { type: "converged", apiServers: 3, isSampled: false };
const SETTLED: MigrationEvent = { type: "settled", isLongPast: false };
const FROZEN: MigrationEvent = { type: "frozen", storageVersion: "v1", guard: GUARD, apiServers: 3 };
const PRUNED: MigrationEvent = { type: "pruned", storedVersions: ["v1"], removed: ["v1alpha1"] };
const settling = (leftMs: number): MigrationEvent => ({ type: "settling", leftMs, reason: REASON });
const progress = (given: Partial<Tally>): MigrationEvent => ({ type: "progress", tally: tallyOf(given) });

function shown(lines: readonly ChecklistLine[]): readonly string[] {
  return lines.map(({ mark, text, tookMs }) => `${mark} ${text}${tookMs === undefined ? "" : ` ${tookMs}`}`);
}

await tap.test("Checklist has one line for each step, with what it took", (t) => {
  const list = new Checklist(0);
  t.same(shown(list.take(CONVERGED, 400)), ["done every API server shows the storage version (3) 400"]);
  t.same(list.take(settling(90_000), 500), []);
  t.same(list.take(settling(80_000), 10_500), []);
  t.same(list.active, { kind: "waiting", text: `waiting 80s: ${REASON}` }, "what is left of the wait, and why");
  t.same(shown(list.take(SETTLED, 90_500)), ["done requests of before have ended 90000"]);
  t.equal(list.active, undefined);
  t.same(shown(list.take(FROZEN, 91_500)), [
    'done froze the storage version at "v1", guarded by policy "p" on 3 API servers 1000',
  ]);
  t.same(list.take(progress({ current: 1, total: 5 }), 92_000), []);
  t.same(list.take(progress({ rewritten: 5, total: 5 }), 92_500), []);
  t.match(list.active, { kind: "rewriting", since: 92_000 });
  t.same(shown(list.take(PRUNED, 93_000)), ["done 5 rewritten 1000", "done pruned storedVersions to [v1] 0"]);
  t.equal(list.active, undefined);
  t.same(list.end(93_100), []);
  t.end();
});

await tap.test("Checklist says nothing of a wait where the last change is long past", (t) => {
  const list = new Checklist(0);
  list.take(CONVERGED, 100);
  t.same(list.take({ type: "settled", isLongPast: true }, 200), []);
  t.equal(list.active, undefined);
  t.end();
});

await tap.test("Checklist says that a wait was interrupted, and does not tick it off", (t) => {
  const interrupted = "warning interrupted: requests of before may still be under way";
  const stopped = new Checklist(0);
  stopped.take(settling(90_000), 0);
  t.same(shown(stopped.end(12_000)), [`${interrupted} 12000`]);
  t.same(stopped.end(12_000), []);

  const again = new Checklist(0);
  again.take(settling(90_000), 0);
  t.same(shown(again.take({ type: "beginsAgain", reason: "the spec changed" }, 5_000)), [
    `${interrupted} 5000`,
    "warning beginning again: the spec changed",
  ]);
  t.same(shown(again.take(CONVERGED, 6_000)), ["done every API server shows the storage version (3) 1000"]);

  const missed = new Checklist(0);
  missed.take(settling(90_000), 0);
  t.same(shown(missed.take({ type: "waiting", for: "apiServer", reason: "a is silent" }, 5_000)), [
    "note waiting without a freeze: a is silent",
  ]);
  missed.take({ type: "settling", leftMs: 90_000, reason: "an API server did not answer" }, 6_000);
  t.same(missed.active, { kind: "waiting", text: "waiting 90s: an API server did not answer" });
  t.same(shown(missed.take(SETTLED, 96_000)), ["done requests of before have ended 96000"], "it is one wait");
  t.end();
});

await tap.test("Checklist tells what happens in between from what calls for attention", (t) => {
  const list = new Checklist(0);
  t.same(shown(list.take({ type: "warning", message: "look" }, 0)), ["warning warning: look"]);
  t.same(shown(list.take({ type: "resumed", watermark: "7" }, 0)), [
    "note resuming an earlier run at resourceVersion 7",
  ]);
  const waiting: MigrationEvent = { type: "waiting", for: "inTree", reason: "another migrator" };
  t.same(shown(list.take(waiting, 0)), ["note waiting without a freeze: another migrator"]);
  t.same(list.take(waiting, 5_000), [], "it is told once");
  t.match(list.active, { kind: "waiting" });
  t.end();
});

await tap.test("Checklist ends what was under way where a run ends with failures", (t) => {
  const list = new Checklist(0);
  list.take(progress({ rewritten: 1, failed: 1, total: 2 }), 0);
  t.same(shown(list.end(3_000)), ["warning 1 rewritten, 1 failed 3000"]);
  t.equal(list.active, undefined);
  t.end();
});

await tap.test("activeLine() escapes what a terminal would act on, as in the name of who holds a Lease", (t) => {
  const line = activeLine({ kind: "waiting", text: '"x\u001b]0;title\u0007\u001b[2J\u009b31m\nb" holds it' }, 0, 120);
  t.equal(line, '  … "x\\u001b]0;title\\u0007\\u001b[2J\\u009b31m\\u000ab" holds it');
  t.end();
});

await tap.test("activeLine() is shorter than the terminal is wide, whatever that is", (t) => {
  const tally = tallyOf({ rewritten: 123_444, total: 1_000_000, failed: 12 });
  for (let columns = 2; columns <= 200; columns++) {
    for (const active of [
      { kind: "rewriting", tally, since: 0 } as const,
      { kind: "waiting", text: "waiting for something with a very long name ".repeat(5) } as const,
    ]) {
      const line = activeLine(active, 10_000, columns);
      if (line.length >= columns) t.fail(`${line.length} of ${columns}: ${line}`);
    }
  }
  t.equal(
    activeLine({ kind: "rewriting", tally: tallyOf({ rewritten: 50, total: 100 }), since: 0 }, 500, 120),
    "  … [###############...............] 50% 50/100",
  );
  t.equal(
    activeLine({ kind: "rewriting", tally: tallyOf({ rewritten: 50, total: 100 }), since: 0 }, 500, 20),
    "  … 50% 50/100",
    "a bar without room is left out",
  );
  t.end();
});

const COLUMNS = 60;

function terminal() {
  const screen = new Screen(COLUMNS);
  const stdout = Object.assign(new PassThrough(), { isTTY: true, columns: COLUMNS });
  stdout.on("data", (chunk: Buffer) => screen.write(chunk.toString()));
  const stderr = new PassThrough();
  return { screen, io: { stdout, stderr, signal: new AbortController().signal } };
}

await tap.test("on a terminal a run is a checklist, and its bar neither wraps nor stays behind", (t) => {
  const { io, screen } = terminal();
  const clock = new FakeClock();
  const reporter = createReporter(io, "widgets.example.com", { format: "text", clock });
  reporter.event({ type: "converged", apiServers: 1, isSampled: false });
  for (let done = 0; done <= 100_000; done += 1_000) {
    clock.advance(110);
    reporter.event(progress({ rewritten: done, total: 100_000 }));
  }
  t.match(screen.text, /^ {2}… .*100% 100000\/100000/m, "the bar is there while it lasts");
  t.equal(screen.hasWrapped, false);
  reporter.event({ type: "pruned", storedVersions: ["v1"], removed: [] });
  reporter.event({ type: "unfrozen" });
  reporter.result({ resource: "widgets.example.com", outcome: "nothing-to-do" });
  t.same(screen.text.split("\n"), [
    "widgets.example.com",
    "  ✔ every API server shows the storage version (1)  0s",
    "  ✔ 100000 rewritten  11s",
    "  ✔ pruned storedVersions to [v1]  0s",
    "  ✔ lifted the freeze  0s",
    "  nothing to do",
    "",
  ]);
  t.end();
});

await tap.test("a wait that several runs share is told once", (t) => {
  const stdout = new PassThrough();
  const io = { stdout, stderr: new PassThrough(), signal: new AbortController().signal };
  const clock = new FakeClock();
  const reporters = ["a.example.com", "b.example.com"].map((name) =>
    createReporter(io, name, { format: "text", clock }),
  );
  const tell = (event: MigrationEvent): void => {
    for (const reporter of reporters) reporter.event(event);
    clock.advance(10_000);
  };
  tell(CONVERGED);
  tell(settling(20_000));
  tell(settling(10_000));
  tell(SETTLED);
  tell(FROZEN);
  t.same(String(stdout.read()).split("\n"), [
    "a.example.com: every API server shows the storage version (3)",
    `a.example.com: waiting 20s: ${REASON}`,
    `a.example.com: waiting 10s: ${REASON}`,
    "a.example.com: requests of before have ended",
    'a.example.com: froze the storage version at "v1", guarded by policy "p" on 3 API servers',
    'b.example.com: froze the storage version at "v1", guarded by policy "p" on 3 API servers',
    "",
  ]);
  t.end();
});
