import tap from "tap";
import { SeenEnds } from "../../src/trigger/seen-ends.ts";
import { ManualClock } from "../manual-clock.ts";
import { migration } from "./situation.ts";

const NAME = "deployments.apps";
const FAILED = migration("Failed", "A");
const RUNNING = migration("Running", "A");

await tap.test("SeenEnds tells how long it has been known that a migration has ended", async (t) => {
  const clock = new ManualClock();
  const ends = new SeenEnds(clock);
  t.same(ends.saw(NAME, [RUNNING]), new Map());
  await clock.advance(1_000);
  t.same(ends.saw(NAME, [FAILED, RUNNING]), new Map([[FAILED.uid, 0]]));
  await clock.advance(1_000);
  t.same(ends.saw(NAME, [FAILED]), new Map([[FAILED.uid, 1_000]]));
  t.same(ends.saw("secrets", [FAILED]), new Map([[FAILED.uid, 0]]), "that of another resource is another one");
});

await tap.test("SeenEnds forgets migrations and resources that are gone", async (t) => {
  const clock = new ManualClock();
  const ends = new SeenEnds(clock);
  const isNewAgain = async (forget: () => void): Promise<boolean> => {
    ends.saw(NAME, [FAILED]);
    await clock.advance(1_000);
    forget();
    return ends.saw(NAME, [FAILED]).get(FAILED.uid) === 0;
  };
  t.ok(await isNewAgain(() => ends.saw(NAME, [])));
  t.ok(await isNewAgain(() => ends.keepOnly((name) => name !== NAME)));
  t.notOk(await isNewAgain(() => ends.keepOnly((name) => name === NAME)));
});
