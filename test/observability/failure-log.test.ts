import { pino } from "pino";
import tap from "tap";
import { FailureLog } from "../../src/observability/failure-log.ts";
import { FakeClock } from "../fake-clock.ts";

interface Line {
  readonly level: number;
  readonly msg: string;
  readonly reason?: string;
  readonly failures: number;
  readonly seconds: number;
}

function setting() {
  const clock = new FakeClock();
  const lines: Line[] = [];
  const logger = pino({}, { write: (line: string) => void lines.push(JSON.parse(line) as Line) });
  const log = new FailureLog({ clock, logger, failing: "cannot watch; trying again", working: "watching again" });
  return { clock, lines, log };
}

await tap.test(
  "FailureLog tells of the first failure, then at growing intervals, and once that it works again",
  (t) => {
    const { clock, lines, log } = setting();
    log.worked();
    for (let second = 0; second < 3_600; second += 2) {
      log.failed(new Error("no answer"));
      clock.advance(2_000);
    }
    log.worked();
    log.worked();
    const warnings = lines.filter(({ level }) => level === 40);
    t.same(
      warnings.map(({ seconds }) => seconds),
      [0, 10, 30, 70, 150, 310, 630, 1_230, 1_830, 2_430, 3_030],
    );
    t.match(warnings[0], { msg: "cannot watch; trying again", reason: "no answer", failures: 1 });
    t.match(lines.slice(warnings.length), [{ level: 30, msg: "watching again", failures: 1_800, seconds: 3_600 }]);
    t.equal(lines.length, warnings.length + 1);
    t.end();
  },
);

await tap.test("FailureLog takes what works for a moment only for the same outage", (t) => {
  const { clock, lines, log } = setting();
  for (let second = 0; second < 600; second += 2) {
    log.failed(new Error("no answer"));
    log.worked();
    clock.advance(2_000);
  }
  t.same(
    lines.filter(({ level }) => level === 40).map(({ seconds }) => seconds),
    [0, 10, 30, 70, 150, 310],
  );
  t.equal(lines.filter(({ level }) => level === 30).length, 6, "each line is answered by one");
  clock.advance(3_600_000);
  log.failed(new Error("another"));
  t.match(lines.at(-1), { reason: "another", failures: 1, seconds: 0 }, "a new outage");
  t.end();
});
