import tap from "tap";
import { randomFrom } from "../../chaos/random.ts";
import { SimEtcd } from "../model/etcd.ts";
import { renewIdentityLease } from "../model/identity-leases.ts";
import { jumpClock, seemsEnded } from "./false-expiry.ts";
import { Schedule } from "./schedule.ts";
import { SimProcess, timeOf } from "./sim-process.ts";

const HOUR_MS = 3_600_000;

/** Two API servers, of which the first one renewed its identity Lease by its clock, and one program. */
function clocks(ownAheadMs = 0) {
  const schedule = new Schedule(randomFrom(1));
  const etcd = new SimEtcd();
  const serverOf = (name: string) => ({ api: { name }, process: new SimProcess(schedule, name) });
  const nodes = [serverOf("server-0"), serverOf("server-1")] as const;
  const ksvm = new SimProcess(schedule, "ksvm");
  renewIdentityLease(etcd, nodes[0].api.name, { process: "1", now: timeOf(schedule) + ownAheadMs });
  const world = { cluster: { etcd, nodes }, programs: [undefined, { process: ksvm }], schedule };
  return { world, hanging: nodes[0], other: nodes[1].process, ksvm };
}

await tap.test("of two clocks that make a hung API server look ended the second one does not jump", (t) => {
  for (const [firstOf, secondOf] of [
    ["other", "ksvm"],
    ["ksvm", "other"],
  ] as const) {
    const { world, hanging, ...processes } = clocks();
    hanging.process.pause();
    const [first, second] = [processes[firstOf], processes[secondOf]];
    jumpClock(world, first, HOUR_MS);
    t.equal(first.aheadMs, HOUR_MS, "one alone");
    jumpClock(world, second, HOUR_MS);
    t.equal(second.aheadMs, 0, secondOf);
    jumpClock(world, second, HOUR_MS / 2);
    t.equal(second.aheadMs, HOUR_MS / 2, "by less than a Lease counts for");
    jumpClock(world, second, HOUR_MS / 2);
    t.equal(second.aheadMs, HOUR_MS / 2, "nor in two jumps");
  }
  t.end();
});

await tap.test("negative control: where no API server hangs all clocks jump", (t) => {
  const { world, other, ksvm } = clocks();
  for (const process of [other, ksvm]) jumpClock(world, process, HOUR_MS);
  t.same([other.aheadMs, ksvm.aheadMs], [HOUR_MS, HOUR_MS]);
  t.end();
});

await tap.test("an API server whose own clock is an hour behind does not hang", (t) => {
  const { world, hanging } = clocks(-HOUR_MS);
  t.ok(seemsEnded(world, hanging));
  const right = clocks();
  t.notOk(seemsEnded(right.world, right.hanging));
  t.end();
});
