import tap from "tap";
import { actionSort } from "../actions/all-actions.ts";
import type { ModelRequest } from "../model/types.ts";
import type { Plan } from "../plan.ts";
import { startProgram } from "../programs/all-programs.ts";
import { SETTINGS } from "../programs/migrate-program.ts";
import { World } from "./world.ts";

const PLAN: Plan = {
  seed: 7,
  servers: 1,
  access: "each",
  kinds: [],
  programs: [],
  writeEveryMs: 30_000,
  actions: [],
};

await tap.test("obstacles that overlap end each at its own time", async (t) => {
  const world = new World({ plan: PLAN, settings: SETTINGS, startProgram });
  const { cluster, schedule } = world;
  const isHarmed = (): boolean => cluster.harmOf({ user: "ksvm-0-0", body: "" } as ModelRequest) !== undefined;
  const play = (at: number, name: string, parameters: object) =>
    schedule.in(at, () => void actionSort(name).play(world, { at, ...parameters }));
  play(1_000, "disturb", { how: "reset", share: 1, ms: 2_000 });
  play(2_000, "disturb", { how: "reset", share: 1, ms: 3_000 });
  play(6_000, "disturb", { how: "reset", share: 1, ms: 3_000 });
  play(7_000, "throttle", { status: 429, retryAfter: "", share: 1, ms: 1_000 });
  const seen: string[] = [];
  for (const at of [500, 1_500, 2_500, 3_500, 4_500, 5_500, 6_500, 7_500, 8_500, 9_500]) {
    schedule.in(at, () => seen.push(isHarmed() ? "harmed" : "free"));
  }
  await schedule.run(() => false, 10_000);
  await schedule.end();
  t.equal(seen.join(" "), "free harmed harmed harmed harmed free harmed harmed harmed free");
});
