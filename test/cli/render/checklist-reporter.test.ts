import { PassThrough } from "node:stream";
import tap from "tap";
import { createReporter } from "../../../src/cli/render/reporter.ts";
import { FakeClock } from "../../fake-clock.ts";
import { Screen } from "../../terminal/screen.ts";

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

await tap.test("on a terminal a dry run has no step that says something was rewritten", (t) => {
  const { io, screen } = terminal();
  const reporter = createReporter(io, "widgets.example.com", { format: "text", clock: new FakeClock() });
  const counts = { ...COUNTS, done: 3, migrated: 3, total: 3 };
  reporter.event({ type: "progress", counts });
  reporter.result({ resource: "w", outcome: "dry-run", counts, failures: [], changedObjects: [] });
  t.match(screen.text, "dry run: 3 objects would be accepted");
  t.notMatch(screen.text, "rewritten");
  t.end();
});

await tap.test("on a terminal a resource is named again where another one came in between", (t) => {
  const { io, screen } = terminal();
  const options = { format: "text", clock: new FakeClock() } as const;
  const [a, b] = [createReporter(io, "a.example.com", options), createReporter(io, "b.example.com", options)];
  a.note("one");
  a.note("two");
  b.note("three");
  a.note("four");
  const lines = ["a.example.com", "  · one", "  · two", "b.example.com", "  · three", "a.example.com", "  · four", ""];
  t.same(screen.text.split("\n"), lines);
  t.end();
});
