import tap from "tap";
import { HEARTBEAT_LIMIT_MS } from "../../src/api/migration.ts";
import { OwnLooks } from "../../src/trigger/own-looks.ts";
import { ManualClock } from "../manual-clock.ts";
import { MINUTE, NOW, state } from "./situation.ts";

const NAME = "deployments.apps";

await tap.test("OwnLooks knows for ten minutes that this process looked, by its own clock", async (t) => {
  const clock = new ManualClock();
  const looks = new OwnLooks(clock);
  const left = state(["A"], "A", { heartbeat: NOW });
  t.notOk(looks.isRecent(NAME, left), "it has not looked yet");
  looks.looked(NAME, NOW);
  t.ok(looks.isRecent(NAME, left));
  await clock.advance(HEARTBEAT_LIMIT_MS);
  t.ok(looks.isRecent(NAME, left));
  await clock.advance(1);
  t.notOk(looks.isRecent(NAME, left));
});

await tap.test("OwnLooks counts the time of a suspension", async (t) => {
  const clock = new ManualClock();
  const looks = new OwnLooks(clock);
  looks.looked(NAME, NOW);
  clock.sleepMachine(11 * MINUTE);
  t.notOk(looks.isRecent(NAME, state(["A"], "A", { heartbeat: NOW })));
});

await tap.test(
  "OwnLooks says nothing of a StorageState that another client wrote, or that went back in time",
  async (t) => {
    const looks = new OwnLooks(new ManualClock());
    looks.looked(NAME, NOW);
    t.notOk(looks.isRecent(NAME, state(["A"], "A", { heartbeat: NOW - MINUTE })));
    t.notOk(looks.isRecent(NAME, undefined));
    looks.looked(NAME, Number.NaN);
    t.notOk(looks.isRecent(NAME, state(["A"], "A", { heartbeat: Number.NaN })));
    looks.looked(NAME, NOW);
    looks.keepOnly(() => false);
    t.notOk(looks.isRecent(NAME, state(["A"], "A", { heartbeat: NOW })));
  },
);
