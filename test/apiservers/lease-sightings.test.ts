import tap from "tap";
import type { IdentityLease } from "../../src/apiservers/control-plane-objects.ts";
import { LeaseSightings } from "../../src/apiservers/lease-sightings.ts";

const HOUR = 3_600_000;
/** What the clock of each API server shows at the time 0 of the monotonic clock, in milliseconds since the Unix epoch. */
const START = Date.parse("2026-01-01T00:00:00Z");

/** @param renewedAt by the clock of its API server, in milliseconds after the first look was asked for */
const lease = (name: string, renewedAt: number, given: Partial<IdentityLease> = {}): IdentityLease => ({
  name,
  uid: `uid of ${name}`,
  createdAt: 0,
  renewTime: new Date(START + renewedAt).toISOString(),
  renewedMsAgo: 2 * HOUR,
  durationMs: HOUR,
  isOver: true,
  holder: "",
  ...given,
});

/** Looks at these times, each of which takes a second. */
function looks(sightings: LeaseSightings, at: (askedAt: number) => readonly IdentityLease[], times: readonly number[]) {
  return times.map((askedAt) =>
    sightings
      .standing({ leases: at(askedAt), askedAt, answeredAt: askedAt + 1_000 })
      .map(({ name, watchMs = 0 }) => (watchMs === 0 ? name : `${name} for ${watchMs} ms`)),
  );
}

const dead = () => [lease("dead", 0)];
/** Its last renewal is that of this time; it is renewed every 10 s until then. */
const renewedUntil = (last: number) => (now: number) => [
  lease("hung", Math.floor(Math.min(now, last) / 10_000) * 10_000),
];
/** The same, and its time is over from the second look on. */
const overLater = (last: number) => (now: number) =>
  renewedUntil(last)(now).map((one) => ({ ...one, isOver: now > 0 }));
const several = (now: number) => [
  lease("a", now, { isOver: false }),
  lease("b", 0, { isOver: false }),
  lease("over", 0, { isOver: now >= 60_000 }),
  // Deleted and created again: another one.
  lease("again", 0, { uid: now < 60_000 ? "1" : "2" }),
];

await tap.test("LeaseSightings takes a Lease for expired once it stood still for half a minute", (t) => {
  t.same(looks(new LeaseSightings(), dead, [0, 10_000, 30_999, 31_000, 90_000]), [
    ["dead for 30000 ms"],
    ["dead for 21000 ms"],
    ["dead for 1 ms"],
    [],
    [],
  ]);
  t.end();
});

await tap.test("LeaseSightings counts a Lease that is renewed as live, whatever the clocks say", (t) => {
  t.same(looks(new LeaseSightings(), renewedUntil(HOUR), [0, 31_000, 90_000]), [
    ["hung for 30000 ms"],
    ["hung"],
    ["hung"],
  ]);
  t.same(
    looks(new LeaseSightings(), renewedUntil(10_000), [0, 10_000, 40_000, HOUR + 10_999, HOUR + 11_000]),
    [["hung for 30000 ms"], ["hung"], ["hung"], ["hung"], []],
    "after its last renewal, for as long as the Lease says, by the monotonic clock",
  );
  t.end();
});

await tap.test("LeaseSightings watches a Lease only where its time is over, and each by itself", (t) => {
  t.same(looks(new LeaseSightings(), several, [0, 59_000, 60_000]), [
    ["a", "b", "over", "again for 30000 ms"],
    ["a", "b", "over"],
    ["a", "b", "again for 30000 ms"],
  ]);
  t.end();
});

await tap.test("LeaseSightings keeps no Lease for a renewal that it saw hours later", (t) => {
  // It is renewed after the first look, its API server dies, and its time is over by every clock at the second look.
  const diedBetween = (now: number) => [lease("died", now < HOUR ? 0 : 10_000, { isOver: now >= HOUR })];
  t.same(looks(new LeaseSightings(), diedBetween, [0, 3 * HOUR, 3 * HOUR + 31_000]), [
    ["died"],
    ["died for 30000 ms"],
    [],
  ]);
  // As long as its time is not over by the clocks, they say how long it lives.
  const diedSoon = (now: number) => [lease("died", now < 60_000 ? 0 : 10_000, { isOver: now >= HOUR + 10_000 })];
  t.same(looks(new LeaseSightings(), diedSoon, [0, HOUR - 60_000, HOUR + 9_000, HOUR + 11_000]), [
    ["died"],
    ["died"],
    ["died"],
    [],
  ]);
  t.end();
});

await tap.test("LeaseSightings keeps a Lease by when its stamps say that it was renewed after the look before", (t) => {
  t.same(
    looks(new LeaseSightings(), renewedUntil(2 * HOUR), [0, 2 * HOUR, 2 * HOUR + 31_000, 3 * HOUR, 3 * HOUR + 1_000]),
    [["hung for 30000 ms"], ["hung"], ["hung"], ["hung"], []],
    "its API server hung at the second look, hours after the first: for its duration, although its clock is behind",
  );
  t.same(
    looks(new LeaseSightings(), overLater(1.5 * HOUR), [0, 2 * HOUR, 2.5 * HOUR, 2.5 * HOUR + 1_000]),
    [["hung"], ["hung"], ["hung"], []],
    "its API server hung half an hour before: for the other half hour",
  );
  t.same(
    looks(new LeaseSightings(), overLater(10_000), [0, HOUR / 2, HOUR, HOUR + 11_000]),
    [["hung"], ["hung"], ["hung"], []],
    "its API server hung after the first look",
  );
  t.same(
    looks(new LeaseSightings(), renewedUntil(1.5 * HOUR), [0, 2 * HOUR, 3 * HOUR, 3 * HOUR + 1_000]),
    [["hung for 30000 ms"], ["hung"], ["hung"], []],
    "a clock that was far behind at the first look may have been set back since: from the second look",
  );
  t.end();
});

await tap.test(
  "LeaseSightings keeps a Lease from the look that showed its renewal where its stamps cannot be right",
  (t) => {
    const times = [0, 3 * HOUR, 3 * HOUR + 31_000, 4 * HOUR, 4 * HOUR + 1_000];
    const kept = [["set"], ["set"], ["set"], ["set"], []];
    for (const [what, renewTime] of [
      ["the clock was set back", new Date(START - HOUR).toISOString()],
      ["the clock was set ahead", new Date(START + 100 * HOUR).toISOString()],
      ["there is no stamp", "never"],
    ] as const) {
      const set = (now: number) => [lease("set", 0, now === 0 ? { isOver: false } : { renewTime })];
      t.same(looks(new LeaseSightings(), set, times), kept, what);
    }
    // It stood still for an hour, and its stamp says that it was renewed in that time.
    const woke = (now: number) => [lease("woke", now <= HOUR ? 0 : HOUR / 2, { isOver: now > HOUR })];
    t.same(
      looks(new LeaseSightings(), woke, [0, HOUR, 3 * HOUR, 3 * HOUR + 31_000, 4 * HOUR + 1_000]),
      [["woke"], ["woke"], ["woke"], ["woke"], []],
      "a look has shown that it was not renewed then",
    );
    t.end();
  },
);
