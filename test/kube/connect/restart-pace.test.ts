import tap from "tap";
import { RestartPace } from "../../../src/kube/connect/restart-pace.ts";

const SECOND_MS = 1_000;

/** The seconds at which a plugin is restarted that is wanted again all the time. */
function restarts(seconds: number, wasRefused: boolean): number[] {
  const pace = new RestartPace();
  return Array.from({ length: seconds }, (_, second) => second).filter((second) => {
    const isDue = pace.isDue(second * SECOND_MS);
    if (isDue) pace.restarted(second * SECOND_MS, wasRefused);
    return isDue;
  });
}

await tap.test(
  "RestartPace restarts a plugin at once, and then at growing intervals while it is refused",
  async (t) => {
    t.same(restarts(200, true), [0, 10, 30, 70, 130, 190]);
  },
);

await tap.test("RestartPace keeps to the shortest interval where credentials only expire", async (t) => {
  t.same(restarts(35, false), [0, 10, 20, 30]);
});

await tap.test("RestartPace begins with the shortest interval again after a while without refusals", async (t) => {
  const pace = new RestartPace();
  pace.restarted(0, true);
  pace.restarted(10 * SECOND_MS, true);
  pace.restarted(51 * SECOND_MS, true);
  t.notOk(pace.isDue(60 * SECOND_MS));
  t.ok(pace.isDue(61 * SECOND_MS));
});
