import tap from "tap";
import { lateWritesSince } from "../../src/apiservers/late-writes-since.ts";

const DELAY = { now: 100_000, shutdownDelayMs: 20_000 };
const LOOK = { at: undefined, seenAt: 50_000 };

const cases = [
  { name: "one that left after the look", since: LOOK, changedAt: 40_000, seenAt: 60_000 },
  { name: "the look, where one left long before it", since: LOOK, changedAt: 10_000, seenAt: 50_000 },
  { name: "the look, where nothing is watched: one may have left right before it", since: LOOK, seenAt: 70_000 },
  { name: "one that left, where the encryption is not looked at", changedAt: 40_000, seenAt: 60_000 },
  { name: "now, where nothing is watched or looked at", seenAt: 120_000 },
];

for (const { name, since, changedAt, seenAt } of cases) {
  await tap.test(`lateWritesSince() counts from ${name}`, (t) => {
    t.same(lateWritesSince(since, { arrivals: { changedAt }, ...DELAY }), { at: undefined, seenAt });
    t.end();
  });
}
