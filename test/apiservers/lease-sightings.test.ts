import tap from "tap";
import type { IdentityLease } from "../../src/apiservers/control-plane-objects.ts";
import { LeaseSightings } from "../../src/apiservers/lease-sightings.ts";

const HOUR = 3_600_000;

const lease = (name: string, renewTime: string, given: Partial<IdentityLease> = {}): IdentityLease => ({
  name,
  uid: `uid of ${name}`,
  createdAt: 0,
  renewTime,
  renewedMsAgo: 2 * HOUR,
  durationMs: HOUR,
  isOver: true,
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

const dead = () => [lease("dead", "1")];
const moving = (now: number) => [lease("moving", String(Math.floor(now / 10_000)))];
const stopped = (now: number) => [lease("stopped", String(Math.min(now, 10_000)))];
const several = (now: number) => [
  lease("a", String(now), { isOver: false }),
  lease("b", "1", { isOver: false }),
  lease("over", "1", { isOver: now >= 60_000 }),
  // Deleted and created again: another one.
  lease("again", "1", { uid: now < 60_000 ? "1" : "2" }),
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
  t.same(looks(new LeaseSightings(), moving, [0, 31_000, 90_000]), [["moving for 30000 ms"], ["moving"], ["moving"]]);
  t.same(
    looks(new LeaseSightings(), stopped, [0, 10_000, 40_000, HOUR + 10_999, HOUR + 11_000]),
    [["stopped for 30000 ms"], ["stopped"], ["stopped"], ["stopped"], []],
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
  const diedBetween = (now: number) => [lease("died", now < HOUR ? "1" : "2", { isOver: now >= HOUR })];
  t.same(looks(new LeaseSightings(), diedBetween, [0, 3 * HOUR, 3 * HOUR + 31_000]), [
    ["died"],
    ["died for 30000 ms"],
    [],
  ]);
  // As long as its time is not over by the clocks, they say how long it lives.
  const diedSoon = (now: number) => [lease("died", now < 60_000 ? "1" : "2", { isOver: now >= HOUR })];
  t.same(looks(new LeaseSightings(), diedSoon, [0, HOUR - 60_000, HOUR, HOUR + 31_000]), [["died"], ["died"], [], []]);
  t.end();
});

await tap.test("LeaseSightings keeps a Lease whose renewal its stamps cannot tell, also after a longer break", (t) => {
  const behind = (now: number) => [lease("behind", now < HOUR / 2 ? "1" : "2")];
  t.same(
    looks(new LeaseSightings(), behind, [0, HOUR / 2, HOUR, 1.5 * HOUR + 1_000]),
    [["behind for 30000 ms"], ["behind"], ["behind"], []],
    "by its stamps it was renewed before the first look: its clock is behind",
  );
  t.end();
});
