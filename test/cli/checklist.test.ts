import { PassThrough } from "node:stream";
import tap from "tap";
import { Checklist, type ChecklistLine, activeLine } from "../../src/cli/render/checklist.ts";
import { createReporter } from "../../src/cli/render/reporter.ts";
import type { MigrationEvent } from "../../src/old/migrator/events.ts";
import type { Counts } from "../../src/old/migrator/rewrite/counts.ts";
import { FakeClock } from "../fake-clock.ts";
import { Screen } from "../terminal/screen.ts";

function countsOf(given: Partial<Counts>): Counts {
  return { done: 0, migrated: 0, current: 0, newer: 0, gone: 0, failed: 0, changed: 0, total: undefined, ...given };
}

const FROZEN: MigrationEvent = { type: "frozen", storageVersion: "v1", guard: { kind: "policy", name: "p" } };
const PROVEN: MigrationEvent = { type: "proven", apiServers: ["https://a"] };
const PRUNED: MigrationEvent = { type: "pruned", storedVersions: ["v1"], removed: ["v1alpha1"] };
const progress = (given: Partial<Counts>): MigrationEvent => ({ type: "progress", counts: countsOf(given) });

function shown(lines: readonly ChecklistLine[]): readonly string[] {
  return lines.map(({ mark, text, tookMs }) => `${mark} ${text}${tookMs === undefined ? "" : ` ${tookMs}`}`);
}

await tap.test("Checklist has one line for each step, with what it took", (t) => {
  const list = new Checklist(0);
  t.same(shown(list.take(FROZEN, 400)), ['done froze the storage version at "v1", guarded by policy "p" 400']);
  t.same(shown(list.take(PROVEN, 1_400)), ["done proved the freeze on https://a 1000"]);
  t.same(list.take({ type: "settling", remainingMs: 2_000 }, 1_500), []);
  t.match(list.active, { kind: "waiting", text: /waiting 2s for in-flight writes/ });
  t.same(shown(list.take(progress({ done: 1, total: 5 }), 3_500)), [
    "done writes that were under way have landed 2000",
  ]);
  t.same(list.take(progress({ done: 5, migrated: 5, total: 5 }), 4_000), []);
  t.match(list.active, { kind: "rewriting", since: 3_500 });
  t.same(shown(list.take(PROVEN, 4_500)), ["done 5 rewritten 1000", "done proved the freeze on https://a 0"]);
  t.same(shown(list.take(PRUNED, 4_600)), ["done pruned storedVersions to [v1] 100"]);
  t.equal(list.active, undefined);
  t.same(list.end(4_700), []);
  t.end();
});

await tap.test("Checklist tells what happens in between from what calls for attention", (t) => {
  const list = new Checklist(0);
  t.same(shown(list.take({ type: "retrying", reason: "503", delayMs: 1_000 }, 0)), ["note retrying in 1s: 503"]);
  t.same(shown(list.take({ type: "warning", message: "look" }, 0)), ["warning warning: look"]);
  t.same(shown(list.take({ type: "yielding", reason: "another migrator" }, 0)), ["note waiting: another migrator"]);
  t.match(list.active, { kind: "waiting" });
  t.end();
});

await tap.test("Checklist ends what was under way where a run ends with failures", (t) => {
  const list = new Checklist(0);
  list.take(progress({ done: 2, migrated: 1, failed: 1, total: 2 }), 0);
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
  const counts = countsOf({ done: 123_456, total: 1_000_000, failed: 12 });
  for (let columns = 2; columns <= 200; columns++) {
    for (const active of [
      { kind: "rewriting", counts, since: 0 } as const,
      { kind: "waiting", text: "waiting for something with a very long name ".repeat(5) } as const,
    ]) {
      const line = activeLine(active, 10_000, columns);
      if (line.length >= columns) t.fail(`${line.length} of ${columns}: ${line}`);
    }
  }
  t.equal(
    activeLine({ kind: "rewriting", counts: countsOf({ done: 50, total: 100 }), since: 0 }, 500, 120),
    "  … [###############...............] 50% 50/100",
  );
  t.equal(
    activeLine({ kind: "rewriting", counts: countsOf({ done: 50, total: 100 }), since: 0 }, 500, 20),
    "  … 50% 50/100",
    "a bar without room is left out",
  );
  t.end();
});

const COLUMNS = 60;
const COUNTS = { done: 0, migrated: 0, current: 0, newer: 0, gone: 0, failed: 0, changed: 0 };

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
  reporter.event({ type: "converged", apiServers: ["a"] });
  for (let done = 0; done <= 100_000; done += 1_000) {
    clock.advance(110);
    reporter.event({ type: "progress", counts: { ...COUNTS, done, migrated: done, total: 100_000 } });
  }
  t.match(screen.text, /^ {2}… .*100% 100000\/100000/m, "the bar is there while it lasts");
  t.equal(screen.hasWrapped, false);
  reporter.event({ type: "pruned", storedVersions: ["v1"], removed: [] });
  reporter.event({ type: "unfrozen" });
  reporter.result({ resource: "widgets.example.com", outcome: "nothing-to-do", failures: [], changedObjects: [] });
  t.same(screen.text.split("\n"), [
    "widgets.example.com",
    "  ✔ every API server shows the storage version (a)  0s",
    "  ✔ 100000 rewritten  11s",
    "  ✔ pruned storedVersions to [v1]  0s",
    "  ✔ lifted the freeze  0s",
    "  nothing to do",
    "",
  ]);
  t.end();
});
