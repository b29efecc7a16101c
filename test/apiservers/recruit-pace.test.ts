import tap from "tap";
import type { LiveLease } from "../../src/apiservers/control-plane-objects.ts";
import { RecruitPace } from "../../src/apiservers/recruit-pace.ts";

function lease(name: string, renewTime: string): LiveLease {
  return { name, renewTime, uid: "u", createdAt: 0, renewedMsAgo: 0 };
}
const BEFORE = [lease("a", "10"), lease("b", "10")];

const cases: readonly [title: string, isDue: boolean, leases: readonly LiveLease[], afterMs: number][] = [
  ["nothing was renewed since", false, BEFORE, 1_000],
  ["one of them was not renewed since", false, [lease("a", "20"), lease("b", "10")], 1_000],
  ["all of them were renewed since", true, [lease("a", "20"), lease("b", "20")], 1_000],
  ["one of them is gone", true, [lease("a", "10")], 1_000],
  ["a minute has passed", true, BEFORE, 60_000],
];

for (const [title, isDue, leases, afterMs] of cases) {
  await tap.test(`RecruitPace is ${isDue ? "" : "not "}due where ${title}`, async (t) => {
    const pace = new RecruitPace();
    t.ok(pace.isDue(BEFORE, 0), "the first time it is");
    pace.failed(BEFORE, 0, "1 of them answers");
    t.equal(pace.isDue(leases, afterMs), isDue);
  });
}
